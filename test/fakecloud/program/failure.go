// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Failure is how a release of a service is broken. It is the end of its version, and so of its image's tag: "v4.0.3-fails-at-start".
type Failure string

// The failures.
const (
	// AtStart: its tables are brought up to date, but it ends before it listens.
	AtStart Failure = "-fails-at-start"
	// InMigration: it ends in the middle of changing its tables, each time. A service without tables does not fail so.
	InMigration Failure = "-fails-in-migration"
	// WhenReady: it ends some time after it has become ready.
	WhenReady Failure = "-fails-when-ready"
	// UnderLoad: it ends when it has answered some requests.
	UnderLoad Failure = "-fails-under-load"
)

// Failures are all of them.
func Failures() []Failure { return []Failure{AtStart, InMigration, WhenReady, UnderLoad} }

const (
	// life is how long a service stays up that fails when it is ready.
	life = 2 * time.Second
	// bearable is how many requests a service answers that fails under load.
	bearable = 20
)

var errBroken = errors.New("this release is broken on purpose")

// failure is how this program is broken, "" if it is not.
func (m Machine) failure() Failure {
	all := Failures()
	i := slices.IndexFunc(all, func(f Failure) bool { return strings.HasSuffix(m.imageVersion(), string(f)) })
	if i < 0 {
		return ""
	}
	return all[i]
}

// breakable returns a context in which the program ends when it fails, and the error it then ends with.
func (m *Machine) breakable(ctx context.Context) (context.Context, func(error) error) {
	ctx, fail := context.WithCancelCause(ctx)
	m.fail = fail
	return ctx, func(err error) error {
		if cause := context.Cause(ctx); errors.Is(cause, errBroken) {
			return cause
		}
		fail(nil)
		return err
	}
}

// isUp is called when the program serves.
func (m Machine) isUp(ctx context.Context) {
	if m.failure() != WhenReady {
		return
	}
	timer := time.AfterFunc(life, func() { m.fail(fmt.Errorf("%w: it ends %s after it was ready", errBroken, life)) })
	context.AfterFunc(ctx, func() { timer.Stop() })
}

// bears ends the program under load; probes are none.
func (m Machine) bears(handler http.Handler) http.Handler {
	if m.failure() != UnderLoad {
		return handler
	}
	var answered atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler.ServeHTTP(w, r)
		if r.URL.Path != "/ping" && answered.Add(1) >= bearable {
			m.fail(fmt.Errorf("%w: it ends after %d requests", errBroken, bearable))
		}
	})
}

// starts returns why a program cannot start. One that only changes its tables can.
func (m Machine) starts(args []string) error {
	if m.failure() == AtStart && !slices.Contains(args, "--exit-after-db-init") {
		return fmt.Errorf("%w: it ends at start", errBroken)
	}
	return nil
}
