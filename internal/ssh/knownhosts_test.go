// SPDX-License-Identifier: Apache-2.0

package ssh

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh/knownhosts"

	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/sshserver"
)

// TestKnownHosts checks that the key of the first contact is kept, and any other is refused from then on.
func TestKnownHosts(t *testing.T) {
	s, target := machine(t, nil)
	file := KnownHosts(filepath.Join(t.TempDir(), "made", "known_hosts"))
	if key, err := file.Key(target); key != "" || err != nil {
		t.Fatalf("%q, %v", key, err)
	}
	c, err := Dial(t.Context(), target, nil)
	require.NoError(t, err)
	c.Close()
	for range 2 {
		require.NoError(t, file.Add(target, c.HostKey()))
	}
	if text, err := os.ReadFile(string(file)); err != nil || bytes.Count(text, []byte("\n")) != 1 {
		t.Errorf("%s, %v", text, err)
	}
	if info, err := os.Stat(string(file)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if target.HostKey, err = file.Key(target); err != nil || target.HostKey != s.HostKey() {
		t.Fatalf("%q, %v", target.HostKey, err)
	}
	s.Reinstall(t)
	_, err = Dial(t.Context(), target, nil)
	wantCode(t, err, "OCA-7602", "a different host key")
}

// TestHashedHost checks hashed host names, which OpenSSH uses in some distributions.
func TestHashedHost(t *testing.T) {
	s, target := machine(t, nil)
	file := filepath.Join(t.TempDir(), "known_hosts")
	name := knownhosts.HashHostname(knownhosts.Normalize(target.hostPort()))
	require.NoError(t, os.WriteFile(file, []byte("# a comment\n"+name+" "+s.HostKey()+"\n"), 0o600))
	if key, err := KnownHosts(file).Key(target); err != nil || key != s.HostKey() {
		t.Errorf("%q, %v", key, err)
	}
	require.NoError(t, os.WriteFile(file, []byte("no line\n"), 0o600))
	if _, err := KnownHosts(file).Key(target); err == nil {
		t.Error("a file that cannot be read is no error")
	}
}

// TestFeed checks that the data follow the password for sudo, that nothing is lost, and that the command is one line: csh accepts no lines in quotes.
func TestFeed(t *testing.T) {
	data := strings.Repeat("0123456789\n", 1<<16)
	for _, user := range []string{"root", "debian"} {
		_, target := machine(t, func(s *sshserver.Server) {
			s.Sudo = "secret"
			s.Run = func(c *sshserver.Call) int {
				if strings.Contains(c.Line, "\n") {
					fmt.Fprintln(c.Stderr, "Unmatched '.")
					return 1
				}
				sh := exec.CommandContext(c, "sh", "-c", c.Line)
				sh.Stdin, sh.Stdout, sh.Stderr = c.Stdin, c.Stdout, c.Stderr
				_ = sh.Run()
				return sh.ProcessState.ExitCode()
			}
		})
		target.User, target.SudoPassword = user, "secret"
		c, err := Dial(t.Context(), target, nil)
		require.NoError(t, err)
		var got strings.Builder
		const script = "cat\nprintf '%s\\n' 'a\\b' \"$1\"\nexit 3\n"
		r, err := c.Feed(t.Context(), script, []string{"/it's"}, strings.NewReader(data), func(l string) { got.WriteString(l + "\n") })
		if err != nil || r.Exit != 3 || got.String() != data+"a\\b\n/it's\n" {
			t.Errorf("%s: %v, %+v, %d bytes", user, err, r, got.Len())
		}
		c.Close()
	}
}

// TestKnownHostsWithoutNewline checks a file whose last line has no end.
func TestKnownHostsWithoutNewline(t *testing.T) {
	s, target := machine(t, nil)
	file := filepath.Join(t.TempDir(), "known_hosts")
	require.NoError(t, os.WriteFile(file, []byte("other.example "+s.HostKey()), 0o600))
	require.NoError(t, KnownHosts(file).Add(target, s.HostKey()))
	for _, at := range []Target{target, {Address: "other.example"}} {
		if key, err := KnownHosts(file).Key(at); err != nil || key != s.HostKey() {
			t.Errorf("%s: %q, %v", at, key, err)
		}
	}
}

// TestRevokedKey checks that a revoked key is neither used nor added, and that a line with a key of an unknown type, which later OpenSSH writes, does no harm.
func TestRevokedKey(t *testing.T) {
	s, target := machine(t, nil)
	name, unknown := knownhosts.Normalize(target.hostPort()), "other ssh-new AAAAB3NzaC1uZXc=\n"
	for text, want := range map[string]string{
		unknown + name + " " + s.HostKey() + "\n":                            s.HostKey(),
		"@revoked * " + s.HostKey() + "\n" + name + " " + s.HostKey() + "\n": "",
		"@revoked * " + s.HostKey() + "\n":                                   "",
	} {
		file := KnownHosts(filepath.Join(t.TempDir(), "known_hosts"))
		require.NoError(t, os.WriteFile(string(file), []byte(text), 0o600))
		if key, err := file.Key(target); err != nil || key != want {
			t.Errorf("%s: %q, %v", text, key, err)
		}
		err := file.Add(target, s.HostKey())
		if (err == nil) != (want != "") {
			t.Errorf("%s: adding the key returned %v", text, err)
		}
	}
}
