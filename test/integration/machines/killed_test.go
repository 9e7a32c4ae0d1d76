// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
)

// TestMachinesOfKilledOperator repeatedly kills the operator while a machine joins and is removed: in turn at its first write for the machine, its
// second, its third and so on, before that write or before the response. Every action on the machine happens only once.
func TestMachinesOfKilledOperator(t *testing.T) {
	f := newMachinesTest(t)
	for name, before := range map[string]bool{"before": true, "after": false} {
		s := f.server()
		f.machine(name, s)
		joins := f.livesUntil(name, before, func() bool {
			m := &v1alpha1.OnecloudMachine{}
			f.Get(m, name)
			return m.Status.Phase == v1alpha1.MachineRunning
		})
		f.remove(name)
		goes := f.livesUntil(name, before, func() bool {
			err := f.Client.Get(f.Context(), client.ObjectKey{Namespace: namespace, Name: name}, &v1alpha1.OnecloudMachine{})
			return apierrors.IsNotFound(err)
		})
		f.UntilGone(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, name)
		t.Logf("%s: %d lives until it ran, %d until it had gone: %q", name, len(joins), len(goes), append(joins, goes...))
		if len(joins) < 4 || len(goes) < 3 {
			t.Error("it was hardly killed")
		}
		if got := s.commands(); !slices.Equal(got, []string{"precheck", "join", ""}) {
			t.Errorf("%s ran %q", name, got)
		}
	}
}

// livesUntil starts one operator after another, each of which dies at a write for a machine, until end returns true. It returns the writes of each.
func (f *machinesTest) livesUntil(machine string, before bool, end func() bool) (writes [][]string) {
	f.Helper()
	for i := range 60 {
		l := &life{machine: machine, before: before, last: i%4 + 1, over: make(chan struct{})}
		f.StartOperator(func(launch *env.Launch) {
			launch.Options.Image, launch.Options.Lease = "registry.example.org/ocadm:v0", "" // a dead one does not release its lease
			launch.Config.WrapTransport = l.wrap
		})
		ended := f.lives(l, end)
		f.StopOperator()
		writes = append(writes, l.wrote())
		if ended {
			return writes
		}
	}
	f.Fatalf("machine %s does not get on: %q", machine, writes)
	return nil
}

// lives waits until an operator is dead or end returns true, and reports the latter.
func (f *machinesTest) lives(l *life, end func() bool) bool {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), env.Patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-l.over:
			return false
		case <-ctx.Done():
			f.Fatalf("the operator neither writes nor is the machine where it should be; it wrote %q", l.wrote())
		case <-tick.C:
			if end() {
				return true
			}
		}
	}
}

// life is the life of an operator from the API server's view. It ends with the last of its writes for a machine, before or after that is sent.
type life struct {
	machine string
	last    int
	before  bool

	mu   sync.Mutex
	done []string
	over chan struct{}
}

var errDead = errors.New("the operator is dead")

func (l *life) wrote() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.done)
}

func (l *life) dead() bool {
	select {
	case <-l.over:
		return true
	default:
		return false
	}
}

func (l *life) wrap(next http.RoundTripper) http.RoundTripper {
	return harness.RoundTrip(func(r *http.Request) (*http.Response, error) {
		if l.dead() {
			return nil, errDead
		}
		if !l.counts(r) {
			return next.RoundTrip(r)
		}
		l.mu.Lock() // one write at a time: no other may be under way when this life ends
		defer l.mu.Unlock()
		if l.dead() {
			return nil, errDead
		}
		last := len(l.done)+1 == l.last
		if last && l.before && l.last > 1 { // the first one is sent: without any write a machine makes no progress
			close(l.over)
			return nil, errDead
		}
		l.done = append(l.done, r.Method+" "+path.Base(strings.TrimSuffix(r.URL.Path, "/status")))
		answer, err := next.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
		if !last {
			return answer, err
		}
		close(l.over)
		if err == nil {
			_ = answer.Body.Close()
		}
		return nil, errDead
	})
}

// counts reports whether a request writes an object of the machine. Events do not matter.
func (l *life) counts(r *http.Request) bool {
	if r.Method == http.MethodGet || strings.HasSuffix(r.URL.Path, "/events") || strings.Contains(r.URL.Path, "/events/") {
		return false
	}
	if strings.Contains(r.URL.Path, l.machine) {
		return true
	}
	if r.GetBody == nil {
		return false
	}
	body, err := r.GetBody()
	if err != nil {
		return false
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	return err == nil && strings.Contains(string(text), l.machine)
}
