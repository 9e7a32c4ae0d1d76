// SPDX-License-Identifier: Apache-2.0

package removal

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

func pod(name, node string, volumes ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: name, UID: "pod"}, Spec: corev1.PodSpec{NodeName: node}}
	for _, v := range volumes {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: v, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: v}}})
	}
	return p
}

func volume(name, node, claim string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	v.Spec.Capacity = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("5Gi")}
	v.Spec.PersistentVolumeSource.HostPath = &corev1.HostPathVolumeSource{Path: "/opt/local-path-provisioner/" + name}
	v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}
	if claim != "" {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "onecloud", Name: claim}
		v.Status.Phase = corev1.VolumeBound
	}
	return v
}

func claim(name, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: name, UID: "claim"},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
}

func cluster(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	s, name := kube.Scheme(), func(o client.Object) []string { return []string{o.GetName()} }
	return fake.NewClientBuilder().WithScheme(s).WithObjects(objects...).WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string {
		return []string{o.(*corev1.Pod).Spec.NodeName}
	}).WithIndex(&corev1.PersistentVolumeClaim{}, "metadata.name", name).WithIndex(&coordinationv1.Lease{}, "metadata.name", name).Build()
}

func lost() *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node3", UID: "old", Labels: map[string]string{
		v1alpha1.LabelControlPlane: "", "onecloud.yunion.io/controller": "enable", "onecloud.yunion.io/host": "disable"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.3"}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}}}}
}

// run runs the steps except that of etcd, which needs a real one.
func run(t *testing.T, j *Job) workflow.Result {
	t.Helper()
	steps := slices.DeleteFunc(Steps(), func(s Step) bool { return s.Name == "etcd-member" })
	res, err := workflow.Runner[*Job]{Plan: "node remove", Phases: steps}.Run(t.Context(), j, workflow.Options{})
	require.NoError(t, err)
	return res
}

func gone(t *testing.T, k client.Client, o client.Object) bool {
	t.Helper()
	err := k.Get(t.Context(), client.ObjectKeyFromObject(o), o)
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err != nil
}

// A lost node is removed with its pods and its place in the VRRP group. Its volumes stay until they are given up; those of others always stay.
func TestRemove(t *testing.T) {
	settings := vip.Settings{Address: "10.0.0.100", RouterID: 77, Password: "canary88"}.With("10.0.0.1").With("10.0.0.3")
	k := cluster(t, lost(), pod("a", "node3", "data-a"), pod("b", "node1", "data-b"), volume("va", "node3", "data-a"), volume("vb", "node1", "data-b"),
		volume("vc", "node3", ""), claim("data-a", "va"), claim("data-b", "vb"), settings.Secret())
	is := Inventory{Node: "node3", Etcd: "none", Peers: []string{"10.0.0.3"}}
	is.describe(lost())
	for _, err := range []error{is.pods(t.Context(), k), is.volumes(t.Context(), k)} {
		require.NoError(t, err)
	}
	if is.ready || !slices.Equal(is.Roles, []string{"control-plane", "controller"}) || !slices.Equal(is.Pods, []string{"onecloud/a"}) || len(is.Volumes) != 2 {
		t.Errorf("inventory %+v", is)
	}
	j := &Job{K: k, Is: is}
	run(t, j)
	if !gone(t, k, lost()) || !gone(t, k, pod("a", "")) || gone(t, k, pod("b", "")) || gone(t, k, claim("data-a", "")) {
		t.Error("the node and its pod go, the pod of another node and the claim stay")
	}
	secret := &corev1.Secret{ObjectMeta: settings.Secret().ObjectMeta}
	if gone(t, k, secret) || strings.Contains(string(secret.Data["peers"]), "10.0.0.3") || !strings.Contains(string(secret.Data["peers"]), "10.0.0.1") {
		t.Errorf("peers %s", secret.Data["peers"])
	}
	for _, s := range run(t, j).Steps {
		if s.State == workflow.Done {
			t.Errorf("step %s has something to do the second time: %v", s.Name, s.Changes)
		}
	}
	if err := k.Create(t.Context(), pod("a", "", "data-a")); err != nil { // its StatefulSet's new pod, which fits no node
		t.Fatal(err)
	}
	j.DeleteVolumes = true
	run(t, j)
	if !gone(t, k, claim("data-a", "")) || !gone(t, k, volume("va", "", "")) || !gone(t, k, volume("vc", "", "")) || gone(t, k, claim("data-b", "")) || gone(t, k, volume("vb", "", "")) {
		t.Error("the volumes of the node go, those of others stay")
	}
}

// A volume of the embedded database is judged by the role of the server on the other node: a replica must not replace a primary.
func TestDatabaseOnTheNode(t *testing.T) {
	for name, c := range map[string]struct{ claim, primary, want string }{
		"one copy":                     {"data-ocadm-mysql-0", "", ""},
		"the first took over":          {"data-ocadm-mysql-2-0", dbpair.First, dbpair.RolePrimary},
		"the second took over":         {"data-ocadm-mysql-0", dbpair.Second, dbpair.RolePrimary},
		"no server has taken over yet": {"data-ocadm-mysql-0", dbpair.First, dbpair.RoleReplica},
	} {
		objects := []client.Object{volume("v", "node3", c.claim), volume("w", "node3", "data-a")}
		if c.primary != "" {
			l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: dbpair.RecordName}}
			dbpair.Record{Primary: c.primary}.Write(l)
			objects = append(objects, l)
		}
		is := Inventory{Node: "node3"}
		if err := is.volumes(t.Context(), cluster(t, objects...)); err != nil || len(is.Volumes) != 2 {
			t.Fatalf("%s: %+v, %v", name, is.Volumes, err)
		}
		if v := is.Volumes[1]; !v.Database || v.OtherDatabase != c.want {
			t.Errorf("%s: %+v", name, v)
		}
		if is.Volumes[0].Database {
			t.Errorf("%s: a volume of something else is the database's", name)
		}
	}
}

// An API server that returns no lease for a while does not prove that the machine is lost.
func TestConfirmLoss(t *testing.T) {
	began := time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		deaf   bool          // the API server answers no list request
		breaks time.Duration // until then, it ends each watch
		later  time.Duration // when the kubelet renews its lease
		want   string
	}{
		"silent":                                {},
		"it renews":                             {later: 5 * time.Second, want: "still runs"},
		"it renews, and the API server is away": {deaf: true, later: 5 * time.Second, want: "did not show its lease"},
		"it renews when the API server is back": {breaks: 14 * time.Second, later: 20 * time.Second, want: "still runs"},
		"silent when the API server is back":    {breaks: 14 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			at, start := metav1.NewMicroTime(began), time.Now()
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: "node3"},
				Spec: coordinationv1.LeaseSpec{RenewTime: &at}}
			k := interceptor.NewClient(cluster(t, lease.DeepCopy()), interceptor.Funcs{
				List: func(ctx context.Context, k client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
					if c.deaf {
						return errors.New("no answer")
					}
					return k.List(ctx, l, opts...)
				},
				Watch: func(ctx context.Context, k client.WithWatch, l client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
					if time.Since(start) < c.breaks {
						return nil, errors.New("no answer")
					}
					return k.Watch(ctx, l, opts...)
				},
			})
			if c.later > 0 {
				time.AfterFunc(c.later, func() {
					renewed := metav1.NewMicroTime(began.Add(c.later))
					err := k.Get(t.Context(), client.ObjectKeyFromObject(lease), lease)
					lease.Spec.RenewTime = &renewed
					if err := errors.Join(err, k.Update(t.Context(), lease)); err != nil {
						t.Error(err)
					}
				})
			}
			err := confirmLoss(t.Context(), &Job{K: k, Is: Inventory{Node: "node3"}}, workflow.Discard{})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// If a machine's kubelet has ended but its containers run, it is not lost: its pods would run twice.
func TestReachableEtcdIsNotLost(t *testing.T) {
	for answers, code := range map[bool]string{true: "OCA-4142", false: ""} {
		j := &Job{Is: Inventory{Node: "node3", Registered: true, member: &etcd.Observed{Name: "node3", Answers: answers}}}
		step := lossStep()
		if skipped := step.Skip(j); (skipped == "") != answers {
			t.Errorf("etcd answers %t: skipped, because %q", answers, skipped)
		}
		if !answers {
			continue
		}
		if got := finding.Of(step.Run(t.Context(), j, workflow.Discard{})); len(got) != 1 || got[0].Code != code || !strings.Contains(got[0].Remedy, "ocadm reset") {
			t.Errorf("%+v", got)
		}
	}
}

// A machine of the same name that has joined since keeps its Node.
func TestRemoveKeepsItsSuccessor(t *testing.T) {
	new := lost()
	new.UID = "new"
	k := cluster(t, new)
	is := Inventory{Node: "node3"}
	is.describe(lost())
	run(t, &Job{K: k, Is: is})
	if gone(t, k, new) {
		t.Error("the Node of the successor was deleted")
	}
}

func TestMemberOfNode(t *testing.T) {
	is := Inventory{Node: "node3", Addresses: []string{"10.0.0.3"}}
	for _, c := range []struct {
		m    etcd.Observed
		want bool
	}{
		{etcd.Observed{Name: "node3", Peer: "https://10.0.0.9:2380"}, true},
		{etcd.Observed{Name: "node1", Peer: "https://10.0.0.3:2380"}, false}, // the address now belongs to another one
		{etcd.Observed{Peer: "https://10.0.0.3:2380"}, true},                 // an unfinished join
		{etcd.Observed{Peer: "https://10.0.0.33:2380"}, false},
	} {
		if got := is.memberIn([]etcd.Observed{c.m}) != nil; got != c.want {
			t.Errorf("%+v: %t", c.m, got)
		}
	}
}

// A machine died during its join, before its etcd member had a name and before there was a Node. It can be removed by its address; its name finds
// nothing, and the finding lists what may belong to it. The address of a named node refers to that node.
func TestRemoveByAddress(t *testing.T) {
	all := []etcd.Observed{{ID: "1", Name: "node1", Peer: "https://127.0.0.71:2380", Answers: true},
		{ID: "3", Name: "node3", Peer: "https://127.0.0.73:2380"}, {ID: "7", Peer: "https://127.0.0.77:2380", Learner: true}}
	node1 := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.71"}}}}
	k := cluster(t, node1)
	for _, c := range []struct {
		given, node, member string
		nothing             bool
	}{
		{"127.0.0.77", "127.0.0.77", "7", false},
		{"node7", "node7", "", true},
		{"127.0.0.73", "node3", "3", false}, // its Node is gone
		{"127.0.0.71", "node1", "1", false},
		{"127.0.0.79", "127.0.0.79", "", true},
	} {
		is, err := look(t.Context(), k, c.given, all)
		if err != nil || is.Node != c.node || is.Nothing() != c.nothing || c.member != "" && (is.member == nil || is.member.ID != c.member) {
			t.Errorf("%s: %+v, %v", c.given, is, err)
		}
		f := finding.Of(is.Unknown())
		if wrong := len(f) != 1 || f[0].Code != "OCA-4137" || !strings.Contains(f[0].Remedy, "ocadm node remove 127.0.0.77;"); wrong == (c.member != "7") {
			t.Errorf("%s: %+v", c.given, f)
		}
	}
	if is, err := look(t.Context(), k, "node7", all[:2]); err != nil || is.Unknown() != nil {
		t.Errorf("%+v, %v: every member has a name", is, err)
	}
}

// The removal of a control-plane node restarts the health agents that started before the newest of the other nodes joined: they read the addresses
// once. Others, and the removal of a worker, restart nothing.
func TestRemovalRestartsHealthAgents(t *testing.T) {
	at := func(hours int) metav1.Time { return metav1.NewTime(time.Date(2026, 1, 1, hours, 0, 0, 0, time.UTC)) }
	node := func(name string, joined int, labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: at(joined), Labels: labels}}
	}
	agent := func(name, app string, started int) *corev1.Pod {
		began := at(started)
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: name, Labels: map[string]string{v1alpha1.LabelApp: app}},
			Spec: corev1.PodSpec{NodeName: name}, Status: corev1.PodStatus{StartTime: &began}}
	}
	role := map[string]string{v1alpha1.LabelControlPlane: ""}
	for name, c := range map[string]struct {
		is   Inventory
		want []string
	}{
		"control-plane node": {Inventory{Node: "cp1", Roles: []string{"control-plane"}}, []string{"old"}},
		"lost member":        {Inventory{Node: "cp1", member: &etcd.Observed{Name: "cp1"}}, []string{"old"}},
		"worker":             {Inventory{Node: "worker", Roles: []string{"host"}}, nil},
		"newest":             {Inventory{Node: "cp4", Roles: []string{"control-plane"}}, nil},
	} {
		k := cluster(t, node("cp1", 1, role), node("cp2", 1, role), node("cp4", 5, role), node("worker", 7, nil),
			agent("old", "host-health", 3), agent("new", "host-health", 6), agent("other", "host", 3))
		j := &Job{K: k, Is: c.is}
		pods, err := j.ignorant(t.Context())
		var got []string
		for _, p := range pods {
			got = append(got, p.Name)
		}
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err := agentsStep().Run(t.Context(), j, workflow.Discard{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if was := agent("old", "host-health", 3); gone(t, k, was) != (c.want != nil) {
			t.Errorf("%s: the wrong agents are left", name)
		}
	}
}

func TestOnlyOn(t *testing.T) {
	two := volume("v", "node3", "")
	two.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values = []string{"node3", "node4"}
	either := volume("v", "node3", "")
	either.Spec.NodeAffinity.Required.NodeSelectorTerms = append(either.Spec.NodeAffinity.Required.NodeSelectorTerms, corev1.NodeSelectorTerm{})
	for name, c := range map[string]struct {
		v    *corev1.PersistentVolume
		want bool
	}{
		"of the node": {volume("v", "node3", ""), true}, "of another": {volume("v", "node4", ""), false}, "of two": {two, false},
		"one term of two": {either, false}, "of none": {&corev1.PersistentVolume{}, false},
	} {
		if got := onlyOn(c.v, "node3"); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
