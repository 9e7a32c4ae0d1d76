// SPDX-License-Identifier: Apache-2.0

// Package cmd is the command line: it parses, builds options, calls a package and prints. Settings become plain structs here; what
// the work is, other packages know.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/nearest"
	"yunion.io/x/ocadm/internal/ui"
)

const program = "ocadm"

// Streams are where a command reads and writes: data goes to Out, the story to Err.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// app is what the commands of one invocation share.
type app struct {
	Streams
	// redact takes secrets out of logs, the journal and events.
	redact *ui.Redactor
	// verbosity is -v: 0 story, 1 and more logs on standard error, too.
	verbosity int
	// logFile is where the log of this run is, for the message of a failure.
	logFile string
}

// Help groups.
const (
	groupInstall = "install"
	groupCloud   = "cloud"
	groupTools   = "tools"
)

// New is the whole tree of commands. A new command is a file and a line in the list.
func New(s Streams) *cobra.Command { return newRoot(newApp(s)) }

func newApp(s Streams) *app { return &app{Streams: s, redact: &ui.Redactor{}} }

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   program,
		Short: "Install Kubernetes and a OneCloud cloud on it",
		Long: "ocadm turns fresh Linux machines into a Kubernetes cluster and runs a OneCloud cloud on it.\n" +
			"What it does is a list of phases; a command that was cut off goes on where it stopped when it is repeated.",
		Example: `  # one machine with everything, database included
  ocadm init --onecloud-version v4.0.3

  # with a database server of your own
  ocadm init --mysql-host 10.0.0.5 --mysql-user root --mysql-password-file /root/mysql

  # see what it would do
  ocadm init --dry-run

  # let another machine run virtual machines: run there what this prints
  ocadm token create --print-join-command

  # what does this code mean?
  ocadm explain OCA-6002`,
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.ArbitraryArgs,
		RunE: groupRunE,
	}
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(flagError)
	root.SetUsageFunc(showUsage)
	root.PersistentFlags().IntVarP(&a.verbosity, "v", "v", 0, "how much is told on standard error: 0 the story, 1 what changes, 4 everything")
	root.AddGroup(&cobra.Group{ID: groupInstall, Title: "Install:"}, &cobra.Group{ID: groupCloud, Title: "The cloud:"},
		&cobra.Group{ID: groupTools, Title: "Tools:"})
	root.SetHelpCommandGroupID(groupTools)
	root.CompletionOptions.DisableDefaultCmd = true // newCompletion is ours
	for _, group := range []struct {
		id       string
		commands []*cobra.Command
	}{
		{groupInstall, []*cobra.Command{
			newPreflight(a), newInit(a), newJoin(a), newReset(a), newToken(a),
		}},
		{groupCloud, []*cobra.Command{
			newCluster(a), newComponent(a), newNode(a), newExecutor(a), newOperatorCommand(),
		}},
		{groupTools, []*cobra.Command{
			newBundle(a), newConfig(a), newExplain(a), newVersion(a), newCompletion(),
		}},
		{"", []*cobra.Command{newKubeadm(a)}},
	} {
		for _, c := range group.commands {
			c.GroupID = group.id
			root.AddCommand(c)
		}
	}
	return root
}

// groupRunE is for commands that only hold others: without an argument they help, an unknown one is an error.
func groupRunE(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	var names []string
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
	}
	f := finding.Finding{Code: "OCA-0403", Severity: finding.Error, What: fmt.Sprintf("%s has no command %q", c.CommandPath(), args[0]),
		Remedy: c.CommandPath() + " --help"}
	if guess, ok := nearest.To(args[0], names); ok {
		f.Remedy = c.CommandPath() + " " + guess
	}
	return f
}

func flagError(c *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	f := finding.Finding{Code: "OCA-0401", Severity: finding.Error, What: "The command line is not understood", Cause: err.Error(),
		Remedy: c.CommandPath() + " --help", Err: err}
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var names []string
		c.Flags().VisitAll(func(fl *pflag.Flag) {
			if !fl.Hidden {
				names = append(names, fl.Name)
			}
		})
		f.Cause = fmt.Sprintf("%s has no flag --%s", c.CommandPath(), unknown.GetSpecifiedName())
		if guess, ok := nearest.To(unknown.GetSpecifiedName(), names); ok {
			f.Remedy = fmt.Sprintf("did you mean --%s? %s --help lists all", guess, c.CommandPath())
		}
	}
	return f
}

// arguments makes an error about positional arguments one of usage.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return finding.Finding{Code: "OCA-0401", Severity: finding.Error, What: "The command line is not understood", Cause: err.Error(),
				Remedy: c.UseLine(), Err: err}
		}
		return nil
	}
}

// usageError makes what cobra itself finds wrong with a command line a finding; it has no types for that.
func usageError(err error) error {
	if err == nil || len(finding.Of(err)) > 0 {
		return err
	}
	for _, prefix := range []string{"unknown command ", "required flag(s) ", "accepts ", "requires at least ", "if any flags in the group "} {
		if strings.HasPrefix(err.Error(), prefix) {
			return finding.Finding{Code: "OCA-0401", Severity: finding.Error, What: "The command line is not understood", Cause: err.Error(),
				Remedy: "--help after the command lists its flags", Err: err}
		}
	}
	return err
}

// Execute runs a command line and returns the exit status.
func Execute(ctx context.Context, s Streams, args []string) int {
	a := newApp(s)
	root := newRoot(a)
	root.SetArgs(args)
	err := usageError(root.ExecuteContext(ctx))
	if err == nil {
		return finding.ExitOK
	}
	var told *toldError
	if !errors.As(err, &told) {
		ui.Error(a.redact.Writer(s.Err), program, err)
	}
	if a.logFile != "" {
		fmt.Fprintf(s.Err, "%s: the whole log is in %s\n", program, a.logFile)
	}
	return finding.ExitStatus(err)
}

// Fail shows an error that came before any command and returns the exit status.
func Fail(w io.Writer, err error) int {
	ui.Error(w, program, err)
	return finding.ExitStatus(err)
}

// Interrupted is why a run ends that somebody interrupted.
func Interrupted(sig os.Signal) error { return interrupted{sig} }

type interrupted struct{ sig os.Signal }

func (i interrupted) Error() string {
	return "stopped by a signal (" + i.sig.String() + "); repeat the command to go on"
}

func (interrupted) Unwrap() error { return context.Canceled }

// toldError is an error that has been shown already.
type toldError struct{ error }

func (e *toldError) Unwrap() error { return e.error }

// indent puts two spaces before each line.
func indent(s string) string {
	return "  " + strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ")
}
