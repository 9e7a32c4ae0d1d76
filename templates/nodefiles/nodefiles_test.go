// SPDX-License-Identifier: Apache-2.0

package nodefiles

import "testing"

// Nodes keep the text of the release that wrote it, so the digests of earlier texts stay in the list.
func TestTextsAreListed(t *testing.T) {
	for name, text := range All() {
		if !Unedited(text) {
			t.Errorf("%s has changed: add its digest %q to the list", name, digest(text))
		}
		if Unedited(text + "edited: true\n") {
			t.Errorf("an edited %s counts as unedited", name)
		}
	}
}
