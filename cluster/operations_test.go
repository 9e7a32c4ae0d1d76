// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
)

func oneOperation(name string, phase v1alpha1.OperationPhase) *Operation {
	o := &Operation{Spec: v1alpha1.OnecloudOperationSpec{Cloud: "default", Action: "Update"}}
	o.Namespace, o.Name = "onecloud", name
	o.Status.Phase = phase
	return o
}

func at(second int) metav1.Time { return metav1.NewTime(time.Unix(int64(second), 0)) }

// TestSameOperationIsFollowed checks that a repeated request gets the first operation while that may still succeed.
func TestSameOperationIsFollowed(t *testing.T) {
	there := func(name string, change func(*Operation)) *Operation {
		o := oneOperation(name, v1alpha1.OperationRunning)
		o.Spec.Requester, o.Spec.Update = "root@before", &v1alpha1.UpdateParameters{Version: "v2"}
		change(o)
		return o
	}
	for name, c := range map[string]struct {
		there *Operation
		again bool
	}{
		"it runs":             {there("a", func(*Operation) {}), true},
		"it waits":            {there("a", func(o *Operation) { o.Status.Phase = "" }), true},
		"it is paused":        {there("a", func(o *Operation) { o.Status.Phase = v1alpha1.OperationPaused }), true},
		"it failed":           {there("a", func(o *Operation) { o.Status.Phase = v1alpha1.OperationFailed }), false},
		"it goes back":        {there("a", func(o *Operation) { o.Status.Phase = v1alpha1.OperationReverting }), false},
		"another version":     {there("a", func(o *Operation) { o.Spec.Update.Version = "v3" }), false},
		"another cloud":       {there("a", func(o *Operation) { o.Spec.Cloud = "other" }), false},
		"it does not go back": {there("a", func(o *Operation) { o.Spec.OnFailure = v1alpha1.OnFailurePause }), false},
		"it is cancelled": {there("a", func(o *Operation) {
			o.Annotations = map[string]string{v1alpha1.AnnotationControl: v1alpha1.OperationCancel}
		}), false},
	} {
		scheme := kube.Scheme()
		k := fake.NewClientBuilder().WithScheme(scheme).WithObjects(c.there, theCloud("")).Build()
		o := there("", func(o *Operation) { o.Spec.Requester, o.Status.Phase = "root@now", "" })
		again, err := OperateOnce(t.Context(), k, o)
		if err != nil || again != c.again || (o.Name == "a") != c.again || o.Name == "" {
			t.Errorf("%s: %q, %t, %v", name, o.Name, again, err)
		}
		o = there("", func(o *Operation) { o.Spec.Cloud = "elsewhere" })
		if _, err := OperateOnce(t.Context(), k, o); !isCode(err, "OCA-7002") || o.Name != "" {
			t.Errorf("an operation of a cloud that does not exist: %q, %v", o.Name, err)
		}
	}
}

func TestOperationTree(t *testing.T) {
	o := oneOperation("update-1", v1alpha1.OperationReverting)
	o.Status.Start, o.Status.Cause = at(0), "phase region: it does not start"
	o.Status.Plan = []string{"v1 → v2"}
	o.Status.Steps = []v1alpha1.OperationStep{
		{Name: "check", Short: "Check", State: v1alpha1.StepDone, Start: at(0), End: at(2), Evidence: []string{"40 images"}},
		{Name: "back", Short: "Go back", State: v1alpha1.StepRunning, Start: at(4), Message: "waits for region", Done: 1, Total: 4, Unit: "components", Revert: true},
		{Name: "end", Short: "End", State: v1alpha1.StepPending},
	}
	o.Status.Findings = []v1alpha1.OperationFinding{{Code: "OCA-7051", What: "Not available", Cause: "region", Remedy: "ocadm cluster status"}}
	want := `Update update-1 of cloud onecloud/default: Reverting (10s)
├─ plan: v1 → v2
├─ ✓ Check (2s)
│  └─ 40 images
├─ ▸ Go back (6s) [=====               ] 1/4 components: waits for region
├─ · End
└─ error OCA-7051: Not available: region
   └─ ocadm cluster status`
	if d := cmp.Diff(want, strings.Join(OperationTree(o, at(10).Time), "\n")); d != "" {
		t.Error(d)
	}
	before := oneOperation("update-1", v1alpha1.OperationRunning)
	before.Status.Steps = o.Status.Steps[:1]
	lines := []string{"Update update-1 of cloud onecloud/default: Reverting", "back: waits for region"}
	if d := cmp.Diff(lines, OperationChanges(before, o)); d != "" {
		t.Error(d)
	}
}

// A finding is printed once: messages name it by its code, and a table has one short line for each operation.
func TestFindingOfAnOperationIsPrintedOnce(t *testing.T) {
	o := oneOperation("update-1", v1alpha1.OperationFailed)
	o.Status.Message = "phase check: Not available: region\nNot available: region\nNo backup: none; nothing was changed"
	o.Status.Steps = []v1alpha1.OperationStep{{Name: "check", State: v1alpha1.StepFailed, Message: "Not available: region\nNot available: region\nNo backup: none"}}
	o.Status.Findings = []v1alpha1.OperationFinding{{Code: "OCA-7051", What: "Not available", Cause: "region"}, {Code: "OCA-7052", What: "No backup", Cause: "none"}}
	want := `Update update-1 of cloud onecloud/default: Failed: phase check: OCA-7051, OCA-7052; nothing was changed
├─ ✗ check: OCA-7051, OCA-7052
├─ error OCA-7051: Not available: region
└─ error OCA-7052: No backup: none`
	if d := cmp.Diff(want, strings.Join(OperationTree(o, at(10).Time), "\n")); d != "" {
		t.Error(d)
	}
	lines := []string{"Update update-1 of cloud onecloud/default: Failed: phase check: OCA-7051, OCA-7052; nothing was changed", "check: failed: OCA-7051, OCA-7052"}
	if d := cmp.Diff(lines, OperationChanges(nil, o)); d != "" {
		t.Error(d)
	}
	if got := MessageLine(o); got != "phase check: OCA-7051, OCA-7052; nothing was changed" {
		t.Errorf("%q", got)
	}
	running := oneOperation("update-3", v1alpha1.OperationRunning)
	running.Status.Findings = []v1alpha1.OperationFinding{{Code: "OCA-7074", What: "Not known", Cause: "no plugin", Warning: true}}
	running.Status.Steps = []v1alpha1.OperationStep{{Name: "check", State: v1alpha1.StepRunning, Message: "OCA-7074 Not known: no plugin"}}
	if got := OperationChanges(running, running); len(got) > 0 || brief(running, running.Status.Steps[0].Message) != "OCA-7074 Not known: no plugin" {
		t.Errorf("a warning, which is printed only here: %q", got)
	}
	o.Status.Findings = nil
	if got := MessageLine(o); got != "phase check: Not available: region …" {
		t.Errorf("%q", got)
	}
	if o.Status.Message = strings.Repeat("é", 100); MessageLine(o) != strings.Repeat("é", messageRunes)+" …" {
		t.Errorf("%q", MessageLine(o))
	}
	paused := oneOperation("update-2", v1alpha1.OperationPaused)
	paused.Status.Message = "Not available: region"
	paused.Status.Findings = []v1alpha1.OperationFinding{{Code: "OCA-7051", What: "Not available", Cause: "region"}}
	if f := finding.Of(Outcome(paused))[0]; f.Cause != "OCA-7051" || !slices.Equal(f.Evidence, []string{"OCA-7051 Not available: region"}) {
		t.Errorf("%+v", f)
	}
}

func TestControl(t *testing.T) {
	scheme := kube.Scheme()
	ended := oneOperation("ended", v1alpha1.OperationSucceeded)
	half := oneOperation("half", v1alpha1.OperationPaused)
	half.Status.Steps = []v1alpha1.OperationStep{{Name: "databases-back", Revert: true}}
	half.Status.Databases = &v1alpha1.OperationDatabases{Restoring: []string{"keystone"}}
	half.Annotations = map[string]string{v1alpha1.AnnotationControl: v1alpha1.OperationPause}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(oneOperation("a", v1alpha1.OperationRunning), ended, half).Build()
	for _, step := range []struct {
		name, value string
		changed     bool
		code        string
	}{
		{"a", v1alpha1.OperationPause, true, ""},
		{"a", v1alpha1.OperationPause, false, ""},
		{"a", "", true, ""},
		{"a", "", false, ""},
		{"a", v1alpha1.OperationCancel, true, ""},
		{"a", "", false, "OCA-7056"},
		{"ended", v1alpha1.OperationCancel, false, "OCA-7056"},
		{"nothing", v1alpha1.OperationCancel, false, "OCA-7054"},
		{"half", v1alpha1.OperationCancel, false, "OCA-7077"},
		{"half", "", true, ""},
	} {
		changed, err := Control(t.Context(), c, client.ObjectKey{Namespace: "onecloud", Name: step.name}, step.value)
		code := ""
		if l := finding.Of(err); len(l) > 0 {
			code = l[0].Code
		}
		if changed != step.changed || code != step.code || err != nil && code == "" {
			t.Errorf("%+v: %t, %v", step, changed, err)
		}
	}
	o, err := OperationOf(t.Context(), c, client.ObjectKey{Namespace: "onecloud", Name: "a"})
	if err != nil || o.Annotations[v1alpha1.AnnotationControl] != v1alpha1.OperationCancel || o.Kind != v1alpha1.OperationKind {
		t.Errorf("%v: %+v", err, o)
	}
}

func TestOutcome(t *testing.T) {
	failed := oneOperation("a", v1alpha1.OperationFailed)
	failed.Status.Findings = []v1alpha1.OperationFinding{{Code: "OCA-7053", Warning: true}, {Code: "OCA-7051"}, {Code: "OCA-7052"}}
	for _, c := range []struct {
		o    *Operation
		want []string
	}{
		{oneOperation("a", v1alpha1.OperationSucceeded), nil},
		{oneOperation("a", v1alpha1.OperationReverted), []string{"OCA-7057"}},
		{failed, []string{"OCA-7051", "OCA-7052"}},
	} {
		var got []string
		for _, f := range finding.Of(Outcome(c.o)) {
			got = append(got, f.Code)
		}
		if d := cmp.Diff(c.want, got); d != "" {
			t.Errorf("%s: %s", c.o.Status.Phase, d)
		}
	}
}

// While the API server does not answer, what is known about an operation is shown as such. A wait whose credentials have expired ends.
func TestFollowReportsSilence(t *testing.T) {
	refused, expired := errors.New("connection refused"), error(apierrors.NewUnauthorized("expired"))
	for _, test := range []struct {
		answer  error
		times   int // of the answer
		timeout time.Duration
		last    string
		ends    func(error) bool
	}{
		{refused, 1, 5 * time.Second, "api-server: the API server does not answer: connection refused", func(err error) bool {
			f := finding.Of(err)
			return errors.Is(err, context.DeadlineExceeded) && len(f) == 1 && finding.ExitStatus(err) == finding.ExitTimeout && f[0].Cause == "Running" && f[0].Remedy == "ocadm operation show a"
		}},
		{expired, math.MaxInt, time.Hour, "api-server: expired", apierrors.IsUnauthorized},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := oneOperation("a", v1alpha1.OperationRunning)
			asked := 0
			k := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kube.Scheme()).Build(), interceptor.Funcs{
				List: func(_ context.Context, _ client.WithWatch, l client.ObjectList, _ ...client.ListOption) error {
					if asked++; asked >= 3 && asked-3 < test.times { // the first asks for the permission
						return test.answer
					}
					if all, typed := l.(*v1alpha1.OnecloudOperationList); typed {
						all.Items = []Operation{*o}
					}
					return nil
				},
				Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
					w := watch.NewFake()
					w.Stop()
					return w, nil
				},
			})
			ctx, cancel := context.WithTimeout(t.Context(), test.timeout)
			defer cancel()
			var seen []string
			var before *Operation
			_, err := FollowOperation(ctx, k, client.ObjectKeyFromObject(o), func(o *Operation) {
				seen = append(seen, OperationChanges(before, o)...)
				before = o
			})
			want := []string{"Update a of cloud onecloud/default: Running", test.last}
			if !slices.Equal(seen, want) || !test.ends(err) {
				t.Errorf("%q, %v", seen, err)
			}
		})
	}
}
