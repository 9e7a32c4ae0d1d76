// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMounts(t *testing.T) {
	const table = `22 27 0:21 / /proc rw,relatime - proc proc rw
45 27 0:39 /in\040it /var/lib/a\040b rw,relatime shared:1 master:2 - overlay overlay rw,lowerdir=/x
nonsense
`
	want := []Mount{
		{Device: "0:21", Root: "/", At: "/proc", Kind: "proc", Source: "proc", Options: []string{"rw", "relatime"}},
		{Device: "0:39", Root: "/in it", At: "/var/lib/a b", Kind: "overlay", Source: "overlay", Options: []string{"rw", "relatime"}},
	}
	if d := cmp.Diff(want, Mounts(table)); d != "" {
		t.Error(d)
	}
}
