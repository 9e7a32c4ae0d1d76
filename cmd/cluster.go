// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/cloud"
	"yunion.io/x/ocadm/phases/config"
)

// newCluster groups the commands that work on the cloud as a whole.
func newCluster(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use:   "cluster",
		Short: "Create, inspect, update and delete the cloud, and log in to it",
		Long: "The cloud is the resource OnecloudCluster onecloud/default, which the operator reconciles. These commands read and write that\n" +
			"resource; kubectl edit oc changes everything else in it.\n\n" + settingsHelp,
		Example: "  ocadm cluster create --version v4.0.3\n  ocadm cluster status",
	}, newClusterCreate(a), newClusterStatus(a), newClusterUpdate(a), newClusterRollback(a), newClusterHistory(a), newClusterDiff(a),
		formerly(a, newOptionsList(a, "options COMPONENT"), "ocadm component options list"), newClusterRCAdmin(a), newClusterBackup(a),
		newClusterMoveDatabase(a), newClusterDatabase(a), newClusterStop(a), newClusterStart(a), newClusterDelete(a))
}

// settingsHelp is part of the help of commands that read settings.
const settingsHelp = "Flags that are also settings of init, such as --kubeconfig, are read from OCADM_* variables and the file of --config if they are\n" +
	"not given; see ocadm config."

type cloudFlags struct {
	kubeconfig, name, namespace string
	api                         apiFlags
	output                      *ui.Choice
	// wait is also true for commands that always wait and have no such flag.
	wait    bool
	timeout time.Duration
}

const (
	// waitTimeout is the default of --timeout: dozens of images may have to be pulled.
	waitTimeout = 30 * time.Minute
	// requestTimeout bounds a command that does not wait.
	requestTimeout = time.Minute
)

// add adds the flags to a command. settings holds the keys of flags that are also settings, in addition to those of every cloud command.
func (f *cloudFlags) add(a *app, c *cobra.Command, settings map[string]string, formats ...string) {
	fs := c.Flags()
	addKubeconfig(fs, &f.kubeconfig)
	f.api.add(fs)
	fs.StringVar(&f.name, "name", cluster.DefaultName, "name of the cloud")
	fs.StringVarP(&f.namespace, "namespace", "n", cluster.DefaultNamespace, "namespace of the cloud")
	if len(formats) > 0 {
		f.output = ui.NewFormat(formats...)
		fs.VarP(f.output, "output", "o", "output format")
	}
	keys := map[string]string{"kubeconfig": "cluster.kubeconfig", "name": "cloud.name", "namespace": "cloud.namespace"}
	maps.Copy(keys, settings)
	a.readsSettings(c, keys)
}

func addKubeconfig(fs *pflag.FlagSet, to *string) {
	fs.StringVar(to, "kubeconfig", "", "kubeconfig file (default $KUBECONFIG, "+kube.AdminKubeconfig+", ~/.kube/config)")
}

func (f *cloudFlags) addWait(fs *pflag.FlagSet, wait bool, usage string) {
	fs.BoolVar(&f.wait, "wait", wait, usage)
	fs.DurationVar(&f.timeout, "timeout", waitTimeout, "how long to wait")
}

func (f *cloudFlags) key() client.ObjectKey { return f.named(f.name) }

func (f *cloudFlags) named(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: f.namespace, Name: name}
}

// withCloud opens a client, applies the timeout, and explains an API server that does not answer.
func (f *cloudFlags) withCloud(c *cobra.Command, do func(context.Context, client.WithWatch) error) error {
	if f.wait {
		return f.within(c.Context(), f.timeout, do)
	}
	return with(c.Context(), f.open, requestTimeout, do)
}

// within is like withCloud, with the timeout of --timeout.
func (f *cloudFlags) within(ctx context.Context, timeout time.Duration, do func(context.Context, client.WithWatch) error) error {
	return with(ctx, f.open, timeout, func(ctx context.Context, k client.WithWatch) error {
		err := do(ctx, k)
		if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("--timeout %s is over: %w", timeout, err)
		}
		return err
	})
}

// open returns the client that the flags and the environment select: for the REST API, or for a kubeconfig.
func (f *cloudFlags) open() (client.WithWatch, error) {
	over, err := f.overAPI()
	if err != nil {
		return nil, err
	}
	if over {
		return f.api.open(os.Getenv)
	}
	return kube.Open(f.kubeconfig, os.Getenv)
}

func withKube(ctx context.Context, kubeconfig string, do func(context.Context, client.WithWatch) error) error {
	return with(ctx, func() (client.WithWatch, error) { return kube.Open(kubeconfig, os.Getenv) }, requestTimeout, do)
}

func with(ctx context.Context, open func() (client.WithWatch, error), timeout time.Duration, do func(context.Context, client.WithWatch) error) error {
	if timeout <= 0 {
		return misused(fmt.Sprintf("--timeout %s is not positive", timeout), "for example --timeout 30m")
	}
	k, err := open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return kube.Explain(do(ctx, k))
}

// story reports progress on standard error.
type story struct{ ui.Renderer }

func (a *app) story() story {
	return story{ui.New(a.redact.Writer(a.Err), ui.Options{Verbose: a.verbosity > 0, Color: os.Getenv("NO_COLOR") == ""})}
}

func (s story) report(e workflow.Event) {
	e.Time, e.Phase = time.Now(), "cloud"
	s.Event(e)
}

func (s story) Info(format string, args ...any) {
	s.report(workflow.Event{Type: workflow.PhaseInfo, Message: fmt.Sprintf(format, args...)})
}

func (story) Alive()                               {}
func (s story) Changed(format string, args ...any) { s.Info(format, args...) }
func (s story) Output(line string)                 { s.Info("%s", line) }

func (s story) Waiting(what, why string) {
	if why == "" {
		return
	}
	s.report(workflow.Event{Type: workflow.PhaseWaiting, Message: what, Why: why})
}

func (s story) Progress(done, total int64, unit string) {
	s.report(workflow.Event{Type: workflow.PhaseProgress, Done: done, Total: total, Unit: unit})
}

// waitForCloud waits until the cloud is ready, reporting progress, and then prints its status.
func (a *app) waitForCloud(ctx context.Context, k client.WithWatch, f *cloudFlags) error {
	return a.waitFor(ctx, k, f, func(report func(cluster.Status)) error { return cluster.Wait(ctx, k, f.key(), report) })
}

// waitFor reports the progress of a wait for the cloud, and then prints its status.
func (a *app) waitFor(ctx context.Context, k client.WithWatch, f *cloudFlags, wait func(report func(cluster.Status)) error) error {
	s := a.story()
	err := wait(cloud.Report(s))
	s.Close()
	if err != nil {
		return err
	}
	return a.printStatus(ctx, k, f)
}

// outcome is the output of commands that change a cloud, or another object in its namespace.
type outcome struct {
	Name      string   `json:"name"`
	Namespace string   `json:"namespace"`
	Action    string   `json:"action"`
	Changes   []string `json:"changes,omitempty"`

	kind, note string
}

func (f *cloudFlags) outcome(action string, changes ...string) outcome {
	return outcome{Name: f.name, Namespace: f.namespace, Action: action, Changes: changes, kind: "Cluster"}
}

// changed returns the outcome of a command for an action, or "unchanged" if nothing changed.
func (f *cloudFlags) changed(action string, changes []string) outcome {
	if len(changes) == 0 {
		action = "unchanged"
	}
	return f.outcome(action, changes...)
}

// of makes it the outcome for another object in the namespace.
func (o outcome) of(kind, name string) outcome {
	o.kind, o.Name = kind, name
	return o
}

func printOutcome(p *page, o outcome) {
	p.lines("", o.Changes...)
	p.line("%s %s %s", o.kind, o.Name, o.Action)
	if o.note != "" {
		p.line("Note: %s", o.note)
	}
}

func (a *app) printOutcome(f *cloudFlags, o outcome) error {
	return a.print(f.output, o, func(p *page) { printOutcome(p, o) })
}

// addEdition adds --edition and its former names.
func addEdition(fs *pflag.FlagSet, edition *string, usage string) {
	fs.Var(ui.NewChoice(edition, config.Find("cloud.edition").Choices...), "edition", usage)
	for name, value := range map[string]string{"use-ee": "ee", "use-ce": "ce"} {
		fs.BoolFunc(name, "the former name of --edition "+value, func(string) error {
			return fs.Set("edition", value)
		})
		hide(fs, name)
	}
}

func misused(cause, remedy string) error {
	return finding.Errorf("OCA-0401", wrongUsage, remedy, "%s", cause)
}
