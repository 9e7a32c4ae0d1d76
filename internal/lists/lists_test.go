// SPDX-License-Identifier: Apache-2.0

package lists_test

import (
	"slices"
	"strconv"
	"testing"

	"yunion.io/x/ocadm/internal/lists"
)

func TestLists(t *testing.T) {
	all := []int{3, 1, 2}
	odd := func(n int) bool { return n%2 == 1 }
	if got := lists.Map(all, strconv.Itoa); !slices.Equal(got, []string{"3", "1", "2"}) {
		t.Errorf("Map: %q", got)
	}
	if got := lists.Pick(all, func(n int) (string, bool) { return strconv.Itoa(n), odd(n) }); !slices.Equal(got, []string{"3", "1"}) {
		t.Errorf("Pick: %q", got)
	}
	if got := lists.Filter(all, odd); !slices.Equal(got, []int{3, 1}) || !slices.Equal(all, []int{3, 1, 2}) {
		t.Errorf("Filter: %d of %d", got, all)
	}
	if lists.Map(all[:0], strconv.Itoa) != nil || lists.Filter(all, func(int) bool { return false }) != nil {
		t.Error("no elements are not nil")
	}
}
