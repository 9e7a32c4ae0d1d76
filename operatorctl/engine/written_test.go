// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// A cache that does not show what was written is believed in the end: what was made and deleted while its watch was broken, it never shows.
func TestAnswersAreBelievedForSomeTime(t *testing.T) {
	b := newBench(t)
	b.Reader = fake.NewClientBuilder().Build() // it hears nothing
	apply := func(want Action, writes int) {
		t.Helper()
		changes, err := b.Apply(t.Context(), []client.Object{config("1")})
		if err != nil || changes[0].Action != want || b.writes != writes {
			t.Errorf("%v, %v after %d writes, want %s after %d", changes, err, b.writes, want, writes)
		}
	}
	key := KeyOf(config("1"))
	apply(Created, 1)
	if got, want := b.Unseen(key.Namespace), b.clock.Add(belief); !got.Equal(want) || !b.Unseen("elsewhere").IsZero() {
		t.Errorf("believed until %s, want %s", got, want)
	}
	if err := b.api.Delete(t.Context(), config("1")); err != nil {
		t.Fatal(err)
	}
	b.clock = b.clock.Add(belief - time.Millisecond)
	apply(Unchanged, 1)
	if b.Latest(key, nil) == nil {
		t.Error("a caller who lists the cache does not see it")
	}
	b.clock = b.clock.Add(time.Millisecond)
	live := map[Key]client.Object{}
	b.Overlay(live, key.Namespace, func(client.Object) bool { return true })
	if len(live) > 0 || b.Latest(key, nil) != nil || !b.Unseen(key.Namespace).IsZero() {
		t.Errorf("it is still believed: %v, until %s", live, b.Unseen(key.Namespace))
	}
	apply(Created, 2)
	// An older version is no answer, however long the cache shows it.
	stale := config("0")
	stale.SetResourceVersion("0")
	for range 3 {
		b.clock = b.clock.Add(belief)
		live = map[Key]client.Object{key: stale}
		b.Overlay(live, key.Namespace, func(client.Object) bool { return true })
		if live[key] == stale || b.Latest(key, stale) == stale || !b.Unseen(key.Namespace).After(b.clock) {
			t.Fatalf("an older version is believed, or ours again only at %s", b.Unseen(key.Namespace))
		}
	}
	if err := b.api.Get(t.Context(), client.ObjectKeyFromObject(config("1")), &corev1.ConfigMap{}); err != nil {
		t.Error(err)
	}
}
