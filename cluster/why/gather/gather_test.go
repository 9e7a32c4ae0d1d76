// SPDX-License-Identifier: Apache-2.0

package gather

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/require"
)

var now = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

const secret = "kX3-canary-9pQ"

func objects() []client.Object {
	pod := func(namespace, name string, ready bool) *corev1.Pod {
		status := corev1.ConditionFalse
		if ready {
			status = corev1.ConditionTrue
		}
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"kubectl.kubernetes.io/last-applied-configuration": secret}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Args: []string{"--url=mysql://u:pw-in-a-url@h/db"}, Env: []corev1.EnvVar{{Name: "DB_PASSWORD", Value: "unknown-to-us"}}}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status}},
				ContainerStatuses: []corev1.ContainerStatus{{Name: "main", RestartCount: 1, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}}}
	}
	return []client.Object{
		&v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default"},
			Spec: v1alpha1.OnecloudClusterSpec{MySQL: v1alpha1.DatabaseServer{Host: "10.0.0.5", Password: "password-in-the-spec"}}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default-credentials"}, Data: map[string][]byte{"region": []byte(secret)}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}}},
		pod("onecloud", "well", true), pod("onecloud", "ill", false), pod("elsewhere", "foreign", false),
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: "foreign"}},
	}
}

func options() Options {
	return Options{Cloud: client.ObjectKey{Namespace: "onecloud", Name: "default"}, Now: now,
		Log: func(_ context.Context, _, pod string, o *corev1.PodLogOptions) ([]byte, error) {
			return []byte("pod " + pod + "\nlogging in with " + secret + " and " + base64.StdEncoding.EncodeToString([]byte(secret)) +
				"\nAuthorization: Bearer abcdefghijklmnopqrstuvwxyz\nadmin_password: hunter22\ntoken abcdef.0123456789abcdef\n" +
				"open /var/run/secrets/kubernetes.io/serviceaccount/token: no such file\n"), nil
		},
		Kubelet: func(_ context.Context, _, path string) ([]byte, error) {
			if path == "configz" {
				return []byte(`{"kubeletconfig":{"imageGCHighThresholdPercent":95,"evictionHard":{"nodefs.available":"3","imagefs.available":"2%"}}}`), nil
			}
			return []byte(`{"node":{"fs":{"availableBytes":5,"capacityBytes":100,"inodesFree":7,"inodes":10},"runtime":{"imageFs":{"availableBytes":6,"capacityBytes":100}}}}`), nil
		}}
}

func build(t *testing.T, objects []client.Object, f interceptor.Funcs) client.Client {
	t.Helper()
	scheme := kube.Scheme()
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(f).
		WithIndex(&appsv1.Deployment{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).Build()
}

func TestNoSecretLeaves(t *testing.T) {
	o := options()
	o.Everything = true
	s := Snapshot(t.Context(), build(t, objects(), interceptor.Funcs{}), o)
	raw, err := json.Marshal(s)
	if err != nil || len(s.Missing) > 0 || s.Refused != nil {
		t.Fatalf("%v %v %v", err, s.Missing, s.Refused)
	}
	for _, leaked := range []string{secret, base64.StdEncoding.EncodeToString([]byte(secret)), "password-in-the-spec", "unknown-to-us", "hunter22", "pw-in-a-url",
		"abcdefghijklmnopqrstuvwxyz", "abcdef.0123456789abcdef"} {
		if strings.Contains(string(raw), leaked) {
			t.Errorf("%q leaves", leaked)
		}
	}
	for _, kept := range []string{"10.0.0.5", "serviceaccount/token: no such file", "pod ill", "pod well"} {
		if !strings.Contains(string(raw), kept) {
			t.Errorf("%q is gone", kept)
		}
	}
}

// A cloud's bundle includes the logs of the operator's namespace, so the Secrets of that namespace are removed from them, too.
func TestNoSecretOfAnotherCloudLeaves(t *testing.T) {
	o := options()
	o.Everything, o.Cloud.Namespace = true, "prod"
	list := append(objects(), &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "default"}})
	s := Snapshot(t.Context(), build(t, list, interceptor.Funcs{}), o)
	raw, err := json.Marshal(s)
	if err != nil || len(s.Missing) > 0 || !strings.Contains(string(raw), "pod well") {
		t.Fatalf("%v, missing %v, %d logs", err, s.Missing, len(s.Logs))
	}
	if strings.Contains(string(raw), secret) {
		t.Error("a value of a Secret leaves")
	}
}

// If Secrets cannot be listed, their values cannot be removed from program output: a support bundle then omits that output, and says so.
func TestSecretsUnknown(t *testing.T) {
	const said = "what a program said"
	ended := func(p *corev1.Pod) {
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 3, Message: said}
	}
	all := objects()
	for _, o := range all {
		if p, ok := o.(*corev1.Pod); ok {
			ended(p)
		}
	}
	refuse := interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
		if _, ok := l.(*corev1.SecretList); ok {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", errors.New("no"))
		}
		return c.List(ctx, l, opts...)
	}}
	for _, everything := range []bool{true, false} {
		o := options()
		o.Everything = everything
		o.Journal = func(context.Context, string, string) ([]byte, error) { return []byte(said), nil }
		o.Machines = []why.Machine{{Node: "n2", Journals: map[string][]string{"kubelet": {said}}, StaticPods: map[string][]string{"etcd": {said}},
			Findings: finding.List{finding.New("OCA-7110", "The agents cannot reach the executor", "", "").With(said)}}}
		s := Snapshot(t.Context(), build(t, all, refuse), o)
		raw, err := json.Marshal(s)
		require.NoError(t, err)
		if spoke := strings.Contains(string(raw), said) || len(s.Logs) > 0; spoke == everything {
			t.Errorf("everything %t: it has what programs said: %t", everything, spoke)
		}
		if said := strings.Contains(strings.Join(s.Missing, "\n"), "container logs, journals and termination messages"); said != everything {
			t.Errorf("everything %t: %v", everything, s.Missing)
		}
		if o.Machines[0].Journals == nil || o.Machines[0].Findings[0].Evidence == nil {
			t.Error("the machine of the caller was changed")
		}
	}
}

// The logs of host agents are read although they are ready, but not those of hundreds.
func TestLogsOfHostAgents(t *testing.T) {
	list := append(objects()[:3], running("well", "n1", corev1.ConditionTrue))
	for i := range hostLogs + 5 {
		host := running(fmt.Sprintf("host-%d", i), "n1", corev1.ConditionTrue)
		host.SetLabels(map[string]string{v1alpha1.LabelComponent: "host"})
		list = append(list, host)
	}
	if s := Snapshot(t.Context(), build(t, list, interceptor.Funcs{}), options()); len(s.Logs) != hostLogs || s.Logs[0].Pod == "well" {
		t.Errorf("%d logs", len(s.Logs))
	}
}

func TestSnapshot(t *testing.T) {
	s := Snapshot(t.Context(), build(t, objects(), interceptor.Funcs{}), options())
	var pods, logs []string
	for _, p := range s.Pods {
		pods = append(pods, p.Name)
	}
	for _, l := range s.Logs {
		logs = append(logs, l.Pod)
	}
	if !slices.Equal(pods, []string{"ill", "well"}) || !slices.Equal(logs, []string{"ill", "ill"}) || len(s.Deployments) > 0 {
		t.Errorf("pods %v, logs %v, %d deployments", pods, logs, len(s.Deployments))
	}
	want := []why.Disk{
		{Node: "n1", What: "imagefs", Capacity: 100, Free: 6, RemovesImages: 5, EvictsPods: 2},
		{Node: "n1", What: "nodefs", Capacity: 100, Free: 5, Inodes: 10, InodesFree: 7, RemovesImages: 5, EvictsPods: 3},
	}
	if !slices.Equal(s.Disks, want) {
		t.Errorf("%+v", s.Disks)
	}
}

// TestJournals: a bundle has the journals of every reporting node not inspected from within; an answer only those of nodes that are not Ready.
func TestJournals(t *testing.T) {
	node := func(name string, ready corev1.ConditionStatus) client.Object {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
	}
	list := append(objects(), node("here", corev1.ConditionTrue), node("old", corev1.ConditionTrue), node("quiet", corev1.ConditionTrue), node("ill", corev1.ConditionFalse))
	o := options()
	o.Machines = []why.Machine{{Node: "here", Units: map[string]string{"kubelet": "active"}}}
	o.Journal = func(_ context.Context, node, unit string) ([]byte, error) {
		switch node {
		case "n2":
			t.Error("a node that does not report is asked")
		case "old":
			return []byte("<!doctype html>\n<a href=\"pods/\">pods/</a>"), nil
		case "quiet":
			return []byte("-- No entries --\n"), nil
		}
		return []byte(unit + " of " + node + " says " + secret + "\nline 2\n"), nil
	}
	read := func(everything bool) (out []string, missing []string) {
		o.Everything = everything
		s := Snapshot(t.Context(), build(t, list, interceptor.Funcs{}), o)
		for _, m := range s.Machines {
			for _, unit := range why.Units {
				if lines := m.Journals[unit]; len(lines) > 0 {
					out = append(out, strings.Join(lines, "|"))
				}
			}
		}
		return out, s.Missing
	}
	got, missing := read(true)
	want := []string{"containerd of ill says ***|line 2", "kubelet of ill says ***|line 2", "containerd of n1 says ***|line 2", "kubelet of n1 says ***|line 2"}
	if !slices.Equal(got, want) || len(missing) != 1 || !strings.Contains(missing[0], "node old: its kubelet has enableSystemLogQuery off") {
		t.Errorf("%q, missing %q", got, missing)
	}
	if got, missing = read(false); !slices.Equal(got, want[:2]) || len(missing) > 0 {
		t.Errorf("%q, missing %q", got, missing)
	}
}

// TestWhatCannotBeRead checks that a kind that may not be listed is named, and the others are read.
func TestWhatCannotBeRead(t *testing.T) {
	c := build(t, objects(), interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
		if _, ok := l.(*corev1.EventList); ok {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no"))
		}
		return c.List(ctx, l, opts...)
	}})
	s := Snapshot(t.Context(), c, options())
	if len(s.Pods) != 2 || len(s.Missing) != len(Namespaces) || !strings.HasPrefix(s.Missing[0], "events of ") {
		t.Errorf("%d pods, missing %q", len(s.Pods), s.Missing)
	}
}

func TestRefused(t *testing.T) {
	if s := Snapshot(t.Context(), build(t, nil, interceptor.Funcs{}), options()); s.Refused == nil || s.Refused.Code != "OCA-7002" {
		t.Errorf("without a cloud: %+v", s.Refused)
	}
	down := build(t, nil, interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errors.New("dial tcp: connection refused")
	}})
	s := Snapshot(t.Context(), down, options())
	if len(s.Missing) > 0 {
		t.Errorf("%q", s.Missing)
	}
	everything := options()
	everything.Everything = true
	if s := Snapshot(t.Context(), down, everything); !slices.Equal(s.Missing, []string{withoutValues}) {
		t.Errorf("%q", s.Missing)
	}
	if r, _ := why.Diagnose(s, ""); r.Cause == nil || r.Cause.ID != "api-unreachable" || r.Healthy {
		t.Errorf("%+v", r)
	}
}

// An API server without etcd knows no CRDs. That says nothing about the operator.
func TestUndefined(t *testing.T) {
	for want, of := range map[string]error{"OCA-7005": nil, "OCA-4203": context.DeadlineExceeded} {
		c := build(t, nil, interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			if _, is := o.(*v1alpha1.OnecloudCluster); is {
				return &meta.NoKindMatchError{}
			}
			return of
		}})
		if s := Snapshot(t.Context(), c, options()); s.Refused == nil || s.Refused.Code != want {
			t.Errorf("the API server reads with %v: %+v, want %s", of, s.Refused, want)
		}
	}
}

// A machine alone, and a support bundle without Secrets, report what is missing.
func TestRefuse(t *testing.T) {
	for code, want := range map[string]string{"OCA-4201": "the cluster: it was not queried, because none is there", "OCA-4203": ""} {
		for _, everything := range []bool{false, true} {
			o := options()
			o.Everything, o.Machines = everything, []why.Machine{{Node: "n1", Journals: map[string][]string{"kubelet": {"password=hunter22"}}}}
			s := Refuse(o, finding.New(code, "No kubeconfig found", "none is there", ""))
			if s.Refused.Code != code || s.Machines[0].Journals["kubelet"][0] != "password=***" || strings.Contains(strings.Join(s.Missing, "\n"), "not queried") != (want != "") ||
				want != "" && s.Missing[0] != want || slices.Contains(s.Missing, withoutValues) != everything {
				t.Errorf("%s, everything %t: %+v", code, everything, s)
			}
		}
	}
}

// A repair applies to what was seen, if it is still needed. What has changed since is left alone.
func TestRepair(t *testing.T) {
	pod := func(name, node string, ends bool) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: name, UID: "seen", Finalizers: []string{"kept/by-the-fake-client"}},
			Spec: corev1.PodSpec{NodeName: node}}
		if ends {
			p.DeletionTimestamp = &metav1.Time{Time: now}
		}
		return p
	}
	node := func(name string, ready corev1.ConditionStatus, cordoned bool) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "seen"}, Spec: corev1.NodeSpec{Unschedulable: cordoned},
			Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}}}
	}
	operator := func(name string, replicas int32) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: name}, Spec: appsv1.DeploymentSpec{Replicas: &replicas}}
	}
	done := ""
	c := build(t, []client.Object{
		node("back", corev1.ConditionTrue, false), node("ill", corev1.ConditionFalse, false), node("lost", corev1.ConditionUnknown, true),
		pod("evicted", "back", false), pod("stuck", "lost", true), pod("homeless", "removed", true), pod("runs", "lost", false),
		pod("returned", "back", true), pod("reported", "ill", true), pod("raced", "lost", true), operator("stopped", 0), operator("started", 3),
	}, interceptor.Funcs{
		Delete: func(_ context.Context, _ client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			var d client.DeleteOptions
			d.ApplyOptions(opts)
			if d.Preconditions == nil || d.Preconditions.UID == nil || *d.Preconditions.UID != "seen" || *d.Preconditions.ResourceVersion != o.GetResourceVersion() {
				t.Errorf("%s is deleted whatever it is by then: %+v", o.GetName(), d.Preconditions)
			}
			if o.GetName() == "raced" {
				return apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, o.GetName(), errors.New("the UID is another one"))
			}
			if done = "deleted"; d.GracePeriodSeconds != nil {
				done = "forgotten"
			}
			return nil
		},
		Patch: func(_ context.Context, _ client.WithWatch, o client.Object, p client.Patch, _ ...client.PatchOption) error {
			raw, err := p.Data(o)
			done = string(raw)
			return err
		},
	})
	for _, x := range []struct {
		action     why.Action
		name, uid  string
		done, left string
	}{
		{why.DeletePod, "evicted", "seen", "deleted", ""},
		{why.DeletePod, "evicted", "other", "", "another pod has the name evicted now"},
		{why.DeletePod, "gone", "seen", "", "gone is gone"},
		{why.ForgetPod, "stuck", "seen", "forgotten", ""},
		{why.ForgetPod, "homeless", "seen", "forgotten", ""},
		{why.ForgetPod, "stuck", "other", "", "another pod has the name stuck now"},
		{why.ForgetPod, "runs", "seen", "", "pod runs is not being deleted"},
		{why.ForgetPod, "returned", "seen", "", "node back reports"},
		{why.ForgetPod, "reported", "seen", "", "node ill reports"},
		{why.ForgetPod, "raced", "seen", "", "raced has changed in the meantime"},
		{why.Uncordon, "lost", "seen", `{"spec":{"unschedulable":null}}`, ""},
		{why.Uncordon, "lost", "other", "", "another node has the name lost now"},
		{why.Uncordon, "back", "seen", "", "node back already accepts pods"},
		{why.StartOperator, "stopped", "", `{"spec":{"replicas":1}}`, ""},
		{why.StartOperator, "started", "", "", "the operator has already been started"},
	} {
		done = ""
		left, err := Repair(t.Context(), c, why.Repair{Action: x.action, Namespace: "onecloud", Name: x.name, UID: types.UID(x.uid)})
		if err != nil || done != x.done || !strings.HasPrefix(left, x.left) || (left == "") != (x.left == "") {
			t.Errorf("%s %s of UID %s: %q, left %q, %v", x.action, x.name, x.uid, done, left, err)
		}
	}
	if _, err := Repair(t.Context(), c, why.Repair{Action: "reboot"}); err == nil {
		t.Error("an unknown action is done")
	}
}
