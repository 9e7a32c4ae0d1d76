// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	kube "yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/test/lab/assemble"
	"yunion.io/x/ocadm/test/lab/binaries"
	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// upgradeFrom returns the initial version of the cluster of TestUpgrade. Every version that this ocadm installs works: OCADM_TEST_UPGRADE=v1.36.2
// upgrades to the next patch version, if the lab has built it.
func upgradeFrom() string {
	if v := os.Getenv("OCADM_TEST_UPGRADE"); strings.HasPrefix(v, "v") {
		return v
	}
	return binaries.Earlier
}

// smallCloud lists the components of the small cloud that exists during the upgrade.
var smallCloud = []string{"etcd", "keystone", "region", "scheduler", "glance", "yunionconf", "apigateway", "climc"}

// TestUpgrade upgrades three control-plane nodes and a worker, with a cloud on them, to the linked version. First a static pod is broken, and
// everything is reverted. Then the upgrade is killed halfway, and continues. The pods of the cloud keep running.
func TestUpgrade(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_UPGRADE") == "" {
		t.Skip("make upgrade runs it: it takes a quarter of an hour")
	}
	ctx, log := t.Context(), logf(t)
	_, newer, err := scenario.Build(ctx, repository, version, "", log)
	require.NoError(t, err)
	ocadm, bundle, err := scenario.BuildFor(ctx, repository, assemble.Options{KubernetesVersion: upgradeFrom(), CloudVersion: version, Logf: log})
	require.NoError(t, err)
	s := newSuite(t, up(t, machine.Options{Nodes: 4, Ocadm: ocadm, Bundle: bundle, Logf: log}))
	s.cloudOn(t)
	// Both bundles are in one directory, which the machines see.
	at := strings.TrimSpace(s.must(t, "readlink", "-f", scenario.Bundle))
	u := &upgraded{suite: s, bundle: path.Join(path.Dir(at), path.Base(newer)), before: s.pods(t)}
	for _, part := range []struct {
		name string
		live func(*testing.T)
	}{
		{"plan", u.plan}, {"a broken static pod goes back", u.broken}, {"the first control plane, killed and continued", u.first},
		{"the other control planes, at the same time", u.others}, {"the worker", u.worker}, {"the end", u.end}, {"a patch", u.reconfigured},
		{"the addons", u.addons},
	} {
		if !t.Run(part.name, part.live) {
			s.explain(t)
			break
		}
	}
	var times strings.Builder
	s.Report(&times)
	t.Logf("times\n%s", times.String())
}

// cloudOn creates three control-plane nodes, a worker and a small cloud.
func (s *suite) cloudOn(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, s.Init(ctx, "--kubernetes-version", upgradeFrom(), "--high-availability-vip", s.VirtualAddress(), "--ingress", "none",
		"--ignore-preflight-errors", "Disk", "--skip-phases", "images/others"))
	for _, node := range []int{2, 3} {
		require.NoError(t, s.joinControlPlane(t, node))
	}
	require.NoError(t, s.Join(ctx, 4, "--as-onecloud-controller", "--ignore-preflight-errors", "Disk", "--skip-phases", "images/others"))
	s.must(t, scenario.Ocadm, "cluster", "create", "--version", version)
	s.must(t, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "onecloud", "patch", "oc", "default", "--type=merge", "-p", without(t, smallCloud))
	s.must(t, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "onecloud", "wait", "oc/default", "--for=condition=Ready", "--timeout=600s")
}

type upgraded struct {
	*suite
	bundle string
	before map[string]string
}

// pods returns the pods that an upgrade in place does not touch, with their identity and number of restarts.
func (s *suite) pods(t *testing.T) map[string]string {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct {
				Namespace, Name, UID string
				Annotations          map[string]string
				OwnerReferences      []struct{ Kind, Name string }
			}
			Spec   struct{ NodeName string }
			Status struct {
				ContainerStatuses []struct {
					Name         string
					RestartCount int
				}
			}
		}
	}
	out, _, err := s.Lab.Node(1).Exec(t.Context(), "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "get", "pods", "-A", "-o", "json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &list)
	}
	require.NoError(t, err)
	pods := map[string]string{}
	for _, p := range list.Items {
		m := p.Metadata
		if m.Annotations["kubernetes.io/config.mirror"] != "" || len(m.OwnerReferences) == 0 || m.OwnerReferences[0].Kind == "Job" || m.OwnerReferences[0].Name == "kube-proxy" {
			continue
		}
		is := m.UID + " on " + p.Spec.NodeName
		for _, c := range p.Status.ContainerStatuses {
			is += fmt.Sprintf(" %s %d", c.Name, c.RestartCount)
		}
		pods[m.Namespace+"/"+m.Name] = is
	}
	return pods
}

// unmoved checks that no pod was restarted or moved.
func (u *upgraded) unmoved(t *testing.T) {
	t.Helper()
	now := u.pods(t)
	for name, was := range u.before {
		if now[name] != was {
			t.Errorf("pod %s was %q and is %q", name, was, now[name])
		}
	}
}

// polling sends a request to the API server at the virtual address ten times a second until do returns, and prints how often and how long it did not answer.
func (u *upgraded) polling(t *testing.T, what string, do func() error) error {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	client := &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // only whether it answers is counted
	sent, failed, longest, last := 0, 0, time.Duration(0), time.Now()
	var asking sync.WaitGroup
	asking.Go(func() {
		for ctx.Err() == nil {
			sent++
			resp, err := client.Get("https://" + u.VirtualAddress() + ":6443/readyz")
			ok := err == nil && resp.StatusCode == http.StatusOK
			if err == nil {
				_ = resp.Body.Close()
			}
			if ok {
				longest, last = max(longest, time.Since(last)), time.Now()
			} else if ctx.Err() == nil {
				failed++
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	err := u.Timed(what, do)
	stop()
	asking.Wait()
	t.Logf("%s: %d requests to the API server, %d failed, longest time without an answer %.1f s", what, sent, failed, longest.Seconds())
	return err
}

func (u *upgraded) plan(t *testing.T) {
	out := u.must(t, scenario.Ocadm, "upgrade", "plan", "--bundle", u.bundle, "-o", "json")
	var p struct {
		From, To string
		Work     []struct{ Node, Command string }
		Findings []struct{ Code, Severity string }
	}
	require.NoError(t, json.Unmarshal([]byte(out), &p))
	var order []string
	for _, w := range p.Work {
		order = append(order, w.Node+" "+path.Base(strings.ReplaceAll(w.Command, " ", "/")))
	}
	if want := []string{"node1 apply", "node2 node", "node3 node", "node4 node"}; p.From != upgradeFrom() || p.To != kube.Kubernetes || !slices.Equal(order, want) {
		t.Errorf("%+v", p)
	}
	if out := u.must(t, scenario.Ocadm, "upgrade", "plan"); !strings.Contains(out, "Nothing to do") {
		t.Errorf("without a bundle: %s", out)
	}
	u.refused(t, 4, "OCA-4512", "upgrade", "plan", "--bundle", u.bundle)
	if out, err := u.On(t.Context(), 4, scenario.Ocadm, "upgrade", "node", "--yes"); err != nil || !strings.Contains(out, "Nothing to do") {
		t.Errorf("a worker before the control plane: %s, %v", out, err)
	}
}

func (u *upgraded) apply() []string {
	return []string{scenario.Ocadm, "upgrade", "apply", "--bundle", u.bundle, "--yes"}
}

// broken makes a patch break the last static pod, after the others have been replaced.
func (u *upgraded) broken(t *testing.T) {
	const patch = "/etc/ocadm/patches/kube-scheduler+json.yaml"
	u.must(t, "sh", "-c", `printf -- '- op: add\n  path: /spec/containers/0/command/-\n  value: --no-such-flag\n' > `+patch)
	err := u.polling(t, "a failed upgrade, with the way back", func() error {
		out, err := u.quietly(t, 1, u.apply()...) // the evidence is longer than what On repeats
		if err == nil || !strings.Contains(out, "OCA-4507") || !strings.Contains(out, "--no-such-flag") {
			t.Errorf("%s, %v; want OCA-4507", out, err)
		}
		return nil
	})
	require.NoError(t, err)
	u.must(t, "rm", patch)
	if out := u.must(t, "sh", "-c", "cat /etc/kubernetes/manifests/kube-*.yaml; ls /var/lib/ocadm"); strings.Contains(out, kube.Kubernetes) || strings.Contains(out, "upgrade") {
		t.Errorf("it did not go back:\n%s", out)
	}
	u.whole(t, 1)
	u.unmoved(t)
	if out := u.must(t, scenario.Ocadm, "upgrade", "plan", "--bundle", u.bundle); !strings.Contains(out, "1. on node1: ocadm upgrade apply") {
		t.Errorf("the plan afterwards:\n%s", out)
	}
}

func (u *upgraded) first(t *testing.T) {
	ctx := t.Context()
	killed := append([]string{"timeout", "-s", "KILL", "25"}, u.apply()...)
	if out, err := u.On(ctx, 1, killed...); err == nil {
		t.Errorf("the upgrade ended before it was killed: %s", out)
	}
	err := u.polling(t, "upgrade apply on node 1, continued", func() error {
		_, err := u.On(ctx, 1, u.apply()...)
		return err
	})
	require.NoError(t, err)
	u.unmoved(t)
	if out, err := u.On(ctx, 1, u.apply()...); err != nil || !strings.Contains(out, "Nothing to do") || !strings.Contains(out, "next: on node2: ocadm upgrade node") {
		t.Errorf("again: %s, %v", out, err)
	}
	u.refused(t, 2, "OCA-4504", u.apply()[1:]...)
	u.refused(t, 4, "OCA-4504", "upgrade", "node", "--yes")
}

// others upgrades nodes 2 and 3 at the same time, which wait for each other.
func (u *upgraded) others(t *testing.T) {
	err := u.polling(t, "upgrade node on nodes 2 and 3, both", func() error {
		var both sync.WaitGroup
		errs := make([]error, 2)
		for i, node := range []int{2, 3} {
			both.Go(func() { _, errs[i] = u.On(t.Context(), node, scenario.Ocadm, "upgrade", "node", "--yes", "-o", "json") })
		}
		both.Wait()
		return errors.Join(errs...)
	})
	require.NoError(t, err)
	u.whole(t, 1)
	u.unmoved(t)
}

// worker is drained first: only its pods move, and it accepts pods again afterwards.
func (u *upgraded) worker(t *testing.T) {
	err := u.polling(t, "upgrade node --drain on node 4, a worker", func() error {
		_, err := u.On(t.Context(), 4, scenario.Ocadm, "upgrade", "node", "--drain", "--yes")
		return err
	})
	require.NoError(t, err)
	moved, now := 0, u.pods(t)
	for name, was := range u.before {
		switch {
		case now[name] == was:
		case strings.Contains(was, " on node4 "):
			moved++
		default:
			t.Errorf("pod %s was %q and is %q", name, was, now[name])
		}
	}
	if moved == 0 {
		t.Error("no pod of node4 moved")
	}
	if out, err := u.Kubectl(t.Context(), "get", "node", "node4", "-o", "jsonpath={.spec.unschedulable}"); err != nil || out != "" {
		t.Errorf("node4 takes no pods: %s, %v", out, err)
	}
}

func (u *upgraded) end(t *testing.T) {
	ctx := t.Context()
	for node := 1; node <= 4; node++ {
		if out, err := u.On(ctx, node, scenario.Ocadm, "upgrade", "node", "--yes"); err != nil || !strings.Contains(out, "Nothing to do") {
			t.Errorf("node %d again: %s, %v", node, out, err)
		}
	}
	out, err := u.Kubectl(ctx, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}")
	if want := strings.TrimSpace(strings.Repeat(kube.Kubernetes+" ", 4)); err != nil || out != want {
		t.Errorf("the kubelets are %q, %v", out, err)
	}
	out, err = u.Kubectl(ctx, "-n", "kube-system", "get", "pods", "-o", "jsonpath={.items[*].spec.containers[*].image}")
	if err != nil || strings.Contains(out, ":"+upgradeFrom()) || strings.Count(out, "kube-proxy:"+kube.Kubernetes) != 4 {
		t.Errorf("the images are %s, %v", out, err)
	}
	u.available(t) // pods of the drained worker may still start
	u.whole(t, 1)
	out, err = u.On(ctx, 1, "ls", "/var/lib/ocadm")
	if err != nil || strings.Contains(out, "upgrade") {
		t.Errorf("left: %s, %v", out, err)
	}
}

// reconfigured applies a patch to a node that has the version. A patch that breaks a static pod is undone.
func (u *upgraded) reconfigured(t *testing.T) {
	const patch = "/etc/ocadm/patches/kube-scheduler+json.yaml"
	command := []string{scenario.Ocadm, "upgrade", "node", "--reconfigure", "--yes"}
	u.before = u.pods(t) // those of the drained worker have moved
	for _, c := range []struct{ flag, code string }{{"--v=1", ""}, {"--no-such-flag", "OCA-4507"}} {
		u.must(t, "sh", "-c", fmt.Sprintf(`printf -- '- op: add\n  path: /spec/containers/0/command/-\n  value: %s\n' > %s`, c.flag, patch))
		out, err := u.quietly(t, 1, command...)
		if (err != nil) != (c.code != "") || !strings.Contains(out, c.code) {
			t.Errorf("%s: %s, %v", c.flag, out, err)
		}
		if now := u.must(t, "cat", "/etc/kubernetes/manifests/kube-scheduler.yaml"); !strings.Contains(now, "--v=1") || strings.Contains(now, "--no-such-flag") {
			t.Errorf("after %s:\n%s", c.flag, now)
		}
	}
	u.must(t, "rm", patch)
	u.must(t, command...)
	if out := u.must(t, "sh", "-c", "cat /etc/kubernetes/manifests/kube-scheduler.yaml; ls /var/lib/ocadm"); strings.Contains(out, "--v=1") || strings.Contains(out, "upgrade") {
		t.Errorf("without the patch:\n%s", out)
	}
	u.whole(t, 1)
	u.unmoved(t)
}

// addons upgrades the addons to this release. What a user has changed in them is reported before it is replaced, and a killed run continues.
func (u *upgraded) addons(t *testing.T) {
	ctx := t.Context()
	u.must(t, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "annotate", "storageclass", "local-path", "defaultVolumeType-")
	u.must(t, "kubectl", "--kubeconfig", "/etc/kubernetes/admin.conf", "-n", "kube-flannel", "set", "resources", "daemonset/kube-flannel-ds", "-c", "kube-flannel", "--requests=cpu=60m")
	if out := u.must(t, scenario.Ocadm, "upgrade", "plan"); !strings.Contains(out, "1. then, on this node: ocadm upgrade addons") {
		t.Errorf("the plan:\n%s", out)
	}
	u.refused(t, 4, "OCA-4512", "upgrade", "addons", "--yes")
	u.refused(t, 1, "OCA-4515", "upgrade", "addons", "--yes")
	if out := u.must(t, scenario.Ocadm, "upgrade", "addons", "--skip", "cni", "--dry-run"); !strings.Contains(out, "configure StorageClass local-path") || strings.Contains(out, "flannel") {
		t.Errorf("without the pod network:\n%s", out)
	}
	replaced := []string{scenario.Ocadm, "upgrade", "addons", "--overwrite", "--yes"}
	if out, err := u.On(ctx, 1, append([]string{"timeout", "-s", "KILL", "3"}, replaced...)...); err == nil {
		t.Errorf("the upgrade ended before it was killed: %s", out)
	}
	err := u.polling(t, "upgrade addons, continued", func() error {
		_, err := u.On(ctx, 1, replaced...)
		return err
	})
	require.NoError(t, err)
	if out, err := u.On(ctx, 1, replaced...); err != nil || !strings.Contains(out, "Nothing to do") {
		t.Errorf("again: %s, %v", out, err)
	}
	const request = `{.spec.template.spec.containers[0].resources.requests.cpu}`
	if out, err := u.Kubectl(ctx, "-n", "kube-flannel", "get", "daemonset", "kube-flannel-ds", "-o", "jsonpath="+request); err != nil || out != "50m" {
		t.Errorf("flannel requests %s, %v", out, err)
	}
	if out, err := u.Kubectl(ctx, "get", "storageclass", "local-path", "-o", "jsonpath={.metadata.annotations.defaultVolumeType}"); err != nil || out != "local" {
		t.Errorf("volumes are %q, %v", out, err)
	}
	if err := u.AllAvailable(ctx); err != nil {
		t.Error(err)
	}
}
