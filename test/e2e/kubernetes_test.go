// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"os"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/lab/assemble"
	"yunion.io/x/ocadm/test/lab/binaries"
	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

// TestEarlierKubernetes creates a cluster and a cloud with the minor version before that of the linked kubeadm, from a bundle with it. init gets the
// version as a flag; join takes it from the cluster and its depot.
func TestEarlierKubernetes(t *testing.T) {
	needRoot(t)
	if os.Getenv("OCADM_TEST_KUBERNETES") == "" {
		t.Skip("make earlier-kubernetes runs it: the first time it builds that version")
	}
	log := logf(t)
	ocadm, bundle, err := scenario.BuildFor(t.Context(), repository,
		assemble.Options{KubernetesVersion: binaries.Earlier, CloudVersion: version, Logf: log})
	require.NoError(t, err)
	l := up(t, machine.Options{Nodes: 2, Ocadm: ocadm, Bundle: bundle, Logf: log})
	s := newSuite(t, l)
	for i := range l.Nodes() {
		s.fresh[i+1] = s.look(t, i+1)
	}
	// Without the version, init is refused before anything changes.
	if err := s.Init(t.Context()); err == nil || !strings.Contains(err.Error(), "--kubernetes-version "+binaries.Earlier) {
		t.Errorf("init without a version from a bundle of %s: %v", binaries.Earlier, err)
	}
	compare(t, "a machine on which init was refused", s.fresh[1], s.look(t, 1))
	if err := s.Init(t.Context(), "--kubernetes-version", binaries.Earlier, "--onecloud-version", version); err != nil {
		s.explain(t)
		t.Fatal(err)
	}
	require.NoError(t, s.Join(t.Context(), 2, "--as-onecloud-controller"))
	s.versions(t)
	s.available(t)
	// A second init changes nothing.
	if out, err := s.On(t.Context(), 1, append([]string{scenario.Ocadm, "init", "--bundle", scenario.Bundle, "--node-ip", l.Node(1).Address.String(),
		"--kubernetes-version", binaries.Earlier, "--onecloud-version", version}, scenario.MachineFlags()...)...); err != nil {
		t.Errorf("init again: %v\n%s", err, out)
	}
	s.deleteCloud(t)
	s.resetsCleanly(t, 2)
	s.resetsCleanly(t, 1)
	var times strings.Builder
	s.Report(&times)
	t.Logf("times\n%s", times.String())
}

// versions checks the version of everything of Kubernetes: the API server, the kubelets, and the running images.
func (s *suite) versions(t *testing.T) {
	t.Helper()
	out, err := s.Kubectl(t.Context(), "version")
	if err != nil || strings.Count(out, binaries.Earlier) != 2 {
		t.Errorf("client and server are\n%s%v", out, err)
	}
	out, err = s.Kubectl(t.Context(), "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}")
	if got := strings.Fields(out); err != nil || !slices.Equal(got, []string{binaries.Earlier, binaries.Earlier}) {
		t.Errorf("the kubelets are %q, %v", got, err)
	}
	out, err = s.Kubectl(t.Context(), "-n", "kube-system", "get", "pods", "-o", "jsonpath={.items[*].spec.containers[*].image}")
	if err != nil || strings.Count(out, "/kube-") != strings.Count(out, ":"+binaries.Earlier) || !strings.Contains(out, "kube-proxy:"+binaries.Earlier) {
		t.Errorf("the images are %s, %v", out, err)
	}
}
