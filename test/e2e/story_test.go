// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// Lines logged from this file are omitted where only the errors of failed tests are printed (scripts/failures).

func logf(t *testing.T) func(string, ...any) {
	start := time.Now()
	return func(format string, args ...any) {
		t.Logf("[%5.1f s] "+format, append([]any{time.Since(start).Seconds()}, args...)...)
	}
}

// testWriter writes the story to the log of the running step, beside the step's errors.
type testWriter struct{ running *atomic.Pointer[testing.T] }

func (w testWriter) Write(p []byte) (int, error) {
	w.running.Load().Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}
