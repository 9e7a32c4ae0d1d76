// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"testing"

	"yunion.io/x/ocadm/phases/host"
)

// Programs that preflight has found must also start: in a shell of Debian's su, modprobe, nft and ufw were not.
func TestProgramsOfALoginShellAreFound(t *testing.T) {
	args := os.Args
	t.Cleanup(func() { os.Args = args })
	for path, want := range map[string]string{"/usr/bin:/bin": "/usr/bin:/bin:" + host.LoginPath, "": host.LoginPath} {
		t.Setenv("PATH", path)
		os.Args = []string{"ocadm", "version", "-o", "short"}
		if status := run(); status != 0 || os.Getenv("PATH") != want {
			t.Errorf("%q: exit status %d, PATH %q, want %q", path, status, os.Getenv("PATH"), want)
		}
	}
}
