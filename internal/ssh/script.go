// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"yunion.io/x/ocadm/internal/finding"
)

// stopTimeout is how long a script may take to end after SIGTERM.
const stopTimeout = 15 * time.Second

// Result is the outcome of a script.
type Result struct {
	Exit int
	// Stderr is the end of its standard error, at most tailBytes.
	Stderr string
}

// Script runs an sh script as root with arguments. onLine receives each line of its standard output; nil drops them. A non-zero exit status is no
// error. The text of the script may hold secrets: it is passed on standard input. When ctx ends, the script gets SIGTERM.
func (c *Conn) Script(ctx context.Context, script string, args []string, onLine func(string)) (Result, error) {
	return c.asRoot(ctx, "sh -s --", args, strings.NewReader(script), onLine)
}

// Feed is like Script, but passes data to the script on standard input. The text of the script is visible to other users of the machine, so it must
// not hold secrets.
func (c *Conn) Feed(ctx context.Context, script string, args []string, data io.Reader, onLine func(string)) (Result, error) {
	oneLine := strings.NewReplacer(`\`, `\\`, "\n", `\n`).Replace(script) // the login shell may be csh, which accepts no lines in quotes
	return c.asRoot(ctx, `sh -c 's=$1; shift; eval "$(printf %b "$s")"' sh`, append([]string{oneLine}, args...), data, onLine)
}

func (c *Conn) asRoot(ctx context.Context, command string, args []string, stdin io.Reader, onLine func(string)) (Result, error) {
	prefix, first, err := c.root(ctx)
	if err != nil {
		return Result{}, err
	}
	// A login shell may print text of its own, from .bashrc for example. It comes before this word.
	const begins = "ocadm-begins"
	line := "echo " + begins + "; exec " + prefix + command
	for _, a := range args {
		line += " " + quote(a)
	}
	begun := false
	return c.run(ctx, line, io.MultiReader(strings.NewReader(first), stdin), func(l string) {
		if !begun {
			begun = strings.HasSuffix(l, begins)
		} else if onLine != nil {
			onLine(l)
		}
	})
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// root returns a command prefix for running as root, and what that command must read first.
func (c *Conn) root(ctx context.Context) (prefix, first string, err error) {
	if c.target.user() == "root" {
		return "", "", nil
	}
	const program = "sh -c :" // a rule may allow only some programs
	r, err := c.run(ctx, "sudo -n "+program, strings.NewReader(""), nil)
	if err != nil || r.Exit == 0 {
		return "sudo -n ", "", err
	}
	password := cmp.Or(c.target.SudoPassword, c.target.Password)
	if password == "" {
		return "", "", noSudo(c.target, "sudo: "+orNothing(r.Stderr), "let the user run sudo without a password, or put sudo-password in the Secret")
	}
	// Try it first with nothing else on standard input: sudo would read the lines of a script as further passwords.
	const sudo = "sudo -k -S -p '' "
	if r, err = c.run(ctx, sudo+program, strings.NewReader(password+"\n"), nil); err != nil {
		return "", "", err
	}
	if r.Exit != 0 {
		return "", "", noSudo(c.target, "sudo: "+orNothing(r.Stderr), "correct sudo-password in the Secret, and add the user to the group that may use sudo")
	}
	return sudo, password + "\n", nil
}

func noSudo(t Target, cause, remedy string) error {
	return finding.New("OCA-7604", fmt.Sprintf("%s cannot become root", t), cause, remedy)
}

func orNothing(s string) string {
	return cmp.Or(strings.Join(strings.Fields(s), " "), "it gave no reason")
}

func (c *Conn) run(ctx context.Context, line string, stdin io.Reader, onLine func(string)) (Result, error) {
	s, err := c.client.NewSession()
	if err != nil {
		return Result{}, c.broken(ctx, err)
	}
	defer s.Close() //nolint:errcheck // the session has ended, or the connection is gone
	var tail tail
	s.Stderr = &tail
	out, noOut := s.StdoutPipe()
	in, noIn := s.StdinPipe()
	if err := cmp.Or(noOut, noIn, s.Start(line)); err != nil {
		return Result{}, c.broken(ctx, err)
	}
	go func() { // a command may exit without reading everything
		_, _ = io.Copy(in, stdin)
		_ = in.Close()
	}()
	unhook := context.AfterFunc(ctx, func() {
		_ = s.Signal(ssh.SIGTERM)
		time.AfterFunc(stopTimeout, func() { _ = s.Close() })
	})
	defer unhook()
	readLines(out, onLine)
	err = s.Wait()
	r := Result{Stderr: tail.String()}
	var exit *ssh.ExitError
	switch {
	case ctx.Err() != nil:
		return r, context.Cause(ctx)
	case err == nil:
		return r, nil
	case errors.As(err, &exit) && exit.Signal() == "":
		r.Exit = exit.ExitStatus()
		return r, nil
	}
	return r, c.broken(ctx, err)
}

// broken returns the error of a command whose outcome is unknown.
func (c *Conn) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return finding.Errorf("OCA-7605", fmt.Sprintf("The connection to %s was lost", c.target),
		"check whether the machine runs; the work continues where it stopped when it is tried again", "%w", err)
}

// maxLine bounds a line, in bytes. Longer lines are cut.
const maxLine = 64 << 10

func readLines(in io.Reader, onLine func(string)) {
	r := bufio.NewReaderSize(in, maxLine)
	for {
		line, more, err := r.ReadLine()
		if err != nil {
			return
		}
		if onLine != nil {
			onLine(string(line))
		}
		for more && err == nil {
			_, more, err = r.ReadLine()
		}
	}
}

// tailBytes is how much of the end of standard error is kept.
const tailBytes = 4 << 10

// tail keeps the end of what is written to it. It is complete when the session has ended.
type tail struct{ end []byte }

func (t *tail) Write(p []byte) (int, error) {
	if t.end = append(t.end, p...); len(t.end) > tailBytes {
		t.end = append([]byte(nil), t.end[len(t.end)-tailBytes:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	return strings.TrimSpace(strings.ToValidUTF8(string(t.end), "�"))
}
