// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
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
			key, err := k.take()
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
