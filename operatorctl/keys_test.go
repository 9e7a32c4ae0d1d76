// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"crypto"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestKeysAreMadeAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeys()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- k.fill(ctx) }()
		synctest.Wait()
		if len(k) != 0 {
			t.Fatal("made before the clouds that are there were looked at")
		}
		time.Sleep(keysAfter)
		synctest.Wait()
		if len(k) != keysAhead {
			t.Fatalf("%d keys are ready", len(k))
		}
		seen := map[any]bool{}
		for range keysAhead + 2 { // some that were made ahead, some that were not
			key, err := k.take(ctx)
			if err != nil || seen[key] {
				t.Fatalf("a key was given twice, or none: %v", err)
			}
			seen[key] = true
			synctest.Wait()
		}
		time.Sleep(keysAgain)
		synctest.Wait()
		if len(k) != keysAhead {
			t.Errorf("%d keys are ready again", len(k))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestAKeyIsNotWaitedForAfterItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("the operator stops")
	going := make(chan struct{})
	defer close(going)
	cancel(stopped)
	if key, err := within(ctx, func() (crypto.Signer, error) { <-going; return nil, nil }); key != nil || !errors.Is(err, stopped) {
		t.Errorf("key %v, error %v", key, err)
	}
}
