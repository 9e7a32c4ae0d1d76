// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/reconcile"
	"yunion.io/x/ocadm/operatorctl/release"
)

// patience of a test that waits for something that comes in milliseconds on an idle machine.
const patience = time.Minute

// world is an API server in memory, and operators that follow each other.
type world struct {
	*testing.T
	client  client.WithWatch
	actions []Action
	silence time.Duration

	mu   sync.Mutex
	said []string // what the steps did
	stop func()
}

var key = client.ObjectKey{Namespace: "n", Name: "c"}

func newWorld(t *testing.T, actions func(*world) []Action) *world {
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: "cloud"}}
	w := &world{T: t, client: fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).WithStatusSubresource(&v1alpha1.OnecloudOperation{}, &v1alpha1.OnecloudCluster{}).Build()}
	w.actions = actions(w)
	w.start()
	t.Cleanup(func() { w.stop() })
	return w
}

// start starts an operator. w.stop kills it: what it did not write is lost.
func (w *world) start() {
	ctx, cancel := context.WithCancel(w.Context())
	c := New(Options{Client: w.client, Direct: w.client, Events: &recorder{}, Actions: w.actions, Settle: time.Millisecond, Silence: w.silence, Probes: []Probe{}, Means: Means{
		Pods: w.client, Preview: func(context.Context, *v1alpha1.OnecloudCluster) (reconcile.Preview, error) {
			return reconcile.Preview{Next: &release.Release{}}, nil
		},
	}})
	var all sync.WaitGroup
	all.Go(func() { _ = c.Start(ctx) })
	all.Go(func() {
		for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; {
			select {
			case <-ctx.Done():
			case <-c.Woken():
			case <-tick.C:
			}
			if _, err := c.Reconcile(ctx, ctrl.Request{NamespacedName: key}); err != nil && ctx.Err() == nil {
				w.Log(err)
			}
		}
	})
	w.stop = func() {
		cancel()
		all.Wait()
	}
}

type recorder struct{}

var _ events.EventRecorder = (*recorder)(nil)

func (*recorder) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

func (w *world) say(what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = append(w.said, what)
}

func (w *world) create(name string, change ...func(*v1alpha1.OnecloudOperation)) {
	w.Helper()
	o := op(name, 0, "", "")
	o.CreationTimestamp, o.UID = metav1.Now(), types.UID(name)
	for _, f := range change {
		f(o)
	}
	if err := w.client.Create(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

func (w *world) get(name string) *v1alpha1.OnecloudOperation {
	w.Helper()
	o := &v1alpha1.OnecloudOperation{}
	if err := w.client.Get(w.Context(), client.ObjectKey{Namespace: "n", Name: name}, o); err != nil {
		w.Fatal(err)
	}
	return o
}

func (w *world) control(name, value string) {
	w.Helper()
	if err := setControl(w.Context(), w.client, w.get(name), value); err != nil {
		w.Fatal(err)
	}
}

// until waits for a phase.
func (w *world) until(name string, phase v1alpha1.OperationPhase) *v1alpha1.OnecloudOperation {
	w.Helper()
	deadline := time.Now().Add(patience)
	for {
		o := w.get(name)
		if o.Status.Phase == phase {
			return o
		}
		if time.Now().After(deadline) {
			w.Fatalf("%s is %s, want %s: %+v", name, o.Status.Phase, phase, o.Status)
		}
		time.Sleep(time.Millisecond)
	}
}

func (w *world) wantSaid(want ...string) {
	w.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Equal(w.said, want) {
		w.Errorf("steps did %q, want %q", w.said, want)
	}
}

// does is a step that says its name.
func (w *world) does(name string, more ...func(context.Context, *Run, workflow.Reporter) error) Step {
	return Step{Name: name, Short: "Do " + name, Run: func(ctx context.Context, r *Run, report workflow.Reporter) error {
		w.say(name)
		report.Changed("did %s", name)
		for _, f := range more {
			if err := f(ctx, r, report); err != nil {
				return err
			}
		}
		return nil
	}}
}

// looks is a step that changes nothing.
func (w *world) looks(name string, more ...func(context.Context, *Run, workflow.Reporter) error) Step {
	s := w.does(name, more...)
	s.ReadOnly = true
	return s
}

func blocks(ctx context.Context, _ *Run, _ workflow.Reporter) error {
	<-ctx.Done()
	return ctx.Err()
}

func fails(context.Context, *Run, workflow.Reporter) error { return errors.New("broken") }
