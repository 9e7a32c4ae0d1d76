// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/status"
	"yunion.io/x/ocadm/test/require"
)

func TestPath(t *testing.T) {
	for _, c := range []struct {
		from, to string
		allow    bool
		code     string
	}{
		{"v4.0.3", "v4.0.4", false, ""},
		{"v3.11.14", "v4.0.2", false, ""},
		{"v3.10.16", "v4.0.2", false, "OCA-7060"},
		{"v3.4.16", "v3.6.22", false, ""}, // 3.5 was never released
		{"v3.4.16", "v3.7.10", false, "OCA-7060"},
		{"v3.1.8", "v4.0.3", false, "OCA-7060"},
		{"v3.1.8", "v3.4.16", false, ""},
		{"v4.0.3", "v4.0.2", false, "OCA-7061"}, // it empties columns
		{"v4.0.3", "v4.0.2", true, "OCA-7062"},
		{"v4.0.10", "v4.0.9", false, "OCA-7061"},
		{"v4.0.3", "v3.11.14", false, "OCA-7061"},
		{"v4.0.3", "v3.11.14", true, "OCA-7062"},
		{"v4.0.3", "v4.0.3-20260602.0", false, ""}, // a hot fix comes after its release
		{"v4.0.3", "mine", false, ""},
		{"mine", "v4.0.3", false, ""},
		{"v4.0.3", "v4.1.0", false, "OCA-7059"}, // a release that this build does not know
		{"v4.0.3", "v9.9.9", true, "OCA-7059"},
		{"v3.4.16", "v3.5.1", false, "OCA-7059"}, // it was never released
		{"mine", "v5.0.0-rc.1", false, "OCA-7059"},
		{"v4.0.3", "4.0.4", false, "OCA-7059"},
		{"v4.0.3", "v4.0", false, "OCA-7059"},
		{"v4.0.3", "latest", false, "OCA-7059"},
		{"4.0.3", "v4.0.4", false, ""}, // a cloud that another operator created
	} {
		code := ""
		if l := path(c.from, c.to, c.allow); len(l) > 0 {
			code = l[0].Code
		}
		if code != c.code {
			t.Errorf("%s → %s: %q, want %q", c.from, c.to, code, c.code)
		}
	}
}

func TestUnsaved(t *testing.T) {
	cloud := &v1alpha1.OnecloudCluster{}
	cloud.Status.Release.Version = "v4.0.3"
	for _, c := range []struct {
		update *v1alpha1.UpdateParameters
		want   string
	}{
		{nil, ""},
		{&v1alpha1.UpdateParameters{Version: "v4.1.0"}, ""},
		{&v1alpha1.UpdateParameters{NoBackup: true}, "OCA-7065"},
		{&v1alpha1.UpdateParameters{NoBackup: true, Version: "v4.0.4"}, "OCA-7065"},
		{&v1alpha1.UpdateParameters{NoBackup: true, Version: "v4.0.2"}, "OCA-7064"},
		{&v1alpha1.UpdateParameters{NoBackup: true, Version: "v4.1.0"}, "OCA-7064"},
		{&v1alpha1.UpdateParameters{NoBackup: true, Version: "v3.11.9", AllowDowngrade: true}, "OCA-7064"},
	} {
		got := ""
		for _, f := range unsaved(facts{cloud: cloud, update: c.update}) {
			got += f.Code
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.update, got, c.want)
		}
	}
}

func TestPressureAndCertificates(t *testing.T) {
	now := time.Now()
	cloud := &v1alpha1.OnecloudCluster{}
	cloud.Status.Certificates.NotAfter, cloud.Status.Certificates.CANotAfter = metav1.NewTime(now.Add(6*24*time.Hour)), metav1.NewTime(now.Add(8*24*time.Hour))
	f := facts{cloud: cloud, now: now, nodes: []status.Node{
		{Name: "a", Ready: true}, {Name: "b", Ready: true, Pressure: []string{"MemoryPressure"}}, {Name: "c", Ready: true, Pressure: []string{"MemoryPressure", "DiskPressure"}},
		{Name: "d", Pressure: []string{"DiskPressure"}}, {Name: "e", Ready: true, Pressure: []string{"PIDPressure"}},
	}}
	var got []string
	for _, one := range append(pressure(f), certificates(f)...) {
		got = append(got, fmt.Sprint(one.Code, " ", one.Severity, " ", one.Cause))
	}
	want := []string{
		"OCA-7072 error c has MemoryPressure, DiskPressure; e has PIDPressure", "OCA-7072 warning b has MemoryPressure",
		"OCA-7052 error the certificate of the services expires " + cloud.Status.Certificates.NotAfter.UTC().Format(time.RFC3339),
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A volume on the disk of a cordoned node keeps its pod from starting anywhere, forward and back.
func TestVolumesOfCordonedNodes(t *testing.T) {
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Name: "c"}}
	for name, state := range map[string]v1alpha1.State{"glance": v1alpha1.Available, "etcd": v1alpha1.Available, "influxdb": v1alpha1.Disabled, "host": v1alpha1.Available} {
		cloud.Status.Components = append(cloud.Status.Components, v1alpha1.ComponentStatus{Name: name, State: state})
	}
	claim := func(name, component, node, provisioner string) corev1.PersistentVolumeClaim {
		return corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelComponent: component},
			Annotations: map[string]string{"volume.kubernetes.io/selected-node": node, "volume.kubernetes.io/storage-provisioner": provisioner}}}
	}
	const local = "rancher.io/local-path"
	f := facts{cloud: cloud, local: localVolumes(cloud, []corev1.PersistentVolumeClaim{
		claim("c-glance", "glance", "a", local), claim("data-c-etcd-0", "etcd", "a", local), claim("data-c-etcd-1", "etcd", "a", local), claim("data-c-etcd-2", "etcd", "b", local),
		claim("c-influxdb", "influxdb", "a", local), claim("d-glance", "glance", "c", local), claim("c-glance", "glance", "e", "rbd.csi.ceph.com"),
	})}
	for _, n := range []string{"a", "c", "d", "e"} {
		f.nodes = append(f.nodes, status.NodeOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n}, Spec: corev1.NodeSpec{Unschedulable: true}}))
	}
	f.nodes = append(f.nodes, status.NodeOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "b"}}))
	for severity, images := range map[string]bool{"error": true, "warning": false} {
		f.images = images
		var got []string
		for _, one := range cordoned(f) {
			got = append(got, fmt.Sprint(one.Code, " ", one.Severity, " ", one.Cause))
		}
		if want := "OCA-3106 " + severity + " a is cordoned, and volumes of etcd, glance are on its disk: their new pods could not start"; !slices.Equal(got, []string{want}) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A rollback to other images is refused for the same reason.
func TestRollbackWithACordonedNode(t *testing.T) {
	for version, refused := range map[string]bool{"v4.0.3": true, "v4.0.4": false} {
		cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
		cloud.Status.Release = v1alpha1.ReleaseStatus{Revision: 3, Version: "v4.0.4"}
		cloud.Status.Components = []v1alpha1.ComponentStatus{{Name: "glance", State: v1alpha1.Degraded}}
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{v1alpha1.NodeRolePrefix + "controller": v1alpha1.Enable}}}
		node.Spec.Unschedulable = true
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c-glance", Labels: map[string]string{v1alpha1.LabelComponent: "glance"},
			Annotations: map[string]string{"volume.kubernetes.io/selected-node": "a", "volume.kubernetes.io/storage-provisioner": "rancher.io/local-path"}}}
		to := release.Release{Summary: release.Summary{Revision: 2, Version: version}, Contents: release.Contents{From: release.From{Cloud: &v1alpha1.OnecloudCluster{}}}}
		secret, err := to.Secret(metav1.ObjectMeta{Namespace: "n", Name: "c", Labels: map[string]string{}})
		require.NoError(t, err)
		c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud, node, claim, secret).Build()
		o := op("r", 0, "", "")
		o.Spec.Action, o.Spec.Rollback = v1alpha1.ActionRollback, &v1alpha1.RollbackParameters{Revision: 2}
		err = checkRollback().Run(t.Context(), &Run{Operation: o, Means: Means{Client: c, Direct: c}, record: newRecord(nil, nil, o.DeepCopy())}, workflow.Discard{})
		if l := finding.Of(err); (len(l) == 1 && l[0].Code == "OCA-3106") != refused || !refused && err != nil {
			t.Errorf("to %s: %v", version, err)
		}
	}
}
