// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// The test program itself is a Go program with modules.
func TestWrite(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, write(&out, self, "v1.2.3", "1700000000"))
	for _, want := range []string{`"name": "ocadm v1.2.3"`, `"created": "2023-11-14T22:13:20Z"`, `"versionInfo": "` + runtime.Version() + `"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out.String())
		}
	}
	for _, args := range [][2]string{{"/nonexistent", "1"}, {"main.go", "1"}, {self, "yesterday"}} {
		if err := write(&out, args[0], "v1", args[1]); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}
