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
	"yunion.io/x/ocadm/test/require"
)

// patience bounds a test's wait for something that takes milliseconds on an idle machine.
const patience = time.Minute

// fixture is an in-memory API server with successive operators.
type fixture struct {
	*testing.T
	client  client.WithWatch
	actions []Action
	silence time.Duration

	mu   sync.Mutex
	said []string // what the steps did
	stop func()
}

var key = client.ObjectKey{Namespace: "n", Name: "c"}

func newFixture(t *testing.T, actions func(*fixture) []Action) *fixture {
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c", UID: "cloud"}}
	fx := &fixture{T: t, client: fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).WithStatusSubresource(&v1alpha1.OnecloudOperation{}, &v1alpha1.OnecloudCluster{}).Build()}
	fx.actions = actions(fx)
	fx.start()
	t.Cleanup(func() { fx.stop() })
	return fx
}

// start starts an operator. fx.stop kills it: what it has not written is lost.
func (fx *fixture) start() {
	ctx, cancel := context.WithCancel(fx.Context())
	c := New(Options{Events: &recorder{}, Actions: fx.actions, Settings: Settings{Settle: time.Millisecond, Silence: fx.silence}, Means: Means{
		Client: fx.client, Direct: fx.client, Probes: []Probe{}, Pods: fx.client, Preview: func(context.Context, *v1alpha1.OnecloudCluster) (reconcile.Preview, error) {
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
				fx.Log(err)
			}
		}
	})
	fx.stop = func() {
		cancel()
		all.Wait()
	}
}

type recorder struct{}

var _ events.EventRecorder = (*recorder)(nil)

func (*recorder) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

func (fx *fixture) say(what string) {
	fx.mu.Lock()
	defer fx.mu.Unlock()
	fx.said = append(fx.said, what)
}

func (fx *fixture) create(name string, change ...func(*v1alpha1.OnecloudOperation)) {
	fx.Helper()
	o := op(name, 0, "", "")
	o.CreationTimestamp, o.UID = metav1.Now(), types.UID(name)
	for _, f := range change {
		f(o)
	}
	require.NoError(fx, fx.client.Create(fx.Context(), o))
}

func (fx *fixture) get(name string) *v1alpha1.OnecloudOperation {
	fx.Helper()
	o := &v1alpha1.OnecloudOperation{}
	require.NoError(fx, fx.client.Get(fx.Context(), client.ObjectKey{Namespace: "n", Name: name}, o))
	return o
}

func (fx *fixture) control(name, value string) {
	fx.Helper()
	require.NoError(fx, SetControl(fx.Context(), fx.client, fx.get(name), value))
}

// until waits for an operation's phase.
func (fx *fixture) until(name string, phase v1alpha1.OperationPhase) *v1alpha1.OnecloudOperation {
	fx.Helper()
	deadline := time.Now().Add(patience)
	for {
		o := fx.get(name)
		if o.Status.Phase == phase {
			return o
		}
		if time.Now().After(deadline) {
			fx.Fatalf("%s is %s, want %s: %+v", name, o.Status.Phase, phase, o.Status)
		}
		time.Sleep(time.Millisecond)
	}
}

func (fx *fixture) wantSaid(want ...string) {
	fx.Helper()
	fx.mu.Lock()
	defer fx.mu.Unlock()
	if !slices.Equal(fx.said, want) {
		fx.Errorf("steps did %q, want %q", fx.said, want)
	}
}

// does returns a step that records its name.
func (fx *fixture) does(name string, more ...func(context.Context, *Run, workflow.Reporter) error) Step {
	return Step{Name: name, Short: "Do " + name, Run: func(ctx context.Context, r *Run, report workflow.Reporter) error {
		fx.say(name)
		report.Changed("did %s", name)
		for _, f := range more {
			if err := f(ctx, r, report); err != nil {
				return err
			}
		}
		return nil
	}}
}

// looks returns a step that changes nothing.
func (fx *fixture) looks(name string, more ...func(context.Context, *Run, workflow.Reporter) error) Step {
	s := fx.does(name, more...)
	s.ReadOnly = true
	return s
}

func blocks(ctx context.Context, _ *Run, _ workflow.Reporter) error {
	<-ctx.Done()
	return ctx.Err()
}

func fails(context.Context, *Run, workflow.Reporter) error { return errors.New("broken") }
