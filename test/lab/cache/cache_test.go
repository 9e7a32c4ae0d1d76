// SPDX-License-Identifier: Apache-2.0

package cache_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"yunion.io/x/ocadm/test/lab/cache"
	"yunion.io/x/ocadm/test/require"
)

func TestEntryIsBuiltOnce(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	var builds atomic.Int32
	build := func(_ context.Context, dir string) error {
		builds.Add(1)
		return os.WriteFile(filepath.Join(dir, "x"), []byte("y"), 0o600)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			dir, err := cache.Entry(t.Context(), "thing", "k", t.Logf, build)
			if err != nil {
				t.Error(err)
				return
			}
			if got, err := os.ReadFile(filepath.Join(dir, "x")); err != nil || string(got) != "y" {
				t.Errorf("content %q, error %v", got, err)
			}
		})
	}
	wg.Wait()
	if n := builds.Load(); n != 1 {
		t.Errorf("built %d times, want once", n)
	}
}

func TestFailedEntryIsAbsent(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	broken := errors.New("broken")
	_, err := cache.Entry(t.Context(), "thing", "k", t.Logf, func(_ context.Context, dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "half"), nil, 0o600); err != nil {
			return err
		}
		return broken
	})
	if !errors.Is(err, broken) {
		t.Fatalf("error %v, want %v", err, broken)
	}
	dir, err := cache.Entry(t.Context(), "thing", "k", t.Logf, func(context.Context, string) error { return nil })
	require.NoError(t, err)
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the second build found %v, error %v", left, err)
	}
}

func TestLockRespectsTheContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lock, err := cache.Lock(t.Context(), path, func() {})
	require.NoError(t, err)
	defer func() { _ = lock.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	told := false
	if _, err := cache.Lock(ctx, path, func() { told = true; cancel() }); !errors.Is(err, context.Canceled) || !told {
		t.Errorf("error %v, told %v", err, told)
	}
}

func TestKeyTellsPartsApart(t *testing.T) {
	if cache.Key("ab", "c") == cache.Key("a", "bc") {
		t.Error("different parts give the same key")
	}
}
