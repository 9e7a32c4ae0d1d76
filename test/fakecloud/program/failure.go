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

// Failure is the way in which a release of a service is broken. It is the suffix of its version and thus of its image tag: "v4.0.3-fails-at-start".
type Failure string

// The failures.
const (
	// AtStart updates its tables but ends before it listens.
	AtStart Failure = "-fails-at-start"
	// InMigration ends in the middle of changing its tables, each time. It does not affect a service without tables.
	InMigration Failure = "-fails-in-migration"
	// WhenReady ends some time after it has become ready.
	WhenReady Failure = "-fails-when-ready"
	// UnderLoad ends after some requests.
	UnderLoad Failure = "-fails-under-load"
)

// Failures returns all failures.
func Failures() []Failure { return []Failure{AtStart, InMigration, WhenReady, UnderLoad} }

const (
	// life is how long a service that fails when ready stays up.
	life = 2 * time.Second
	// bearable is the number of requests that a service that fails under load answers.
	bearable = 20
)

var errBroken = errors.New("this release is broken on purpose")

// failure returns the failure of this program, "" if it is not broken.
func (m Machine) failure() Failure {
	all := Failures()
	i := slices.IndexFunc(all, func(f Failure) bool { return strings.HasSuffix(m.imageVersion(), string(f)) })
	if i < 0 {
		return ""
	}
	return all[i]
}

// breakable returns a context that ends when the program fails, and a function that returns the error to end with.
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

// isUp is called when the program is serving.
func (m Machine) isUp(ctx context.Context) {
	if m.failure() != WhenReady {
		return
	}
	timer := time.AfterFunc(life, func() { m.fail(fmt.Errorf("%w: it ends %s after it was ready", errBroken, life)) })
	context.AfterFunc(ctx, func() { timer.Stop() })
}

// bears ends the program under load. Probes do not count.
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

// starts returns an error if the program cannot start. A run that only changes the tables always can.
func (m Machine) starts(args []string) error {
	if m.failure() == AtStart && !slices.Contains(args, "--exit-after-db-init") {
		return fmt.Errorf("%w: it ends at start", errBroken)
	}
	return nil
}
