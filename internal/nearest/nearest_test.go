// SPDX-License-Identifier: Apache-2.0

package nearest_test

import (
	"testing"

	"yunion.io/x/ocadm/internal/nearest"
)

func TestTo(t *testing.T) {
	known := []string{"preflight", "certs", "certs/ca", "wait-control-plane", "wait-control-plane/apiserver", "cni"}
	for _, c := range []struct{ word, want string }{
		{"preflihgt", "preflight"},
		{"Preflight", "preflight"},
		{"cert", "certs"},
		{"apiserver", "wait-control-plane/apiserver"},
		{"wait-control", "wait-control-plane"},
		{"cin", "cni"},
		{"storage", ""},
		{"", ""},
	} {
		if got, ok := nearest.To(c.word, known); got != c.want || ok != (c.want != "") {
			t.Errorf("To(%q) = %q, %v; want %q", c.word, got, ok, c.want)
		}
	}
}
