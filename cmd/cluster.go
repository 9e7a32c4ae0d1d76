// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/phases/cloud"
	"yunion.io/x/ocadm/phases/workflow"
)

// newCluster groups the verbs on a cloud.
func newCluster(a *app) *cobra.Command {
	c := &cobra.Command{
		Use:   "cluster",
		Short: "Create, look at, update, delete and log in to the cloud",
		Long: "The cloud is the resource OnecloudCluster onecloud/default; the operator builds what it describes.\n" +
			"These commands write and read that resource. kubectl edit oc changes whatever they do not.",
		Example: "  ocadm cluster create --version v4.0.3\n  ocadm cluster status",
		Args:    cobra.ArbitraryArgs,
		RunE:    groupRunE,
	}
	c.AddCommand(newClusterCreate(a), newClusterStatus(a), newClusterUpdate(a), newClusterOptions(a), newClusterRCAdmin(a), newClusterDelete(a))
	return c
}

// cloudFlags are what all commands on a cloud share.
type cloudFlags struct {
	kubeconfig, name, namespace string
	output                      *ui.Format
	wait                        bool
	timeout                     time.Duration
}

const (
	// waitTimeout is how long a command waits for a cloud unless told otherwise: dozens of images may have to be pulled.
	waitTimeout = 30 * time.Minute
	// requestTimeout bounds a command that waits for nothing.
	requestTimeout = time.Minute
)

func (f *cloudFlags) add(fs *pflag.FlagSet, formats ...string) {
	addKubeconfig(fs, &f.kubeconfig)
	fs.StringVar(&f.name, "name", cluster.DefaultName, "name of the cloud")
	fs.StringVarP(&f.namespace, "namespace", "n", cluster.DefaultNamespace, "namespace of the cloud")
	f.output = ui.NewFormat(formats...)
	fs.VarP(f.output, "output", "o", "how the result is printed")
}

func addKubeconfig(fs *pflag.FlagSet, to *string) {
	fs.StringVar(to, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG, "+kube.AdminKubeconfig+", ~/.kube/config)")
}

func (f *cloudFlags) addWait(fs *pflag.FlagSet, wait bool, usage string) {
	fs.BoolVar(&f.wait, "wait", wait, usage)
	fs.DurationVar(&f.timeout, "timeout", waitTimeout, "how long to wait")
}

func (f *cloudFlags) key() client.ObjectKey {
	return client.ObjectKey{Namespace: f.namespace, Name: f.name}
}

// withCloud opens a client, bounds the time, and explains an API server that does not answer.
func (f *cloudFlags) withCloud(c *cobra.Command, do func(context.Context, client.WithWatch) error) error {
	timeout := requestTimeout
	if f.wait {
		timeout = f.timeout
	}
	return withKube(c.Context(), f.kubeconfig, timeout, do)
}

func withKube(ctx context.Context, kubeconfig string, timeout time.Duration, do func(context.Context, client.WithWatch) error) error {
	if timeout <= 0 {
		return finding.Finding{Code: "OCA-0401", Severity: finding.Error, What: "The command line is not understood",
			Cause: fmt.Sprintf("--timeout %s is no time to wait", timeout), Remedy: "for example --timeout 30m"}
	}
	k, err := kube.Open(kubeconfig, os.Getenv)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return kube.Explain(do(ctx, k))
}

// story tells on standard error what is waited for.
type story struct{ ui.Renderer }

func (a *app) story() story {
	return story{ui.New(a.redact.Writer(a.Err), ui.Options{Verbose: a.verbosity > 0, Color: os.Getenv("NO_COLOR") == ""})}
}

func (s story) tell(e workflow.Event) {
	e.Time, e.Phase = time.Now(), "cloud"
	s.Event(e)
}

func (s story) Info(format string, args ...any) {
	s.tell(workflow.Event{Type: workflow.PhaseInfo, Message: fmt.Sprintf(format, args...)})
}

func (s story) Changed(format string, args ...any) { s.Info(format, args...) }
func (s story) Output(line string)                 { s.Info("%s", line) }

func (s story) Waiting(what, why string) {
	s.tell(workflow.Event{Type: workflow.PhaseWaiting, Message: what, Why: why})
}

func (s story) Progress(done, total int64, unit string) {
	s.tell(workflow.Event{Type: workflow.PhaseProgress, Done: done, Total: total, Unit: unit})
}

// waitForCloud waits until the cloud is ready, telling the story, and then prints its status.
func (a *app) waitForCloud(ctx context.Context, k client.WithWatch, f *cloudFlags) error {
	s := a.story()
	err := cluster.Wait(ctx, k, f.key(), cloud.Report(s))
	s.Close()
	if err != nil {
		return err
	}
	return a.printStatus(ctx, k, f)
}

func (a *app) printStatus(ctx context.Context, k client.Client, f *cloudFlags) error {
	s, err := cluster.Get(ctx, k, f.key())
	if err != nil {
		return err
	}
	return ui.Print(a.Out, f.output.String(), s, func(w io.Writer) error { return statusTable(w, s, time.Now()) })
}

func statusTable(w io.Writer, s cluster.Status, now time.Time) error {
	state := "not ready: " + s.Message
	if s.Ready {
		state = "ready"
	}
	available, all := s.Counts()
	idle, nodes := "", ""
	if n := s.Idle(); n > 0 {
		idle = fmt.Sprintf(", %d idle", n)
	}
	if s.NodesNotReady != "" {
		nodes = s.NodesNotReady + "\n"
	}
	if _, err := fmt.Fprintf(w, "cloud %s/%s, version %s: %s\n%d of %d components are available%s\n%s%s\n",
		s.Namespace, s.Name, orDash(s.Version), state, available, all, idle, nodes, certificates(s.Certificates)); err != nil {
		return err
	}
	var rows [][]string
	for _, c := range s.Components {
		since := ""
		if !c.Since.IsZero() {
			since = now.Sub(c.Since.Time).Round(time.Second).String()
		}
		why := cluster.Why(c)
		if c.State == "Available" {
			why = ""
		}
		rows = append(rows, []string{c.Name, string(c.State), orDash(c.Version), orDash(since), why})
	}
	if len(rows) == 0 {
		return nil
	}
	return ui.Table(w, []string{"COMPONENT", "STATE", "VERSION", "SINCE", "WHY"}, rows)
}

// certificates is a line about them, with its end; empty where the operator has not said anything.
func certificates(c v1alpha1.CertificatesStatus) string {
	if c.NotAfter.IsZero() {
		return ""
	}
	line := "certificates end " + c.NotAfter.UTC().Format(time.DateOnly) + ", their CA " + c.CANotAfter.UTC().Format(time.DateOnly)
	switch {
	case c.Message != "":
		line += ": " + c.Message
	case c.Supplied:
		line += "; you supply them"
	case !c.RenewAt.IsZero():
		line += "; renewed " + c.RenewAt.UTC().Format(time.DateOnly)
	}
	return line + "\n"
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// created is what create, update and delete print for scripts.
type created struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Action    string   `json:"action"`
	Changes   []string `json:"changes,omitempty"`
}

func (a *app) printResult(f *cloudFlags, action string, changes ...string) error {
	r := created{Name: f.name, Namespace: f.namespace, Action: action, Changes: changes}
	return ui.Print(a.Out, f.output.String(), r, func(w io.Writer) error {
		for _, c := range changes {
			if _, err := fmt.Fprintln(w, c); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintf(w, "Cluster %s %s\n", f.name, action)
		return err
	})
}

// edition reads --edition and the flags of long ago.
func edition(fs *pflag.FlagSet) (string, error) {
	e, err := fs.GetString("edition")
	if err != nil {
		return "", err
	}
	for flag, value := range map[string]string{"use-ee": "ee", "use-ce": "ce"} {
		on, err := fs.GetBool(flag)
		if err != nil || !on {
			continue // create has no --use-ce
		}
		if e != "" && e != value {
			return "", misused("the edition is given twice: "+e+" and --"+flag, "give --edition alone")
		}
		e = value
	}
	if !cluster.ValidEdition(e) {
		return "", misused(fmt.Sprintf("there is no edition %q", e), "--edition is one of "+strings.Join(cluster.Editions(), ", "))
	}
	return e, nil
}

func misused(cause, remedy string) error {
	return finding.Finding{Code: "OCA-0401", Severity: finding.Error, What: "The command line is not understood", Cause: cause, Remedy: remedy,
		Err: errors.New(cause)}
}
