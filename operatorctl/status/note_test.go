// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"yunion.io/x/ocadm/operatorctl/status"
)

func TestNote(t *testing.T) {
	if got := status.Note("done"); got != "done" {
		t.Error(got)
	}
	// A cut in the middle of a character removes the whole character.
	if got := status.Note("é" + strings.Repeat("é", 600)); len(got) > 1024 || !utf8.ValidString(got) || !strings.HasSuffix(got, "é…") {
		t.Errorf("%d bytes: …%q", len(got), got[len(got)-8:])
	}
}
