// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

// An API server that is down for a minute and a half does not end an operation.
func TestStatusIsWrittenAgain(t *testing.T) {
	o := op("a", 1, "", "")
	k := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(o).WithStatusSubresource(o).Build()
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		away := interceptor.NewClient(k, interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				if time.Since(begin) < 90*time.Second {
					return errors.New("connection refused")
				}
				return c.SubResource(sub).Patch(ctx, obj, p, opts...)
			},
		})
		r := newRecord(away, &recorder{}, o.DeepCopy())
		if err := r.Update(t.Context(), func(s *v1alpha1.OnecloudOperationStatus) { s.Message = "written: ocadm operation resume a" }); err != nil {
			t.Error(err)
		}
	})
	now := &v1alpha1.OnecloudOperation{}
	if err := k.Get(t.Context(), client.ObjectKeyFromObject(o), now); err != nil || now.Status.Message != "written: ocadm operation resume --name c --namespace n a" {
		t.Errorf("%+v, %v", now.Status, err)
	}
}

// TestLostAnswer checks that a worker goes on after a write whose answer was lost: the API server rejects the same write the second time.
func TestLostAnswer(t *testing.T) {
	o := op("a", 1, "", "")
	o.Status.Worker, o.Status.Message, o.Status.Step = &v1alpha1.OperationWorker{Pod: "p"}, "waiting", "join"
	k := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(o).WithStatusSubresource(o).Build()
	tries := 0
	lossy := interceptor.NewClient(k, interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			err := c.SubResource(sub).Patch(ctx, obj, p, opts...)
			if tries++; tries == 1 {
				return errors.Join(errors.New("connection reset"), err)
			}
			if err != nil { // as the API server answers
				return apierrors.NewInvalid(v1alpha1.GroupVersion.WithKind(v1alpha1.OperationKind).GroupKind(), obj.GetName(), nil)
			}
			return nil
		},
	})
	require.NoError(t, k.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	r := newRecord(lossy, &recorder{}, o)
	r.worker = "p"
	if err := r.Update(t.Context(), func(s *v1alpha1.OnecloudOperationStatus) { s.Message = "" }); err != nil || tries < 2 {
		t.Errorf("%d tries: %v", tries, err)
	}
	r.worker = "another"
	if err := r.Update(t.Context(), func(s *v1alpha1.OnecloudOperationStatus) { s.Step = "" }); !errors.Is(err, errTaken) {
		t.Errorf("a worker that does not own the operation: %v", err)
	}
}

// An operator that continues an operation may start before the API server answers. The log of the earlier process must not be lost.
func TestLogOfEarlierProcess(t *testing.T) {
	o := op("a", 1, "", "")
	earlier := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: LogName(o.Name)}, Data: map[string]string{LogKey: "earlier\n"}}
	k := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(o, earlier).WithStatusSubresource(o).Build()
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		starting := interceptor.NewClient(k, interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if tries++; tries < 3 {
				return apierrors.NewServiceUnavailable("starting")
			}
			return c.Get(ctx, key, o, opts...)
		}})
		x := &execution{run: &Run{Operation: o, Means: Means{Client: k}, record: newRecord(k, &recorder{}, o.DeepCopy())}}
		x.control(t.Context())
		require.NoError(t, x.perform(t.Context(), starting, slog.New(slog.DiscardHandler)))
		if text := x.run.record.log.lines.String(); !strings.HasPrefix(text, "earlier\n") {
			t.Errorf("%q", text)
		}
	})
}

// A wait reports its reason again and again; the log has it when it changes.
func TestLogOfAWait(t *testing.T) {
	l := &log{op: op("a", 1, "", "")}
	for _, why := range []string{"node n1 is pulling a and 4 more", "node n1 is pulling a and 4 more", "node n1 is pulling b", "node n1 is pulling b"} {
		l.add(workflow.Event{Type: workflow.PhaseWaiting, Phase: "pull", Message: "the images", Why: why})
	}
	if n := strings.Count(l.lines.String(), "\n"); n != 2 {
		t.Errorf("%d lines:\n%s", n, l.lines.String())
	}
}

// TestWarningsOfAFailure: a step that fails keeps the warnings that it has recorded, and none of another step.
func TestWarningsOfAFailure(t *testing.T) {
	warning, failure, other := v1alpha1.OperationFinding{Code: "W", Warning: true}, v1alpha1.OperationFinding{Code: "E"}, v1alpha1.OperationFinding{Code: "F"}
	list := func(l ...v1alpha1.OperationFinding) []v1alpha1.OperationFinding { return l }
	if got := failedWith(list(warning, failure), list(failure)); !slices.Equal(got, list(failure, warning)) {
		t.Errorf("%+v", got)
	}
	if got := failedWith(list(warning, other), list(failure)); !slices.Equal(got, list(failure)) {
		t.Errorf("of another step: %+v", got)
	}
}
