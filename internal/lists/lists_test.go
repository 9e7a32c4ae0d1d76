// SPDX-License-Identifier: Apache-2.0

package lists_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"yunion.io/x/ocadm/internal/lists"
)

func TestLists(t *testing.T) {
	all := []int{3, 1, 2}
	odd := func(n int) bool { return n%2 == 1 }
	if got := lists.Map(all, strconv.Itoa); !slices.Equal(got, []string{"3", "1", "2"}) {
		t.Errorf("Map: %q", got)
	}
	if got := lists.Parallel(all, 2, func(i, n int) int { return 10*i + n }); !slices.Equal(got, []int{3, 11, 22}) {
		t.Errorf("Parallel: %d", got)
	}
	if got := lists.Parallel(all[:0], 0, func(i, n int) int { return n }); len(got) > 0 {
		t.Errorf("Parallel, of nothing: %d", got)
	}
	if got := slices.SortedFunc(slices.Values(all), func(a, b int) int { return lists.TrueFirst(!odd(a), !odd(b)) }); got[0] != 2 || lists.TrueFirst(true, true) != 0 {
		t.Errorf("TrueFirst: %d", got)
	}
	if got := lists.Pick(all, func(n int) (string, bool) { return strconv.Itoa(n), odd(n) }); !slices.Equal(got, []string{"3", "1"}) {
		t.Errorf("Pick: %q", got)
	}
	for limit, want := range []string{"and 4 more", "a, and 3 more", "a, b, and 2 more", "a, b, c, d", "a, b, c, d"} {
		if got := strings.Join(lists.Some([]string{"a", "b", "c", "d"}, limit), ", "); got != want {
			t.Errorf("Some, %d: %s", limit, got)
		}
	}
	if got := lists.Counted(0, "pod") + lists.Counted(int32(1), "pod") + lists.Counted(int64(2), "pod"); got != "0 pods1 pod2 pods" {
		t.Errorf("Counted: %s", got)
	}
	if got := lists.Times(1) + ", " + lists.Times(int32(2)); got != "once, 2 times" {
		t.Errorf("Times: %s", got)
	}
	if got := lists.Filter(all, odd); !slices.Equal(got, []int{3, 1}) || !slices.Equal(all, []int{3, 1, 2}) {
		t.Errorf("Filter: %d of %d", got, all)
	}
	if got := lists.Count(all, odd); got != 2 {
		t.Errorf("Count: %d", got)
	}
	if got := lists.Sum(all, func(n int) float64 { return float64(n) / 2 }); got != 3 {
		t.Errorf("Sum: %v", got)
	}
	if first, none := lists.First(all, odd), lists.First(all, func(n int) bool { return n > 3 }); first != 3 || none != 0 {
		t.Errorf("First: %d, %d", first, none)
	}
	if got := lists.Set(all, odd); len(got) != 2 || !got[true] || !got[false] {
		t.Errorf("Set: %v", got)
	}
	if got := lists.Index(all, func(n int) (bool, string) { return odd(n), strconv.Itoa(n) }); len(got) != 2 || got[true] != "1" || got[false] != "2" {
		t.Errorf("Index: %v", got)
	}
	if got := lists.Unique([]int{3, 1, 3, 2, 1}); !slices.Equal(got, all) {
		t.Errorf("Unique: %d", got)
	}
	if got := lists.Distinct([]int{3, 1, 3, 2, 1}); !slices.Equal(got, []int{1, 2, 3}) {
		t.Errorf("Distinct: %d", got)
	}
	if lists.Map(all[:0], strconv.Itoa) != nil || lists.Filter(all, func(int) bool { return false }) != nil {
		t.Error("no elements are not nil")
	}
}

func TestEachEndsAtTheFirstError(t *testing.T) {
	bad := errors.New("bad")
	var ended atomic.Int32
	err := lists.Each(t.Context(), []int{1, 2, 3}, 3, func(ctx context.Context, n int) error {
		if n == 2 {
			return bad
		}
		<-ctx.Done()
		ended.Add(1)
		return ctx.Err()
	})
	if !errors.Is(err, bad) || ended.Load() != 2 {
		t.Errorf("%v; %d others ended", err, ended.Load())
	}
	if err := lists.Each(t.Context(), []int{}, 1, func(context.Context, int) error { return bad }); err != nil {
		t.Error(err)
	}
}
