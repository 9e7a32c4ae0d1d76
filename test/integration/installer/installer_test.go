// SPDX-License-Identifier: Apache-2.0

package installer_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/addons"
	"yunion.io/x/ocadm/phases/cloud"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/operator"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

func configuration() *config.Config {
	c := &config.Config{}
	c.Cluster.PodNetworkCIDR = "10.40.0.0/16"
	c.Cluster.ProxyMode = "nftables"
	c.Cluster.ControlPlaneEndpoint = "10.0.0.11:6443"
	c.Node.Name, c.Node.AsController = "node1", true
	c.Cloud = config.Cloud{Name: "default", Namespace: "onecloud", Version: "v4.0.4", OperatorVersion: "v1", Region: "region0"}
	c.Addons = config.Addons{CNI: "flannel", Storage: "local-path", StoragePath: "/opt/local-path-provisioner", Ingress: "traefik"}
	return c
}

// reporter collects the reports of phases.
type reporter struct {
	workflow.Discard
	changed, waiting []string
}

func (r *reporter) Waiting(what, why string)   { r.waiting = append(r.waiting, what+": "+why) }
func (r *reporter) Changed(f string, a ...any) { r.changed = append(r.changed, f) }

func TestInstall(t *testing.T) {
	api := harness.Require(t, harness.Options{})
	require.NoError(t, api.StartControllerManager(t.Context()))
	c, err := kube.New(api.Config(harness.Admin, "system:masters"))
	require.NoError(t, err)
	kubelet, err := api.StartKubelet(t.Context(), []string{"Pod"}, harness.Node{Name: "node1", Labels: map[string]string{"kubernetes.io/os": "linux"}})
	require.NoError(t, err)
	t.Cleanup(func() { _ = kubelet.Stop() })
	// Admission gives a new node the taint not-ready; the controller that would remove it does not run here.
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	require.NoError(t, c.Patch(t.Context(), n, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"taints":null}}`))))
	h := &host.Host{Config: configuration(), Kube: func(context.Context) (client.WithWatch, error) { return c, nil }}

	all := []host.Phase{cloud.Settings(), addons.CNI(), addons.Storage(), addons.Ingress(), addons.Database(), operator.Install()}
	t.Run("dry run changes nothing", func(t *testing.T) {
		for _, p := range all {
			lines, err := p.Plan(t.Context(), h)
			if err != nil || len(lines) == 0 {
				t.Errorf("%s: plan %q, %v", p.Name, lines, err)
			}
		}
		err := c.Get(t.Context(), client.ObjectKey{Name: "onecloud"}, &corev1.Namespace{})
		if client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("the plan made the namespace: %v", err)
		}
	})
	for _, p := range all {
		run(t, p, h)
	}
	t.Run("password is made once", func(t *testing.T) { passwordOnce(t, c, h) })
	t.Run("drift is repaired", func(t *testing.T) { drift(t, c, h) })
	t.Run("ready", func(t *testing.T) { ready(t, c, h) })
	t.Run("addons are upgraded", func(t *testing.T) { upgradedAddons(t, c, h, kubelet) })
	t.Run("the operator is restricted", func(t *testing.T) { restricted(t, c) })
	t.Run("more namespaces", func(t *testing.T) { namespaces(t, c, h) })
	t.Run("wait says why", func(t *testing.T) { waitSaysWhy(t, c) })
	t.Run("cloud", func(t *testing.T) { aCloud(t, c, h) })
	t.Run("roles", func(t *testing.T) { roles(t, c) })
}

// run runs a phase that has work to do, and again when it has none.
func run(t *testing.T, p host.Phase, h *host.Host) {
	t.Helper()
	t.Run(p.Name, func(t *testing.T) {
		if done, err := p.Check(t.Context(), h); done || err != nil {
			t.Fatalf("Check before Run: %t, %v", done, err)
		}
		var r reporter
		require.NoError(t, p.Run(t.Context(), h, &r))
		if len(r.changed) == 0 {
			t.Error("Run reported no change")
		}
		if done, err := p.Check(t.Context(), h); !done || err != nil {
			lines, _ := p.Plan(t.Context(), h)
			t.Errorf("Check after Run: %t, %v; plan: %q", done, err, lines)
		}
		var again reporter
		if err := p.Run(t.Context(), h, &again); err != nil || len(again.changed) > 0 {
			t.Errorf("second Run: %q, %v", again.changed, err)
		}
	})
}

// namespaces checks that the operator is given another namespace once, and that the next installation keeps it.
func namespaces(t *testing.T, c client.WithWatch, h *host.Host) {
	for i, want := range []int{12, 0} {
		set, err := operator.Serve(t.Context(), c, "tenant-b")
		if err != nil || len(set.Changed()) < want || want == 0 && len(set.Changed()) > 0 {
			t.Errorf("time %d: %v, %v", i, set.Changed(), err)
		}
	}
	for i := range 2 {
		if watched, err := operator.Watched(t.Context(), c); err != nil || !slices.Equal(watched, []string{"onecloud", "tenant-b"}) {
			t.Errorf("watched: %q, %v", watched, err)
		}
		var r reporter
		if err := operator.Install().Run(t.Context(), h, &r); err != nil || i > 0 && len(r.changed) > 0 {
			t.Errorf("the next installation: %q, %v", r.changed, err)
		}
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "tenant-b", Name: "onecloud-operator"}, &rbacv1.Role{}); err != nil {
		t.Error(err)
	}
}

func passwordOnce(t *testing.T, c client.WithWatch, h *host.Host) {
	read := func() string {
		var s corev1.Secret
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Namespace: "onecloud", Name: addons.DatabaseName}, &s))
		return string(s.Data["password"])
	}
	before := read()
	if len(before) < 20 {
		t.Errorf("a password of %d characters was made", len(before))
	}
	require.NoError(t, addons.Database().Run(t.Context(), h, &reporter{}))
	if read() != before {
		t.Error("the password was recreated")
	}
}

func drift(t *testing.T, c client.WithWatch, h *host.Host) {
	patch := []byte(`{"metadata":{"labels":{"somebody":"else"}},"data":{"net-conf.json":"{}"}}`)
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-flannel", Name: "kube-flannel-cfg"}}
	require.NoError(t, c.Patch(t.Context(), cm, client.RawPatch(types.MergePatchType, patch)))
	if done, _ := addons.CNI().Check(t.Context(), h); done {
		t.Error("Check does not see that a value of ours was changed")
	}
	require.NoError(t, addons.CNI().Run(t.Context(), h, &reporter{}))
	require.NoError(t, c.Get(t.Context(), client.ObjectKeyFromObject(cm), cm))
	if !strings.Contains(cm.Data["net-conf.json"], "10.40.0.0/16") || cm.Labels["somebody"] != "else" {
		t.Errorf("after Run: %v %v", cm.Data, cm.Labels)
	}
}

func ready(t *testing.T, c client.WithWatch, h *host.Host) {
	for kind, name := range map[string]string{"Deployment": "coredns", "DaemonSet": "kube-proxy"} {
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apps/v1", "kind": kind, "metadata": map[string]any{"namespace": "kube-system", "name": name},
			"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"a": name}}, "template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"a": name}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "x", "image": "x"}}},
			}},
		}}
		if _, err := kube.Apply(t.Context(), c, "test", o); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, p := range []host.Phase{addons.Ready(), operator.Ready()} {
		var r reporter
		if err := p.Run(ctx, h, &r); err != nil {
			t.Fatalf("%s: %v; waited: %q", p.Name, err, r.waiting)
		}
		if done, err := p.Check(ctx, h); !done || err != nil {
			t.Errorf("%s: Check after Run: %t, %v", p.Name, done, err)
		}
	}
}

// waitSaysWhy checks that a wait that times out names the pod's problem.
func waitSaysWhy(t *testing.T, c client.WithWatch) {
	d := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": "default", "name": "stuck"},
		"spec": map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": "stuck"}}, "template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": "stuck"}},
			"spec": map[string]any{
				"nodeSelector": map[string]any{"there-is": "no-such-node"},
				"containers":   []any{map[string]any{"name": "x", "image": "x"}},
			},
		}},
	}}
	if _, err := kube.Apply(t.Context(), c, "test", d); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var why []string
	err := kube.WaitReady(ctx, c, d, func(w string) {
		why = append(why, w)
		if strings.Contains(w, "pod stuck-") {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || !strings.Contains(wait.Why(err), "pod stuck-") {
		t.Errorf("%v; told %q", err, why)
	}
}

func aCloud(t *testing.T, c client.WithWatch, h *host.Host) {
	o, err := cluster.LoadSettings(t.Context(), c, "onecloud")
	require.NoError(t, err)
	if _, err := cluster.Create(t.Context(), c, o); code(err) != "OCA-7007" {
		t.Errorf("a cloud without a version: %v", err)
	}
	o.Version = "v4.0.4"
	if want := cloud.Options(h.Config); o != want {
		t.Errorf("settings that were kept: %+v, want %+v", o, want)
	}
	for _, want := range []kube.Action{kube.Created, kube.Unchanged} {
		if got, err := cluster.Create(t.Context(), c, o); err != nil || got != want {
			t.Fatalf("Create: %q, %v; want %q", got, err, want)
		}
	}
	other := o
	other.Version = "v4.0.5"
	_, err = cluster.Create(t.Context(), c, other)
	if code(err) != "OCA-7003" || !strings.Contains(err.Error(), "spec.version is v4.0.4, requested v4.0.5") || strings.Contains(finding.Of(err)[0].Remedy, "v4.0.5") {
		t.Errorf("Create with another version: %v", err)
	}
	second := o
	second.Name = "second"
	if _, err := cluster.Create(t.Context(), c, second); code(err) != "OCA-7003" {
		t.Errorf("Create of a second cloud: %v", err)
	}
	waitForCloud(t, c, o.Key())
	operatorOnly(t, c, o.Key())
	update(t, c, o.Key())
	deleteCloud(t, c, o.Key())
}

// setStatus plays the operator.
func setStatus(t *testing.T, c client.WithWatch, key client.ObjectKey, ready, state, why string) {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("onecloud.yunion.io/v1alpha1")
	u.SetKind("OnecloudCluster")
	require.NoError(t, c.Get(t.Context(), key, u))
	now := time.Now().UTC().Format(time.RFC3339)
	u.Object["status"] = map[string]any{
		"observedGeneration": u.GetGeneration(), "phase": "Creating", "version": "v4.0.4",
		"conditions": []any{map[string]any{"type": "Ready", "status": ready, "reason": "Test", "message": why, "lastTransitionTime": now}},
		"components": []any{
			map[string]any{"name": "keystone", "state": "Available", "version": "v4.0.4"},
			map[string]any{"name": "region", "state": state, "blockedBy": []any{"keystone"}},
			map[string]any{"name": "meter", "state": "Disabled"},
		},
	}
	require.NoError(t, c.Status().Update(t.Context(), u))
}

func waitForCloud(t *testing.T, c client.WithWatch, key client.ObjectKey) {
	setStatus(t, c, key, "False", "Waiting", "region waits for keystone")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Nanosecond, context.DeadlineExceeded)
	defer cancel()
	if err := cluster.Wait(ctx, c, key, func(cluster.Status) {}); code(err) != "OCA-7004" {
		t.Errorf("a wait that runs out: %v", err)
	}
	told := false
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := cluster.Wait(ctx, c, key, func(s cluster.Status) {
		if !s.Ready && !told {
			told = true
			if missing := s.Missing(); !slices.Equal(missing, []string{"region: Waiting: waits for keystone"}) {
				t.Errorf("missing: %q", missing)
			}
			setStatus(t, c, key, "True", "Available", "")
		}
	})
	if err != nil || !told {
		t.Errorf("Wait: %v, told %t", err, told)
	}
}

func deleteCloud(t *testing.T, c client.WithWatch, key client.ObjectKey) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if there, err := cluster.Delete(ctx, c, key, true); !there || err != nil {
		t.Fatalf("Delete: %t, %v", there, err)
	}
	if err := cluster.WaitGone(ctx, c, key, func(string) {}); err != nil {
		t.Error(err)
	}
	if there, err := cluster.Delete(ctx, c, key, false); there || err != nil {
		t.Errorf("second Delete: %t, %v", there, err)
	}
	if err := cluster.Wait(ctx, c, key, func(cluster.Status) {}); code(err) != "OCA-7002" {
		t.Errorf("waiting for a cloud that is gone: %v", err)
	}
}

func roles(t *testing.T, c client.WithWatch) {
	if _, err := cluster.SetRole(t.Context(), c, []string{"node1", "node2"}, cluster.RoleHost, true); code(err) != "OCA-7011" {
		t.Errorf("an unknown node: %v", err)
	}
	var n corev1.Node
	value := func() string {
		require.NoError(t, c.Get(t.Context(), client.ObjectKey{Name: "node1"}, &n))
		return n.Labels["onecloud.yunion.io/host"]
	}
	if v := value(); v != "" {
		t.Errorf("an unknown node beside it, and node1 was labelled %q", v)
	}
	for _, on := range []bool{true, false} {
		want := map[bool]string{true: "enable", false: "disable"}[on]
		if _, err := cluster.SetRole(t.Context(), c, []string{"node1"}, cluster.RoleHost, on); err != nil || value() != want {
			t.Errorf("SetRole %t: %q, %v", on, value(), err)
		}
		again, err := cluster.SetRole(t.Context(), c, []string{"node1"}, cluster.RoleHost, on)
		if err != nil || again[0].Action != kube.Unchanged {
			t.Errorf("SetRole %t again: %v, %v", on, again, err)
		}
	}
}

func code(err error) string {
	if l := finding.Of(err); len(l) == 1 {
		return l[0].Code
	}
	return ""
}
