// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"encoding/json"
	"testing"
)

// Files of a playbook travel as arrays of numbers: base64 is refused.
func TestTemplateFilesAreNumbers(t *testing.T) {
	for _, p := range templates() {
		data, err := json.Marshal(p.fields())
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Playbook struct {
				Files map[string][]int
			}
		}
		if err := json.Unmarshal(data, &got); err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		var text []byte
		for _, n := range got.Playbook.Files["conf"] {
			text = append(text, byte(n))
		}
		if string(text) != p.conf {
			t.Errorf("%s: conf is %q", p.name, text)
		}
	}
}
