// SPDX-License-Identifier: Apache-2.0

// Package cmd is the command line: it parses flags, builds options, calls a package and prints the result. Settings become plain structs
// here. Other packages do the work.
package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/nearest"
	"yunion.io/x/ocadm/internal/ui"
)

const program = "ocadm"

// Streams are the streams of a command: data goes to Out, progress and errors to Err.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// app holds what the commands of one invocation share.
type app struct {
	Streams
	// events is Out for the events of a run or an operation, which continues even if they cannot be written.
	events *events
	// redact removes secrets from logs, the journal and events.
	redact *ui.Redactor
	// verbosity is -v: 0 shows only progress, 1 and more also logs.
	verbosity int
	// logFile is the log of this run, to name in error messages.
	logFile string
}

const (
	groupInstall = "install"
	groupCloud   = "cloud"
	groupTools   = "tools"
)

// New returns the tree of commands. A new command is a file and a line in the list.
func New(s Streams) *cobra.Command { return newRoot(newApp(s)) }

func newApp(s Streams) *app {
	return &app{Streams: s, events: &events{Writer: s.Out}, redact: &ui.Redactor{}}
}

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   program,
		Short: "Install Kubernetes and a OneCloud cloud on it",
		Long: "ocadm installs Kubernetes on Linux machines and runs a OneCloud cloud on it. Commands that change machines work in phases: if one is\n" +
			"interrupted, run it again, and it continues where it stopped.",
		Example: `  # install everything on one machine, including the database
  ocadm init --onecloud-version v4.0.3

  # use an existing database server
  ocadm init --mysql-host 10.0.0.5 --mysql-user root --mysql-password-file /root/mysql

  # show what init would do
  ocadm init --dry-run

  # print the command that joins another machine
  ocadm token create --print-join-command

  # explain the code of an error
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
	root.PersistentFlags().IntVarP(&a.verbosity, "v", "v", 0, "log verbosity: 0 progress, 1 changes, 4 everything")
	root.AddGroup(&cobra.Group{ID: groupInstall, Title: "Install:"}, &cobra.Group{ID: groupCloud, Title: "Cloud:"},
		&cobra.Group{ID: groupTools, Title: "Tools:"})
	root.SetHelpCommandGroupID(groupTools)
	root.CompletionOptions.DisableDefaultCmd = true // newCompletion replaces it
	for _, group := range []struct {
		id       string
		commands []*cobra.Command
	}{
		{groupInstall, []*cobra.Command{
			newPreflight(a), newInit(a), newJoin(a), newReset(a), newToken(a), newFleet(a),
		}},
		{groupCloud, []*cobra.Command{
			newCluster(a), newComponent(a), newOperation(a), newMachine(a), newUI(a), newNode(a), newMove(a), newHA(a), newEtcd(a), newCerts(a), newUpgrade(a),
			newWhy(a), newSupport(a), newExecutor(a), newOperatorCommand(a),
		}},
		{groupTools, []*cobra.Command{
			newBundle(a), newDepot(a), newImage(a), newConfig(a), newExplain(a), newVersion(a), newCompletion(),
		}},
		{"", []*cobra.Command{newKubeadm(a)}},
	} {
		for _, c := range group.commands {
			c.GroupID = group.id
			root.AddCommand(c)
		}
	}
	finish(root)
	return root
}

// finish turns errors about positional arguments into usage errors, and completes flags with fixed choices. A command without Args takes no arguments.
func finish(c *cobra.Command) {
	if c.Args == nil {
		c.Args = cobra.NoArgs
	}
	c.Args = arguments(c.Args)
	choices := func(f *pflag.Flag) {
		if choice, ok := f.Value.(*ui.Choice); ok {
			// It fails only for an unknown flag.
			_ = c.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(choice.Allowed(), cobra.ShellCompDirectiveNoFileComp))
		}
	}
	c.LocalFlags().VisitAll(choices)
	for _, sub := range c.Commands() {
		finish(sub)
	}
}

// groupRunE runs commands that only group others. Without an argument it prints help; an unknown command is an error.
func groupRunE(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	var names []string
	list := ""
	for _, sub := range c.Commands() {
		if !sub.Hidden {
			names = append(names, sub.Name())
		}
		if sub.Name() == "list" {
			list = sub.Use
		}
	}
	f := finding.New("OCA-0403", fmt.Sprintf("%s has no command %q", c.CommandPath(), args[0]), "", c.CommandPath()+" --help")
	if now, was := formerCommands[strings.TrimPrefix(c.CommandPath()+" "+args[0], "ocadm ")]; was {
		f.Remedy = now
	} else if guess, ok := nearest.To(args[0], names); args[0] == "get" && list != "" { // as in kubectl; "set" is near, but changes something
		f.Remedy = c.CommandPath() + " " + list
	} else if ok {
		f.Remedy = c.CommandPath() + " " + guess
	}
	return f
}

// wrongUsage is the headline of all usage errors.
const wrongUsage = "Invalid command line"

func flagError(c *cobra.Command, err error) error {
	if errors.Is(err, pflag.ErrHelp) {
		return err
	}
	f := finding.Errorf("OCA-0401", wrongUsage, c.CommandPath()+" --help", "%w", err)
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if args := c.Flags().Args(); isGroup(c) && len(args) > 0 { // it is a flag of the command that does not exist
			return groupRunE(c, args)
		}
		var names []string
		c.Flags().VisitAll(func(fl *pflag.Flag) {
			if !fl.Hidden {
				names = append(names, fl.Name)
			}
		})
		name := "--" + unknown.GetSpecifiedName()
		if unknown.GetSpecifiedShortnames() != "" { // no other letter is what was meant
			name, names = name[1:], nil
		}
		f.Cause = fmt.Sprintf("%s has no flag %s", c.CommandPath(), name)
		if guess, ok := nearest.To(unknown.GetSpecifiedName(), names); ok {
			f.Remedy = fmt.Sprintf("did you mean --%s? All flags: %s --help", guess, c.CommandPath())
		}
	}
	return f
}

// arguments makes errors about positional arguments usage errors.
func arguments(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		err := check(c, args)
		if err == nil && !c.DisableFlagParsing {
			err = empty(c, args)
		}
		if err != nil {
			return finding.Errorf("OCA-0401", wrongUsage, c.UseLine(), "%w", err)
		}
		return nil
	}
}

// empty returns an error for an empty argument, and for an empty flag that has a default: the variable of a script may be unset. Arguments after -- belong to
// another program. The usage of a flag says so if it may be empty.
func empty(c *cobra.Command, args []string) (err error) {
	if dash := c.ArgsLenAtDash(); dash >= 0 {
		args = args[:dash]
	}
	if slices.Contains(args, "") {
		err = errors.New("an argument is empty")
	}
	c.Flags().Visit(func(f *pflag.Flag) {
		if f.Value.Type() == "string" && f.Value.String() == "" && f.DefValue != "" && !strings.Contains(f.Usage, "empty") {
			err = fmt.Errorf("--%s is empty; its default is %s", f.Name, f.DefValue)
		}
	})
	return err
}

// usageError converts cobra's own errors to findings. Cobra has no types for them.
func usageError(c *cobra.Command, err error) error {
	if err == nil || len(finding.Of(err)) > 0 {
		return err
	}
	for _, prefix := range []string{"unknown command ", "required flag(s) ", "accepts ", "requires at least ", "if any flags in the group "} {
		if strings.HasPrefix(err.Error(), prefix) {
			return finding.Errorf("OCA-0401", wrongUsage, c.CommandPath()+" --help", "%w", err)
		}
	}
	return err
}

// Execute runs a command line and returns the exit status.
func Execute(ctx context.Context, s Streams, args []string) int {
	a := newApp(s)
	root := newRoot(a)
	root.SetArgs(args)
	c, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = a.events.err
	}
	if err = usageError(c, err); err == nil {
		return finding.ExitOK
	}
	if below, is := errors.AsType[*endedBelow](err); is {
		return below.status
	}
	if _, shown := errors.AsType[*shownError](err); !shown {
		var text strings.Builder
		ui.Error(&text, program, err)
		fmt.Fprint(a.redact.Writer(s.Err), ofCloud(c, text.String()))
	}
	if a.logFile != "" {
		fmt.Fprintf(s.Err, "%s: the full log is in %s\n", program, a.logFile)
	}
	return finding.ExitStatus(err)
}

// ofCloud names the cloud of a command in the commands that its error advises.
func ofCloud(c *cobra.Command, text string) string {
	name, namespace := c.Flags().Lookup("name"), c.Flags().Lookup("namespace")
	if name == nil || namespace == nil {
		return text
	}
	return finding.Here(text, namespace.Value.String(), name.Value.String())
}

// Fail prints an error that occurred before any command ran, and returns the exit status.
func Fail(w io.Writer, err error) int {
	ui.Error(w, program, err)
	return finding.ExitStatus(err)
}

// Interrupted returns the error for a run ended by a signal.
func Interrupted(sig os.Signal) error { return interrupted{sig} }

type interrupted struct{ sig os.Signal }

func (i interrupted) Error() string {
	return "stopped by signal " + i.sig.String() + "; run the command again to continue"
}

func (interrupted) Unwrap() error { return context.Canceled }

// shownError is an error that has been printed already.
type shownError struct{ error }

func (e *shownError) Unwrap() error { return e.error }
