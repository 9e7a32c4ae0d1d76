// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/ui"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/removal"
	"yunion.io/x/ocadm/test/require"
)

// onNode1 returns the cluster of a control-plane node with volumes.
func onNode1(claims []string, others ...client.Object) client.WithWatch {
	for _, c := range claims {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + c}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeBound}}
		v.Spec.HostPath = &corev1.HostPathVolumeSource{Path: "/opt/local-path-provisioner/" + c}
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "onecloud", Name: c}
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{"node1"}}}}}}}
		others = append(others, v)
	}
	return fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(others...).Build()
}

func controlPlaneNode(name string) client.Object {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelControlPlane: ""}}}
}

// A reset of a node in a surviving cluster names the volumes on the node, including the database's, even with --yes and in a dry run; it refuses
// nothing.
func TestResetShowsWhatTheClusterLoses(t *testing.T) {
	database := dbpair.ClaimName(dbpair.First)
	record := func(primary string) client.Object {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: dbpair.RecordName}}
		dbpair.Record{Primary: primary}.Write(l)
		return l
	}
	three := []client.Object{controlPlaneNode("node1"), controlPlaneNode("node2"), controlPlaneNode("node3")}
	const add, promote = "ocadm cluster database add-replica -n onecloud, then ocadm cluster database promote -n onecloud", "Before you reset this node: ocadm cluster database promote -n onecloud"
	for name, c := range map[string]struct {
		kube      client.WithWatch
		err       error
		want, not []string
	}{
		"the only copy": {kube: onNode1([]string{database, "glance"}, three...), want: []string{
			"onecloud/glance, , /opt/local-path-provisioner/glance\n", "onecloud/" + database, "the only copy of the cloud's database", add,
			"until a machine named node1 joins again", "ocadm node remove node1 --delete-volumes"}},
		"the primary": {kube: onNode1([]string{database}, append(three, record(dbpair.First))...), want: []string{"the primary of the cloud's database", promote}, not: []string{"add-replica"}},
		"the replica": {kube: onNode1([]string{database}, append(three, record(dbpair.Second))...), want: []string{"the primary on the other node continues"}, not: []string{"Before you"}},
		"no database": {kube: onNode1([]string{"glance"}, three...), want: []string{"onecloud/glance"}, not: []string{"ocadm cluster database"}},
		"no volumes":  {kube: onNode1(nil, three...), not: []string{"volume"}},
		"all of it":   {kube: onNode1([]string{database}, controlPlaneNode("node1")), not: []string{"volume"}},
		"no answer":   {err: errors.New("connection refused"), want: []string{"it is unknown which volumes", "connection refused"}},
	} {
		for _, run := range []config.Run{{Force: true}, {DryRun: true}} {
			cfg := config.Default()
			cfg.Node.Name = "node1"
			h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
			require.NoError(t, err)
			h.Kube = func(context.Context) (client.WithWatch, error) { return c.kube, c.err }
			err = errors.Join(host.Files{Root: h.Files.Root}.WriteFile(kube.AdminKubeconfig, []byte("x"), 0o600),
				h.Ledger.Record(host.Entry{Kind: host.KindData, Name: "/var/lib/containerd", Op: host.Created}))
			require.NoError(t, err)
			h.Config.Run = run
			var said bytes.Buffer
			if err := new(resetting).confirm(t.Context(), newApp(Streams{In: strings.NewReader(""), Out: io.Discard, Err: &said}), h); err != nil {
				t.Errorf("%s, %+v: %v", name, run, err)
			}
			for _, w := range c.want {
				if !strings.Contains(said.String(), w) {
					t.Errorf("%s, %+v: no %q in\n%s", name, run, w, &said)
				}
			}
			for _, n := range c.not {
				if strings.Contains(said.String(), n) {
					t.Errorf("%s, %+v: %q in\n%s", name, run, n, &said)
				}
			}
		}
	}
}

// A user is still asked for the name of the cloud that is lost, and the cluster is queried once for all of this.
func TestResetOfTheLastControlPlaneAsksForTheCloud(t *testing.T) {
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "blue"}}
	cfg := config.Default()
	cfg.Node.Name = "node1"
	h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
	require.NoError(t, err)
	asked := 0
	h.Kube = func(context.Context) (client.WithWatch, error) {
		asked++
		return onNode1(nil, controlPlaneNode("node1"), cloud), nil
	}
	plain := host.Files{Root: h.Files.Root}
	err = errors.Join(plain.WriteFile(kube.AdminKubeconfig, []byte("x"), 0o600), plain.WriteFile("/var/lib/etcd/member/x", nil, 0o600),
		h.Ledger.Record(host.Entry{Kind: host.KindNode, Name: "node", Op: host.Created}))
	require.NoError(t, err)
	var said bytes.Buffer
	err = new(resetting).confirm(t.Context(), newApp(Streams{In: strings.NewReader("yes\n"), Out: io.Discard, Err: &said}), h)
	if f := finding.Of(err); len(f) != 1 || f[0].Code != "OCA-0406" || !strings.Contains(said.String(), "holds the cloud blue") || asked != 1 {
		t.Errorf("asked the cluster %d times, %v, said %q", asked, err, said.String())
	}
}

// The last event of a reset lists the claims whose volumes the machine had. A worker names the command that lists the rest.
func TestResetReportsVolumes(t *testing.T) {
	of := resetting{lost: stake{node: "node4", worker: true, volumes: []removal.Volume{{Name: "pvc-1", Claim: "onecloud/" + dbpair.ClaimName(dbpair.First), Database: true}, {Name: "pvc-2"}}}}
	cfg := config.Default()
	h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
	require.NoError(t, err)
	var out, said bytes.Buffer
	f := runFlags{output: ui.NewFormat("text", "jsonl")}
	require.NoError(t, f.output.Set("jsonl"))
	if err := of.finish(t.Context(), newApp(Streams{Out: &out, Err: io.Discard}), h, f); err != nil || !strings.Contains(out.String(), `"volumes":"onecloud/data-ocadm-mysql-0, pvc-2"`) {
		t.Errorf("%v, %s", err, &out)
	}
	of.lost.show(&said)
	for _, w := range []string{"pvc-2 (no claim)", "ocadm node remove node4 --dry-run", "on a control-plane node: ocadm cluster database status -n onecloud"} {
		if !strings.Contains(said.String(), w) {
			t.Errorf("no %q in\n%s", w, &said)
		}
	}
}

// If the cluster does not answer, as when its only control-plane node is ill, the question must say what may be lost.
func TestResetWithoutAnAnswerSaysWhatMayBeLost(t *testing.T) {
	cfg := config.Default()
	cfg.Node.Name = "node1"
	h, err := host.Fake(t.Context(), t.TempDir(), &cfg, &host.Recorder{})
	require.NoError(t, err)
	h.Kube = func(context.Context) (client.WithWatch, error) { return nil, errors.New("connection refused") }
	err = errors.Join(host.Files{Root: h.Files.Root}.WriteFile(kube.AdminKubeconfig, []byte("x"), 0o600),
		h.Ledger.Record(host.Entry{Kind: host.KindNode, Name: "node", Op: host.Created}))
	require.NoError(t, err)
	var said bytes.Buffer
	err = new(resetting).confirm(t.Context(), newApp(Streams{In: strings.NewReader("no\n"), Out: io.Discard, Err: &said}), h)
	if err == nil || !strings.Contains(said.String(), "reset destroys the cluster and its clouds. Continue?") {
		t.Errorf("%v, said %q", err, said.String())
	}
}
