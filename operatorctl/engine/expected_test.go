// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/test/require"
)

// A cache without a written object is trusted in the end: it never shows one that was created and deleted while its watch was broken.
func TestCacheIsBehindUntilItShowsTheWrite(t *testing.T) {
	b := newBench(t)
	lacks, shows := fake.NewClientBuilder().Build(), b.Reader
	at := func(namespace, cloud string, want bool) time.Time {
		t.Helper()
		is, until, err := b.Behind(t.Context(), namespace, cloud)
		if err != nil || is != want {
			t.Fatalf("behind: %t, %v, want %t", is, err, want)
		}
		return until
	}
	behind := func(want bool) time.Time { t.Helper(); return at("onecloud", "default", want) }
	write := func(value string) {
		t.Helper()
		if _, err := b.Apply(t.Context(), []client.Object{config(value)}); err != nil {
			t.Fatal(err)
		}
	}
	write("1")
	b.Reader = lacks
	if got, want := behind(true), b.clock.Add(patience); !got.Equal(want) {
		t.Errorf("until %s, want %s", got, want)
	}
	at("elsewhere", "default", false)
	at("onecloud", "other", false) // it need not wait
	b.clock = b.clock.Add(patience)
	behind(false)

	b.Reader = shows
	write("2")
	behind(false)

	// An older version is never trusted, however long the cache shows it.
	old := config("")
	require.NoError(t, b.api.Get(t.Context(), client.ObjectKeyFromObject(old), old))
	b.Reader = fake.NewClientBuilder().WithObjects(old).Build()
	write("3")
	for range 3 {
		b.clock = b.clock.Add(patience)
		if until := behind(true); !until.After(b.clock) {
			t.Errorf("until %s at %s", until, b.clock)
		}
	}
	// A deletion before our write does not undo it: the write is still expected.
	b.Forget(KeyOf(old), old.GetResourceVersion())
	behind(true)
	// A later deletion does.
	require.NoError(t, b.api.Get(t.Context(), client.ObjectKeyFromObject(old), old))
	b.Forget(KeyOf(config("")), old.GetResourceVersion())
	behind(false)
}
