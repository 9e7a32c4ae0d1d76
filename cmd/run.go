// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	depotphase "yunion.io/x/ocadm/phases/depot"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/preflight"
)

// The files of a run on the machine.
const (
	journalFile = host.JournalFile
	lockFile    = host.LockFile
	logDir      = "/var/log/ocadm"
)

type plan struct {
	name    string
	command config.For
	phases  []host.Phase
	// prepare runs before the first phase, after the machine's facts are gathered; may be nil.
	prepare func(context.Context, *app, *host.Host) error
	// rollback undoes a failed run as a whole; nil undoes it phase by phase.
	rollback []host.Phase
	// finish prints data and the next steps; may be nil.
	finish func(context.Context, *app, *host.Host, runFlags) error
}

type runFlags struct {
	config, rootfs string
	output         *ui.Choice
	quiet          bool
	run            config.Run
	only           []string
	// anyRelease is set from the only phase.
	anyRelease bool
}

func addRunFlags(fs *pflag.FlagSet, f *runFlags) {
	f.output = ui.NewFormat("text", "jsonl")
	f.run.OnFailure = string(workflow.Keep)
	addConfig(fs, &f.config)
	fs.BoolVar(&f.run.DryRun, "dry-run", false, "show what would be done; change nothing on the machine, in the cluster or in the database")
	fs.StringSliceVar(&f.run.SkipPhases, "skip-phases", nil, "phases to skip; the name of a parent covers its children")
	fs.StringSliceVar(&f.run.IgnorePreflightErrors, "ignore-preflight-errors", nil, "checks whose errors become warnings; \"all\" means every check")
	fs.Var(ui.NewChoice(&f.run.OnFailure, string(workflow.Keep), string(workflow.Rollback)), "on-failure",
		"after a failure, keep what was done so that the next run continues, or roll it back")
	fs.VarP(f.output, "output", "o", "output format: text, or one event per line on standard output")
	fs.BoolVarP(&f.quiet, "quiet", "q", false, "print errors only")
	fs.StringVar(&f.rootfs, "rootfs", "", "directory to use as the root of the machine; programs are not run")
	hide(fs, "rootfs")
}

// addYes adds the flag that confirms in advance.
func addYes(fs *pflag.FlagSet, yes *bool) {
	fs.BoolVarP(yes, "yes", "y", false, "do not ask for confirmation")
}

// addForce adds the flag that accepts changes which may cut the machine off.
func addForce(fs *pflag.FlagSet, f *runFlags) {
	fs.BoolVar(&f.run.Force, "force", false, "accept networks of the host agent that may disconnect this machine, such as an address from DHCP")
}

// confirm asks before the first change.
func (a *app) confirm(c *cobra.Command, yes bool, kept string) func(question string) error {
	return func(question string) error {
		if yes {
			return nil
		}
		return a.ask(c.Context(), question+". Continue? [y/N]", "yes", kept, c.CommandPath()+" --yes")
	}
}

// ask fails unless the user types the word. kept says what was then not done, remedy how to go on.
func (a *app) ask(ctx context.Context, question, word, kept, remedy string) error {
	sure, err := ui.Confirm(ctx, a.In, a.Err, question, word, "--yes")
	if err == nil && !sure {
		err = finding.New("OCA-0406", kept, "not confirmed", remedy)
	}
	return err
}

// runSettings returns the settings of a run. A join also finds its endpoint.
func (a *app) runSettings(c *cobra.Command, command config.For, f *runFlags) (*config.Config, error) {
	cfg, err := a.loadSettings(c, command, f.config)
	if err != nil {
		return nil, err
	}
	if command == config.ForJoin {
		cfg.Join.Endpoint = cmp.Or(c.Flags().Arg(0), cfg.Join.Endpoint)
		if cfg.Join.Endpoint == "" && cfg.Join.DiscoveryFile != "" {
			if cfg.Join.Endpoint, err = kubernetes.DiscoveredEndpoint(c.Context(), cfg.Join.DiscoveryFile); err != nil {
				return nil, err
			}
		}
	}
	f.run.Kubeconfig = cfg.Run.Kubeconfig
	cfg.Run = f.run
	cfg.Run.Phase = strings.Join(f.only, ",")
	return cfg, nil
}

func (a *app) runPlan(c *cobra.Command, p plan, f runFlags) (err error) {
	ctx := c.Context()
	began := false
	defer func() {
		if err != nil && !began {
			a.refused(f, p.name, err)
		}
	}()
	cfg, err := a.runSettings(c, p.command, &f)
	if err != nil {
		return err
	}
	h, unlock, err := a.lockedMachine(ctx, cfg, p.command, f.rootfs)
	if err != nil {
		return err
	}
	defer unlock()
	defer outliveReaders()()
	defer func() { err = errors.Join(err, closeBundle(h)) }()
	if p.command != config.ForReset && !f.anyRelease && (len(f.only) > 0 || slices.Contains(cfg.Run.SkipPhases, "preflight")) { // otherwise, preflight checks
		if err := mayChange(h, p.name); err != nil {
			return err
		}
	}
	opts := workflow.Options{DryRun: cfg.Run.DryRun, Skip: cfg.Run.SkipPhases, Only: f.only, OnFailure: workflow.OnFailure(cfg.Run.OnFailure),
		Inputs: config.Inputs(cfg, p.command)}
	journal := workflow.NewJournal(h.Files.Path(journalFile))
	journal.Redact = a.redact.Text
	log := ui.Quiet()
	if !cfg.Run.DryRun {
		defer a.openLog(h, p.name, &log)()
	}
	if p.prepare != nil {
		if err := p.prepare(ctx, a, h); err != nil {
			return err
		}
	}
	renderer := a.renderer(f)
	if err := note(renderer, p.name, journal, &opts); err != nil {
		return err
	}
	if err := keepCompletedNode(ctx, renderer, p.name, journal, h, &opts); err != nil {
		return err
	}
	runner := workflow.Runner[*host.Host]{Plan: p.name, Phases: p.phases, Journal: journal, Sink: a.redacted(ui.Tee(renderer, log))}
	opts.Stop = ctx
	ctx = Killed(ctx) // from here on the first interrupt only prevents new phases
	var back bool
	if p.rollback != nil && len(f.only)+len(cfg.Run.SkipPhases) == 0 {
		opts.UndoAll = func(ctx context.Context) (err error) {
			err = rollBack(ctx, h, p.rollback, runner.Sink)
			back = err == nil
			return err
		}
	}
	res, err := runner.Run(ctx, h, opts)
	began = res.Plan != ""
	if back { // the next run starts from the beginning
		err = errors.Join(err, removeOwn(h.Files.Path(journalFile)))
	}
	renderer.Close()
	if err != nil {
		return explainDisk(err)
	}
	a.summary(f, res)
	a.logFile = "" // only a failure names it
	if p.finish != nil && !cfg.Run.DryRun && len(f.only) == 0 {
		return p.finish(ctx, a, h, f)
	}
	return nil
}

// mayChange runs the checks that preflight makes before init and join, for runs without preflight.
func mayChange(h *host.Host, command string) error {
	err := kubernetes.OtherRelease(h)
	if err == nil {
		err = kubernetes.OtherVersion(h)
	}
	if err == nil && kubernetes.IsControlPlane(h) {
		err = kubernetes.NoRotation(h, "this "+command)
	}
	return err
}

// explainDisk returns a finding if a run failed because a file could not be written.
func explainDisk(err error) error {
	var what, code, remedy string
	switch {
	case len(finding.Of(err)) > 0:
		return err
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		what, code, remedy = "A disk is full", "OCA-1023", "free space or inodes on the file system that df -h or df -i shows as full, or raise the quota"
	case errors.Is(err, syscall.EROFS):
		what, code, remedy = "A file system is mounted read-only", "OCA-1024", "remount it writable; findmnt -O ro lists such file systems"
	default:
		return err
	}
	f := finding.New(code, what, err.Error(), remedy+"; then run the command again: it continues where it stopped").Wrap(err)
	if phase, ok := errors.AsType[*workflow.PhaseError](err); ok {
		f.Cause = phase.Err.Error()
		return &workflow.PhaseError{Plan: phase.Plan, Phase: phase.Phase, Err: f}
	}
	return f
}

// lockedMachine is like machine but, except for a dry run, locks the machine first: another run may change the facts and the ledger.
func (a *app) lockedMachine(ctx context.Context, cfg *config.Config, command config.For, rootfs string) (h *host.Host, unlock func(), err error) {
	root, err := rootOf(rootfs)
	if err != nil {
		return nil, nil, err
	}
	unlock = func() {}
	if !cfg.Run.DryRun {
		if unlock, err = workflow.Lock(filepath.Join("/", root, lockFile)); err != nil {
			return nil, nil, err
		}
	}
	if h, err = a.machine(ctx, cfg, command, root); err != nil {
		unlock()
		return nil, nil, err
	}
	return h, unlock, nil
}

// machine returns this machine, or the directory that replaces it, with its completed and validated configuration.
func (a *app) machine(ctx context.Context, cfg *config.Config, command config.For, rootfs string) (*host.Host, error) {
	h, err := newHost(ctx, cfg, rootfs)
	if err != nil {
		return nil, err
	}
	was := kubernetes.EarlierConfig(h)
	switch is := kubernetes.RegisteredAs(h); {
	case command == config.ForReset && is.Name != "" && cfg.Node.Name != "" && cfg.Node.Name != is.Name:
		return nil, otherNode(cfg.Node.Name, is.Name)
	case command == config.ForReset, command == config.ForJoin && again(cfg, h), command == config.ForInit && (was.Join || was.Endpoint != ""):
		asRegistered(cfg, is)
		cfg.Node.Offline = cfg.Node.Offline || !cfg.Gives("node.offline") && kubernetes.Offline(h)
	}
	if command == config.ForInit {
		was.Keep(cfg)
	}
	if command != config.ForReset {
		a.keepProxies(cfg, h)
	}
	complete(cfg, h.Facts, was.ProxyMode, kubernetes.NodeAddress(h))
	if err := config.Validate(cfg, command); err != nil {
		return nil, err
	}
	if err := useProxies(cfg); err != nil {
		return nil, err
	}
	if command == config.ForInit {
		preflight.KeepStored(ctx, h)
	}
	switch {
	case command == config.ForReset || cfg.Node.Bundle == "":
	case cfg.Node.BundleServed():
		if h.Depot, err = depotphase.ConnectBundle(ctx, h); err != nil {
			return nil, err
		}
	default:
		if h.Bundle, err = bundle.Open(ctx, cfg.Node.Bundle); err != nil {
			return nil, err
		}
		if err := checkSignature(h.Bundle, "--bundle-key", cfg.Node.BundleKey); err != nil {
			return nil, errors.Join(err, h.Bundle.Close())
		}
	}
	return h, nil
}

// complete fills in defaults. A node keeps the address that it has registered, unless the machine has lost it.
func complete(cfg *config.Config, facts host.Facts, earlierProxyMode string, registered netip.Addr) {
	m := config.Machine{Hostname: facts.Hostname, ProxyMode: kubernetes.AutoProxyMode(facts.Kernel, earlierProxyMode)}
	if _, _, kept := facts.With(registered); kept {
		m.Address = registered.String()
	} else if facts.Address.IsValid() {
		m.Address = facts.Address.String()
	}
	own, _ := netip.ParseAddr(cmp.Or(cfg.Node.IP, cfg.Node.AdvertiseAddress, m.Address)) // no interface has the invalid address
	if _, p, found := facts.With(own); found {
		m.Network = p.Masked().String()
	}
	config.Complete(cfg, m)
}

// again reports whether a phase of join runs on an existing node without a given control plane, and then sets the kubelet's.
func again(cfg *config.Config, h *host.Host) bool {
	if cfg.Run.Phase == "" || cfg.Join.Endpoint != "" || cfg.Join.DiscoveryFile != "" {
		return false
	}
	server, err := kubernetes.Server(h)
	if err != nil {
		return false // validation asks for it
	}
	cfg.Join.Endpoint = server
	return true
}

// asRegistered defaults to the settings of init or join for a command on a node: a node's name may differ from its machine's.
func asRegistered(cfg *config.Config, was kubernetes.Registered) {
	cfg.Node.Name = cmp.Or(cfg.Node.Name, was.Name)
	if was.CRISocket != "" && cfg.Node.CRISocket == config.Default().Node.CRISocket {
		cfg.Node.CRISocket = was.CRISocket
	}
}

// registeredHost returns this machine with its node name.
func registeredHost(ctx context.Context) (*host.Host, error) {
	cfg := config.Default()
	h, err := newHost(ctx, &cfg, "")
	if err == nil {
		asRegistered(&cfg, kubernetes.RegisteredAs(h))
	}
	return h, err
}

// completeHere fills in defaults from the machine, for a command without the settings of init or join.
func completeHere(h *host.Host) {
	asRegistered(h.Config, kubernetes.RegisteredAs(h))
	complete(h.Config, h.Facts, "", kubernetes.NodeAddress(h))
}

func newHost(ctx context.Context, cfg *config.Config, rootfs string) (*host.Host, error) {
	root, err := rootOf(rootfs)
	if err != nil {
		return nil, err
	}
	if root != "" {
		return host.Fake(ctx, root, cfg, &host.Recorder{})
	}
	return host.New(ctx, cfg)
}

// rootOf returns the directory that replaces the machine. "" means the machine itself, which only root may change.
func rootOf(rootfs string) (string, error) {
	if rootfs == "" {
		if uid := os.Geteuid(); uid != 0 {
			return "", preflight.NotRoot(uid)
		}
		return "", nil
	}
	root, err := filepath.Abs(rootfs)
	if err != nil {
		return "", fmt.Errorf("finding --rootfs: %w", err)
	}
	return root, nil
}

func closeBundle(h *host.Host) error {
	if h.Bundle == nil {
		return nil
	}
	return h.Bundle.Close()
}
