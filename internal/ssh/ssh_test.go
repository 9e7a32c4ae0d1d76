// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/sshserver"
)

// machine starts a server whose shell repeats its input.
func machine(t *testing.T, change func(*sshserver.Server)) (*sshserver.Server, Target) {
	t.Helper()
	private, public := sshserver.NewKey(t)
	s := &sshserver.Server{Keys: []gossh.PublicKey{public}, Passwords: map[string]string{"root": "root-password", "debian": "login"}}
	s.Run = func(c *sshserver.Call) int {
		in, _ := io.ReadAll(c.Stdin)
		fmt.Fprintf(c.Stdout, "%s\nroot=%t\n%s", c.Line, c.Root, in)
		fmt.Fprint(c.Stderr, "said")
		return 3
	}
	if change != nil {
		change(s)
	}
	s.Start(t)
	return s, Target{Address: "127.0.0.1", Port: s.Port(), Credentials: Credentials{Key: private}}
}

// script runs a script and returns what it printed.
func script(t *testing.T, target Target, args ...string) (string, Result, error) {
	t.Helper()
	c, err := Dial(t.Context(), target, nil)
	if err != nil {
		return "", Result{}, err
	}
	defer c.Close()
	var out []string
	r, err := c.Script(t.Context(), "echo secret\n", args, func(line string) { out = append(out, line) })
	return strings.Join(out, "\n"), r, err
}

func wantCode(t *testing.T, err error, code, text string) {
	t.Helper()
	all := finding.Of(err)
	if len(all) != 1 || all[0].Code != code || !strings.Contains(all[0].Error(), text) || all[0].Remedy == "" {
		t.Errorf("%v, want %s with %q", err, code, text)
	}
}

func TestScript(t *testing.T) {
	s, target := machine(t, nil)
	out, r, err := script(t, target, "join", "it's")
	if err != nil || out != "sh -s -- 'join' 'it'\\''s'\nroot=true\necho secret" || r.Exit != 3 || r.Stderr != "said" {
		t.Errorf("%q, %+v, %v", out, r, err)
	}
	target.Key, target.Password = nil, "root-password"
	if _, _, err := script(t, target); err != nil {
		t.Errorf("with a password: %v", err)
	}
	for name, want := range map[string]string{"key": s.HostKey(), "fingerprint": Fingerprint(s.HostKey())} {
		target.HostKey = want
		if _, _, err := script(t, target); err != nil || want == "" {
			t.Errorf("pinned %s %q: %v", name, want, err)
		}
	}
}

func TestSudo(t *testing.T) {
	for name, c := range map[string]struct{ sudo, login, given, code string }{
		"without a password": {sudo: "free"},
		"its own password":   {sudo: "sesame", given: "sesame"},
		"that of the login":  {sudo: "login", login: "login"},
		"none":               {sudo: "sesame", code: "OCA-7604"},
		"wrong":              {sudo: "sesame", given: "wrong", code: "OCA-7604"},
		"another program":    {sudo: "true", code: "OCA-7604"},
		"not allowed":        {given: "sesame", code: "OCA-7604"},
	} {
		t.Run(name, func(t *testing.T) {
			_, target := machine(t, func(s *sshserver.Server) { s.Sudo = c.sudo })
			target.User, target.Password, target.SudoPassword = "debian", c.login, c.given
			out, _, err := script(t, target)
			if c.code != "" {
				wantCode(t, err, c.code, "debian@127.0.0.1")
				if strings.Contains(fmt.Sprint(err), "sesame") {
					t.Errorf("the error has the password: %v", err)
				}
			} else if err != nil || out != "sh -s --\nroot=true\necho secret" {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
}

// TestGreeting checks that the output of a script does not begin with what .bashrc or another file of the login shell prints.
func TestGreeting(t *testing.T) {
	for _, greeting := range []string{"Welcome\n", "{}\nno newline"} {
		for _, user := range []string{"root", "debian"} {
			_, target := machine(t, func(s *sshserver.Server) { s.Greeting, s.Sudo = greeting, "sesame" })
			target.User, target.SudoPassword = user, "sesame"
			if out, r, err := script(t, target); err != nil || out != "sh -s --\nroot=true\necho secret" || r.Exit != 3 {
				t.Errorf("%q, %+v, %v", out, r, err)
			}
		}
	}
}

func TestBadMachines(t *testing.T) {
	s, target := machine(t, nil)
	other, _ := sshserver.NewKey(t)
	first := s.HostKey()
	for name, c := range map[string]struct {
		change     func(*Target)
		code, text string
	}{
		"wrong key":          {func(t *Target) { t.Key = other }, "OCA-7603", ""},
		"wrong password":     {func(t *Target) { t.Key, t.Password = nil, "no" }, "OCA-7603", ""},
		"nothing":            {func(t *Target) { t.Key = nil }, "OCA-7606", "neither"},
		"no key":             {func(t *Target) { t.Key = []byte("hello") }, "OCA-7606", "cannot be read"},
		"nothing listens":    {func(t *Target) { t.Port = 1 }, "OCA-7601", "refused"},
		"another kind":       {func(t *Target) { t.HostKey = "ecdsa-sha2-nistp256 " + ecdsaKey }, "OCA-7602", "pinned type"},
		"no host key":        {func(t *Target) { t.HostKey = "yes" }, "OCA-7602", "TYPE BASE64"},
		"short fingerprint":  {func(t *Target) { t.HostKey = "SHA256:abc" }, "OCA-7602", "43 characters"},
		"refusing jump host": {func(t *Target) { t.Jump = &Target{Address: "127.0.0.1", Port: 1, Credentials: t.Credentials} }, "OCA-7601", ":1"},
	} {
		t.Run(name, func(t *testing.T) {
			bad := target
			c.change(&bad)
			_, _, err := script(t, bad)
			wantCode(t, err, c.code, c.text)
		})
	}
	target.HostKey = first
	s.Reinstall(t)
	_, _, err := script(t, target)
	wantCode(t, err, "OCA-7602", Fingerprint(first))
	if s.Commands() != 0 {
		t.Errorf("%d commands were run", s.Commands())
	}
}

const ecdsaKey = "AAAAE2VjZHNhLXNoYTItbmlzdHAyNTYAAAAIbmlzdHAyNTYAAABBBEBpZR1L+sQjU8KpilDDUg9xzPIa09FF56mSL+yinh9WK3t+DyudT75rLrUrzzc5Zs1otJrLIyq1DJyDYJ4ZW5g="

func TestJumpHost(t *testing.T) {
	jump, way := machine(t, nil)
	s, target := machine(t, nil)
	way.HostKey, target.Jump = jump.HostKey(), &way
	c, err := Dial(t.Context(), target, nil)
	require.NoError(t, err)
	defer c.Close()
	if c.HostKey() != s.HostKey() || c.JumpHostKey() != jump.HostKey() || jump.Logins() != 1 {
		t.Errorf("%s, %s, %d", c.HostKey(), c.JumpHostKey(), jump.Logins())
	}
	if r, err := c.Script(t.Context(), "", nil, nil); err != nil || r.Exit != 3 {
		t.Errorf("%+v, %v", r, err)
	}
}

// A machine that disappears during a session, and one that never sends its banner.
func TestBrokenOff(t *testing.T) {
	s, target := machine(t, nil)
	s.Run = func(c *sshserver.Call) int {
		fmt.Fprintln(c.Stdout, "begun")
		c.Drop()
		return 0
	}
	out, _, err := script(t, target)
	wantCode(t, err, "OCA-7605", "127.0.0.1")
	if out != "begun" {
		t.Error(out)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the operation ends")
	time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
	silent := target
	silent.Port = l.Addr().(*net.TCPAddr).Port
	if _, err := Dial(ctx, silent, nil); !errors.Is(err, cause) {
		t.Errorf("%v", err)
	}
}

// The end of the context terminates the script on the machine.
func TestCancel(t *testing.T) {
	ended := make(chan struct{})
	s, target := machine(t, nil)
	begun := make(chan struct{})
	s.Run = func(c *sshserver.Call) int {
		close(begun)
		<-c.Done()
		close(ended)
		return 0
	}
	c, err := Dial(t.Context(), target, nil)
	require.NoError(t, err)
	defer c.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("cancelled by a user")
	go func() {
		<-begun
		cancel(cause)
	}()
	if _, err := c.Script(ctx, "", nil, nil); !errors.Is(err, cause) {
		t.Error(err)
	}
	<-ended
}

func TestBounds(t *testing.T) {
	s, target := machine(t, nil)
	s.Run = func(c *sshserver.Call) int {
		_, _ = io.WriteString(c.Stdout, strings.Repeat("x", 3*maxLine)+"\nnext\nlast")
		_, _ = io.WriteString(c.Stderr, strings.Repeat("y", 3*tailBytes)+"end")
		return 0
	}
	out, r, err := script(t, target)
	lines := strings.Split(out, "\n")
	if err != nil || len(lines) != 3 || len(lines[0]) != maxLine || lines[1] != "next" || lines[2] != "last" || len(r.Stderr) != tailBytes || !strings.HasSuffix(r.Stderr, "end") {
		t.Errorf("%d lines, %d bytes of stderr, %v", len(lines), len(r.Stderr), err)
	}
}

func TestKeyWithPassphrase(t *testing.T) {
	_, target := machine(t, nil)
	_, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := gossh.MarshalPrivateKeyWithPassphrase(key, "", []byte("sesame"))
	require.NoError(t, err)
	target.Key = pem.EncodeToMemory(block)
	_, _, err = script(t, target)
	wantCode(t, err, "OCA-7606", "passphrase")
	target.Passphrase = []byte("wrong")
	_, _, err = script(t, target)
	wantCode(t, err, "OCA-7606", "cannot be read")
	target.Passphrase = []byte("sesame")
	_, _, err = script(t, target)
	wantCode(t, err, "OCA-7603", "") // it is parsed, and does not match this machine
}
