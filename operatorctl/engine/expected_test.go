// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// A cache without a written object is trusted in the end: it never shows one that was created and deleted while its watch was broken.
func TestCacheIsBehindUntilItShowsTheWrite(t *testing.T) {
	b := newBench(t)
	lacks, shows := fake.NewClientBuilder().Build(), b.Reader
	behind := func(namespace string, want bool) time.Time {
		t.Helper()
		is, until, err := b.Behind(t.Context(), namespace)
		if err != nil || is != want {
			t.Fatalf("behind: %t, %v, want %t", is, err, want)
		}
		return until
	}
	write := func(value string) {
		t.Helper()
		if _, err := b.Apply(t.Context(), []client.Object{config(value)}); err != nil {
			t.Fatal(err)
		}
	}
	write("1")
	b.Reader = lacks
	if got, want := behind("onecloud", true), b.clock.Add(patience); !got.Equal(want) {
		t.Errorf("until %s, want %s", got, want)
	}
	behind("elsewhere", false)
	b.clock = b.clock.Add(patience)
	behind("onecloud", false)

	b.Reader = shows
	write("2")
	behind("onecloud", false)

	// An older version is never trusted, however long the cache shows it.
	old := config("")
	if err := b.api.Get(t.Context(), client.ObjectKeyFromObject(old), old); err != nil {
		t.Fatal(err)
	}
	b.Reader = fake.NewClientBuilder().WithObjects(old).Build()
	write("3")
	for range 3 {
		b.clock = b.clock.Add(patience)
		if until := behind("onecloud", true); !until.After(b.clock) {
			t.Errorf("until %s at %s", until, b.clock)
		}
	}
	// A deletion before our write does not undo it: the write is still expected.
	b.Forget(KeyOf(old), old.GetResourceVersion())
	behind("onecloud", true)
	// A later deletion does.
	if err := b.api.Get(t.Context(), client.ObjectKeyFromObject(old), old); err != nil {
		t.Fatal(err)
	}
	b.Forget(KeyOf(config("")), old.GetResourceVersion())
	behind("onecloud", false)
}
