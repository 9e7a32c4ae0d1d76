// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestChildrenDoNotGetOurSettings(t *testing.T) {
	t.Setenv("OCADM_MYSQL_PASSWORD", "canary")
	t.Setenv("SOMETHING_ELSE", "stays")
	res, err := Machine{}.Run(t.Context(), Command{Path: "env", Env: []string{"MORE=1"}})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(res.Stdout, "canary") || !strings.Contains(res.Stdout, "SOMETHING_ELSE=stays\n") || !strings.Contains(res.Stdout, "MORE=1\n") {
		t.Errorf("the environment of a child:\n%s", res.Stdout)
	}
}

// A program that is still open for writing somewhere, as in a child that has not become another program yet, cannot be run at once.
func TestBusyProgramIsTriedAgain(t *testing.T) {
	raw, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Skip(err)
	}
	path := filepath.Join(t.TempDir(), "program")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(raw); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(3*busyDelay, func() { _ = f.Close() })
	if _, err := (Machine{}).Run(t.Context(), Command{Path: path}); err != nil {
		t.Error(err)
	}
}
