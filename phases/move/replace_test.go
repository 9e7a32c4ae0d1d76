// SPDX-License-Identifier: Apache-2.0

package move

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReplaced(t *testing.T) {
	for _, c := range []struct{ name, text, from, to, want string }{
		{"URL", "server: https://10.0.0.1:6443\n", "10.0.0.1", "10.0.1.5", "server: https://10.0.1.5:6443\n"},
		{"several", "a=10.0.0.1,b=10.0.0.1", "10.0.0.1", "10.0.0.2", "a=10.0.0.2,b=10.0.0.2"},
		{"end of a sentence", "at 10.0.0.1.", "10.0.0.1", "10.0.0.2", "at 10.0.0.2."},
		{"longer at the end", "10.0.0.11 10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.11 10.0.0.2"},
		{"longer at the beginning", "110.0.0.1 10.0.0.1", "10.0.0.1", "10.0.0.2", "110.0.0.1 10.0.0.2"},
		{"part of another", "1.10.0.0.1.2", "10.0.0.1", "10.0.0.2", "1.10.0.0.1.2"},
		{"network", "10.0.0.1/24", "10.0.0.1", "10.0.0.2", "10.0.0.2/24"},
		{"IPv6 URL", "https://[fd00::1]:6443", "fd00::1", "fd00::2", "https://[fd00::2]:6443"},
		{"longer IPv6", "fd00::12 fd00::1:2 2fd00::1 fd00::1", "fd00::1", "fd00::2", "fd00::12 fd00::1:2 2fd00::1 fd00::2"},
		{"nothing", "none here", "10.0.0.1", "10.0.0.2", "none here"},
		{"the new one holds the former one", "10.0.0.1", "10.0.0.1", "10.0.0.12", "10.0.0.12"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := replaced(c.text, c.from, c.to)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if again := replaced(got, c.from, c.to); again != got {
				t.Errorf("again: %q", again)
			}
		})
	}
}
