// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/phases/config"
	depotphase "yunion.io/x/ocadm/phases/depot"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

func newToken(a *app) *cobra.Command {
	var kubeconfig string
	open := func(ctx context.Context) (*host.Host, client.Client, error) { return administrator(ctx, kubeconfig) }
	c := group(&cobra.Command{
		Use:   "token",
		Short: "Create, list and delete join tokens",
		Long:  "A join token lets machines join the cluster until it expires. Run these commands on a control-plane node.",
		Example: `  # print the command that joins another machine
  ocadm token create --print-join-command

  # the same for a node that runs the cloud's services but no VMs
  ocadm token create --print-join-command --enable-host-agent=false --as-onecloud-controller

  # list the tokens
  ocadm token list`,
	}, bounded(newTokenCreate(a, open)), bounded(newTokenList(a, open)), bounded(newTokenDelete(a, open)), newTokenGenerate(a))
	c.PersistentFlags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of an administrator (default: "+kube.AdminKubeconfig+")")
	return c
}

// bounded makes a command fail if the API server does not answer in time.
func bounded(c *cobra.Command) *cobra.Command {
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(c.Context(), requestTimeout)
		defer cancel()
		c.SetContext(ctx)
		return kube.Explain(run(c, args))
	}
	return c
}

// openCluster opens the cluster of a command, on one of its nodes.
type openCluster func(context.Context) (*host.Host, client.Client, error)

// administrator returns this machine, and a client with full access to its cluster.
func administrator(ctx context.Context, kubeconfig string) (*host.Host, client.Client, error) {
	cfg := config.Default()
	cfg.Run.Kubeconfig = kubeconfig
	h, err := newHost(ctx, &cfg, "")
	if err != nil {
		return nil, nil, err
	}
	k, err := h.Kube(ctx)
	if err != nil {
		return nil, nil, noCluster(err)
	}
	return h, k, nil
}

// createdToken is the output of "token create -o json", with the secret.
type createdToken struct {
	Token       string    `json:"token"`
	Expires     time.Time `json:"expires,omitzero"`
	JoinCommand string    `json:"joinCommand,omitempty"`
	// CertificateKey is for the join command of a control-plane node.
	CertificateKey string `json:"certificateKey,omitempty"`
	// DryRun is set if nothing was created. Then the token is empty unless the user gave one.
	DryRun bool `json:"dryRun,omitempty"`
}

// tokenFlags are the flags of "token create".
type tokenFlags struct {
	kubernetes.TokenOptions
	roles                                     kubernetes.JoinRoles
	printJoin, download, controlPlane, dryRun bool
	output                                    *ui.Choice
}

// joins reports whether the output has a join command.
func (f tokenFlags) joins() bool { return f.printJoin || f.download || f.output.String() != "text" }

func newTokenCreate(a *app, open openCluster) *cobra.Command {
	var f tokenFlags
	c := &cobra.Command{
		Use:   "create [TOKEN]",
		Short: "Create a join token",
		Long:  "Creates a join token, a random one by default, and prints it. With --print-join-command, it prints the complete join command instead.",
		Example: `  ocadm token create --print-join-command

  # for a machine without ocadm
  ocadm token create --print-join-command --with-download

  # for a node that runs the cloud's services but no VMs
  ocadm token create --print-join-command --enable-host-agent=false --as-onecloud-controller

  # for another control-plane node
  ocadm token create --print-join-command --control-plane

  # a token for two hours, for a script
  ocadm token create --ttl 2h -o json`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			f.Token = strings.Join(args, "")
			return a.createToken(c, open, f)
		},
	}
	fs := c.Flags()
	fs.DurationVar(&f.TTL, "ttl", 24*time.Hour, "lifetime of the token; 0 never expires")
	fs.StringVar(&f.Description, "description", "", "description of the token")
	fs.StringSliceVar(&f.Usages, "usages", nil, "usages of the token: signing, authentication (default: both)")
	fs.StringSliceVar(&f.Groups, "groups", nil, "groups of the token (default: the group of joining nodes)")
	fs.BoolVar(&f.printJoin, "print-join-command", false, "print the complete join command")
	fs.BoolVar(&f.download, "with-download", false, "print a join command that first downloads ocadm from the depot")
	fs.BoolVar(&f.roles.Host, "enable-host-agent", true, "join command for a node that runs virtual machines")
	fs.BoolVar(&f.roles.Controller, "as-onecloud-controller", false, "join command for a node that runs the cloud's services")
	fs.BoolVar(&f.controlPlane, "control-plane", false,
		"join command for a control-plane node; stores the certificate authorities in the cluster, encrypted, for two hours, and invalidates earlier commands of this kind")
	fs.BoolVar(&f.dryRun, "dry-run", false, "create nothing")
	f.output = addOutput(c, "text")
	return c
}

func (a *app) createToken(c *cobra.Command, open openCluster, f tokenFlags) error {
	if f.TTL < 0 {
		return misused(fmt.Sprintf("--ttl %s is negative", f.TTL), "for example --ttl 2h; 0 never expires")
	}
	f.Forever = c.Flags().Changed("ttl") && f.TTL == 0
	t, err := kubernetes.PlanToken(f.TokenOptions, time.Now())
	if err != nil {
		return err
	}
	if (f.printJoin || f.download) && !t.Usable() {
		return misused("a machine cannot join with this token", "leave out --usages, or --print-join-command and --with-download")
	}
	h, client, err := open(c.Context())
	if err != nil {
		return err
	}
	if f.download && !depotphase.Has(h) {
		return noDepot(errors.New("--with-download has nothing to download from; the cluster may have been created with --depot none"))
	}
	if f.controlPlane {
		if err := f.forControlPlane(c, h); err != nil {
			return err
		}
	}
	if f.dryRun {
		return a.print(f.output, createdToken{Token: f.Token, Expires: t.Expires, DryRun: true}, func(p *page) { p.line("would create a token") })
	}
	if f.download { // before there is a token that would not be printed
		if err := a.sayArchitectures(c.Context(), h); err != nil {
			return err
		}
	}
	f.Token = t.String()
	made, err := makeToken(c.Context(), h, client, f)
	if err != nil {
		return err
	}
	return a.print(f.output, made, func(p *page) {
		if f.printJoin || f.download {
			p.line("%s", made.JoinCommand)
		} else {
			p.line("%s", made.Token)
		}
	})
}

// forControlPlane makes the join command that of a control-plane node, which runs virtual machines only if requested.
func (f *tokenFlags) forControlPlane(c *cobra.Command, h *host.Host) error {
	if !f.joins() {
		return misused("--control-plane needs --print-join-command", "ocadm token create --print-join-command --control-plane")
	}
	f.roles.Host = f.roles.Host && c.Flags().Changed("enable-host-agent")
	f.roles.Controller = false // every control-plane node is one
	completeHere(h)
	if f.dryRun {
		client, err := h.Kube(c.Context())
		if err != nil {
			return noCluster(err)
		}
		return kubernetes.NeedEndpoint(c.Context(), client)
	}
	key, err := kubernetes.UploadAuthorities(c.Context(), h)
	f.roles.CertificateKey = key
	return err
}

// sayArchitectures reports the architectures for which the depot has ocadm.
func (a *app) sayArchitectures(ctx context.Context, h *host.Host) error {
	s, err := depotphase.Open(h)
	if err != nil {
		return err
	}
	archs, err := s.FileArchitectures(ctx, depotphase.ProgramPath)
	if err == nil && len(archs) > 0 {
		fmt.Fprintf(a.Err, "The depot has ocadm for %s; add another architecture with: ocadm depot add FILE\n", strings.Join(archs, " and "))
	}
	return err
}

// makeToken creates a token and, if wanted, the join command. The command comes first, so that no token is left over if it fails.
func makeToken(ctx context.Context, h *host.Host, c client.Client, f tokenFlags) (createdToken, error) {
	made := createdToken{CertificateKey: f.roles.CertificateKey}
	var err error
	if f.joins() {
		made.JoinCommand, err = kubernetes.JoinCommandFor(ctx, h, f.Token, f.roles)
		if err == nil && f.download {
			made.JoinCommand, err = kubernetes.DownloadCommand(ctx, h, f.Token, made.JoinCommand)
		}
		if err != nil {
			return made, noCluster(err)
		}
	}
	t, err := kubernetes.CreateToken(ctx, c, f.TokenOptions, time.Now())
	made.Token, made.Expires = t.String(), t.Expires
	return made, err
}

func newTokenList(a *app, open openCluster) *cobra.Command {
	return shows(a, &cobra.Command{
		Use: "list", Short: "List the join tokens", Long: "Lists the join tokens of the cluster without their secrets.",
		Example: "  ocadm token list\n  ocadm token list -o json",
	}, "table", func(c *cobra.Command, _ []string) ([]kubernetes.Token, error) {
		_, client, err := open(c.Context())
		if err != nil {
			return nil, err
		}
		return kubernetes.ListTokens(c.Context(), client)
	}, func(p *page, list []kubernetes.Token) {
		table(p, []string{"ID", "EXPIRES", "USAGES", "DESCRIPTION"}, list, func(t kubernetes.Token) []string {
			return []string{t.ID, expiry(t.Expires, time.Now()), strings.Join(t.Usages, ","), t.Description}
		})
	})
}

func expiry(t, now time.Time) string {
	if t.IsZero() {
		return "never"
	}
	if t.Before(now) {
		return "expired " + t.UTC().Format(time.RFC3339)
	}
	return t.UTC().Format(time.RFC3339) + " (" + t.Sub(now).Round(time.Minute).String() + ")"
}

func newTokenDelete(a *app, open openCluster) *cobra.Command {
	return &cobra.Command{
		Use: "delete TOKEN...", Short: "Delete join tokens", Long: "Deletes join tokens by their ID or in full. Nodes that have joined stay.",
		Example: "  ocadm token delete abcdef\n  ocadm token delete abcdef.0123456789abcdef",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			_, client, err := open(c.Context())
			if err != nil {
				return err
			}
			for _, t := range args {
				if err := kubernetes.DeleteToken(c.Context(), client, t); err != nil {
					return err
				}
				id, _, _ := strings.Cut(t, ".")
				fmt.Fprintf(a.Err, "deleted token %s\n", id)
			}
			return nil
		},
	}
}

func newTokenGenerate(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "generate", Short: "Print a random token", Long: "Prints a random token for init or token create. It contacts no cluster.",
		Example: "  ocadm token generate\n  ocadm token create $(ocadm token generate)",
		RunE: func(*cobra.Command, []string) error {
			t, err := kubernetes.GenerateToken()
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(a.Out, t)
			return err
		},
	}
}

// noCluster returns the finding for a cluster that cannot be used: that of the API server if there is one. An answer of the API server, and Ctrl-C, stay
// what they are.
func noCluster(err error) error {
	if err = kube.Explain(err); len(finding.Of(err)) > 0 || apierrors.ReasonForError(err) != "" || errors.Is(err, context.Canceled) {
		return err
	}
	return finding.Errorf("OCA-4206", "No cluster is accessible", "run the command as root on a control-plane node, or give --kubeconfig FILE", "%w", err)
}
