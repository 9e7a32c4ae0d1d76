// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
)

// page buffers a command's text output. It is written in one go, so that nothing fails halfway.
type page struct{ strings.Builder }

func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *page) lines(prefix string, lines ...string) {
	for _, l := range lines {
		p.line("%s%s", prefix, l)
	}
}

// next adds the commands that remain for the user.
func (p *page) next(commands []string) { p.lines("next: ", commands...) }

// list adds a title with lines below it; nothing without lines.
func (p *page) list(title string, lines []string) {
	if len(lines) > 0 {
		p.line("%s\n  %s", title, strings.Join(lines, "\n  "))
	}
}

func (p *page) table(header []string, rows [][]string) { _ = ui.Table(p, header, rows) } // writing to a page never fails

// table adds a table with a row for each element.
func table[T any](p *page, header []string, all []T, row func(T) []string) {
	p.table(header, lists.Map(all, row))
}

// print writes v as JSON or YAML, or else its page.
func (a *app) print(output *ui.Choice, v any, text func(*page)) error {
	return ui.Print(a.Out, output.String(), v, func(w io.Writer) error {
		var p page
		text(&p)
		_, err := io.WriteString(w, p.String())
		return err
	})
}

func yesNo(yes bool) string {
	if yes {
		return "yes"
	}
	return "no"
}

// say prints lines to standard error, where progress goes.
func (a *app) say(lines []string) {
	for _, l := range lines {
		fmt.Fprintln(a.Err, l)
	}
}

// group completes a command that only groups others.
func group(c *cobra.Command, commands ...*cobra.Command) *cobra.Command {
	c.Args, c.RunE = cobra.ArbitraryArgs, groupRunE
	c.AddCommand(commands...)
	return c
}

// addOutput adds -o with the text format, JSON and YAML.
func addOutput(c *cobra.Command, human string) *ui.Choice {
	output := ui.NewFormat(human, "json", "yaml")
	c.Flags().VarP(output, "output", "o", "output format")
	return output
}

// butError is the error of a command that prints its result nevertheless.
type butError struct{ error }

// shows completes a command that reads and prints something.
func shows[T any](a *app, c *cobra.Command, human string, read func(*cobra.Command, []string) (T, error), text func(*page, T)) *cobra.Command {
	output := addOutput(c, human)
	c.RunE = func(c *cobra.Command, args []string) error {
		v, err := read(c, args)
		but, printed := errors.AsType[butError](err)
		if err != nil && !printed {
			return err
		}
		if err := a.print(output, v, func(p *page) { text(p, v) }); err != nil {
			return err
		}
		return but.error
	}
	return c
}

// showsCloud completes a command that reads or changes something in a cloud, and prints the result.
func showsCloud[T any](a *app, f *cloudFlags, c *cobra.Command, human string, read func(context.Context, client.WithWatch, []string) (T, error),
	text func(*page, T),
) *cobra.Command {
	f.add(a, c, nil, human, "json", "yaml")
	c.RunE = func(c *cobra.Command, args []string) error {
		return showCloud(a, f, c, func(ctx context.Context, k client.WithWatch) (T, error) { return read(ctx, k, args) }, text)
	}
	return c
}

// showCloud is the last part of a command that checks something first.
func showCloud[T any](a *app, f *cloudFlags, c *cobra.Command, read func(context.Context, client.WithWatch) (T, error), text func(*page, T)) error {
	return f.withCloud(c, func(ctx context.Context, k client.WithWatch) error {
		v, err := read(ctx, k)
		if err != nil {
			return err
		}
		return a.print(f.output, v, func(p *page) { text(p, v) })
	})
}
