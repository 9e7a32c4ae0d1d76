// SPDX-License-Identifier: Apache-2.0

package nodecerts

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/test/require"
)

type silent struct{ workflow.Reporter }

func (silent) Info(string, ...any)           {}
func (silent) Changed(string, ...any)        {}
func (silent) Waiting(string, string)        {}
func (silent) Progress(int64, int64, string) {}

// end is the end of a Job: its pod was Ready for a moment, or never ran.
type end struct{ ran, complete bool }

// jobsEnd returns a cluster whose Jobs end as given, by node. asked lists the nodes in the order of their Jobs.
func jobsEnd(t *testing.T, ends map[string]end, asked *[]string) client.WithWatch {
	t.Helper()
	s := runtime.NewScheme()
	require.NoError(t, clientgoscheme.AddToScheme(s))
	require.NoError(t, v1alpha1.AddToScheme(s))
	reports := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: certreport.ConfigMap}, Data: map[string]string{}}
	objects := []client.Object{cloud(), reports}
	for node := range ends {
		raw, err := json.Marshal(report(time.Now().Add(-time.Hour), ""))
		require.NoError(t, err)
		reports.Data[node] = string(raw)
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node, Labels: map[string]string{v1alpha1.LabelControlPlane: ""}},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	}
	create := func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		j, ok := o.(*batchv1.Job)
		if !ok {
			return c.Create(ctx, o, opts...)
		}
		node := j.Annotations[AnnotationNode]
		*asked = append(*asked, node)
		if err := c.Create(ctx, j, opts...); err != nil {
			return err
		}
		go func() {
			time.Sleep(50 * time.Millisecond)
			if ends[node].ran {
				j.Status.Ready = new(int32(1))
				if err := c.Status().Update(ctx, j); err != nil {
					t.Error(err)
				}
				time.Sleep(50 * time.Millisecond)
			}
			is := batchv1.JobCondition{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonDeadlineExceeded}
			if ends[node].complete {
				is = batchv1.JobCondition{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}
				raw, _ := json.Marshal(report(time.Now().Add(time.Hour), ""))
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name, Labels: map[string]string{batchv1.JobNameLabel: j.Name}},
					Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
						Terminated: &corev1.ContainerStateTerminated{Message: string(raw)}}}}}}
				if err := c.Create(ctx, pod); err != nil {
					t.Error(err)
				}
			}
			j.Status.Ready, j.Status.Conditions = nil, []batchv1.JobCondition{is}
			if err := c.Status().Update(ctx, j); err != nil {
				t.Error(err)
			}
		}()
		return nil
	}
	return fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithStatusSubresource(&batchv1.Job{}).
		WithIndex(&batchv1.Job{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).
		WithInterceptorFuncs(interceptor.Funcs{Create: create}).Build()
}

// A node whose clock is ahead does not put off the next look, and one whose clock is behind does not cause one after the other.
func TestReportOfAWrongClock(t *testing.T) {
	for _, ahead := range []time.Duration{365 * 24 * time.Hour, -time.Hour} {
		r := report(time.Now().Add(time.Hour), "")
		r.Time = time.Now().Add(ahead)
		raw, err := json.Marshal(r)
		require.NoError(t, err)
		c := fake.NewClientBuilder().WithObjects(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "p", Labels: map[string]string{batchv1.JobNameLabel: "j"}},
			Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Message: string(raw)}}}}}}).Build()
		got, err := reportOf(t.Context(), c, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "j"}})
		if age := time.Since(got.Time); err != nil || age < 0 || age > time.Minute || len(got.Certificates) != 1 {
			t.Errorf("%s: %+v, %v", ahead, got, err)
		}
	}
}

// Only what is due is renewed again by itself: the remedy of a failed renewal of everything must not promise that.
func TestRemedyOfRenewal(t *testing.T) {
	for all, want := range map[bool]string{false: "the operator retries automatically", true: "ocadm certs renew --all "} {
		synctest.Test(t, func(t *testing.T) {
			var asked []string
			k := jobsEnd(t, map[string]end{"a": {true, false}}, &asked)
			o := renewed(v1alpha1.OperationRunning, time.Now())
			o.Namespace, o.Spec.RenewCertificates = "onecloud", &v1alpha1.RenewCertificatesParameters{All: all}
			r := &operation.Run{Operation: o, Means: operation.Means{Client: k, Direct: k}}
			r.Pods = k
			list := finding.Of(renewer{"image:1"}.renew(t.Context(), r, silent{}))
			if len(list) != 1 || !strings.Contains(list[0].Remedy, want) {
				t.Errorf("all %t: %+v", all, list)
			}
		})
	}
}

// A node on which the Job cannot run does not block the renewal of the others; one on which it failed does. All failures are reported.
func TestRenewGoesOn(t *testing.T) {
	for name, c := range map[string]struct {
		ends  map[string]end
		asked string
		named string // the nodes of the findings
	}{
		"all well":                 {map[string]end{"a": {true, true}, "b": {true, true}}, "a b", ""},
		"it cannot run on one":     {map[string]end{"a": {}, "b": {true, true}, "c": {}}, "a b c", "a c"},
		"it failed on one":         {map[string]end{"a": {true, false}, "b": {true, true}}, "a", "a"},
		"it cannot run, and fails": {map[string]end{"a": {}, "b": {true, false}, "c": {true, true}}, "a b", "a b"},
	} {
		// In the bubble, the Jobs change once they are being watched: the fake client has no earlier events.
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked []string
				k := jobsEnd(t, c.ends, &asked)
				o := renewed(v1alpha1.OperationRunning, time.Now())
				o.Namespace = "onecloud"
				r := &operation.Run{Operation: o, Means: operation.Means{Client: k, Direct: k}}
				r.Pods = k
				err := renewer{"image:1"}.renew(t.Context(), r, silent{})
				var named []string
				for _, f := range finding.Of(err) {
					named = append(named, strings.Fields(strings.TrimPrefix(f.What, "The certificates of node "))[0])
				}
				slices.Sort(named)
				if strings.Join(asked, " ") != c.asked || strings.Join(named, " ") != c.named || (err == nil) != (c.named == "") {
					t.Errorf("asked %v, named %v: %v", asked, named, err)
				}
			})
		})
	}
}

// A renewal does not wait for operations of the cloud: an update that rests for weeks must not let certificates expire.
func TestRenewalIsBeside(t *testing.T) {
	if a := Action("image:1"); !a.Beside || a.Outside || a.Job != nil || len(a.Revert) > 0 {
		t.Errorf("%+v", a)
	}
}
