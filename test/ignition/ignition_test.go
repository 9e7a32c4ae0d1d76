// SPDX-License-Identifier: Apache-2.0

// Package ignition checks bootstrap data with Ignition's own code. It is a separate module, because ocadm does not need Ignition.
package ignition

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/ignition/v2/config/v3_4"
)

var golden = filepath.Join("..", "..", "operatorctl", "machine", "bootstrap", "testdata", "ignition.golden")

// TestBootstrapData checks that Ignition accepts the data without errors or warnings and reads from it what the machine needs.
func TestBootstrapData(t *testing.T) {
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	c, r, err := v3_4.Parse(data)
	if err != nil || len(r.Entries) > 0 {
		t.Fatalf("%v\n%s", err, r.String())
	}
	if len(c.Storage.Files) != 1 || len(c.Systemd.Units) != 1 {
		t.Fatalf("%+v", c)
	}
	f, u := c.Storage.Files[0], c.Systemd.Units[0]
	source := ""
	if f.Contents.Source != nil {
		source = *f.Contents.Source
	}
	_, encoded, _ := strings.Cut(source, ";base64,")
	script, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil || !bytes.HasPrefix(script, []byte("#!")) || f.Mode == nil || *f.Mode != 0o600 {
		t.Errorf("the script: %v, mode %v, %.40s", err, f.Mode, script)
	}
	if u.Enabled == nil || !*u.Enabled || u.Contents == nil || !strings.Contains(*u.Contents, f.Path) {
		t.Errorf("the unit does not run %s: %+v", f.Path, u)
	}
}

// TestValidatorRefuses checks that the validator detects faults in such data, so that its silence above is meaningful.
func TestValidatorRefuses(t *testing.T) {
	data, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string][2]string{
		"version":  {`"3.4.0"`, `"3.9.0"`},
		"path":     {`"path":"/`, `"path":"`},
		"encoding": {`;base64,`, `;base65,`},
	} {
		t.Run(name, func(t *testing.T) {
			bad := bytes.Replace(bytes.ReplaceAll(data, []byte(`": "`), []byte(`":"`)), []byte(change[0]), []byte(change[1]), 1)
			if bytes.Equal(bad, data) {
				t.Fatalf("the data have no %s", change[0])
			}
			if _, r, err := v3_4.Parse(bad); err == nil {
				t.Errorf("it was taken: %s", r.String())
			}
		})
	}
}
