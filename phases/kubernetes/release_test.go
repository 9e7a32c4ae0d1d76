// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

func TestOtherRelease(t *testing.T) {
	note := func(h *host.Host, name, v string) {
		require.NoError(t, h.Ledger.Record(host.Entry{Kind: host.KindRelease, Name: name, Op: host.Found, Detail: v}))
	}
	own := func(h *host.Host) { write(t, h, ConfigFile, "kind: JoinConfiguration\n") }
	tests := map[string]struct {
		make func(*host.Host)
		says string // part of the cause; "" for no finding
	}{
		"fresh": {func(*host.Host) {}, ""},
		"this release": {func(h *host.Host) {
			own(h)
			require.NoError(t, noteRelease(h))
		}, ""},
		"another ocadm with the same Kubernetes": {func(h *host.Host) {
			own(h)
			note(h, ocadmRelease, "v0.9.0")
			note(h, kubernetesRelease, version.Kubernetes)
		}, "it was installed by ocadm v0.9.0 with Kubernetes " + version.Kubernetes},
		"this release, after a reset of a node of another one that did not end": {func(h *host.Host) {
			note(h, ocadmRelease, "v0.9.0")
			note(h, kubernetesRelease, "v1.35.9")
			require.NoError(t, noteRelease(h))
			own(h)
		}, ""},
		"another one, although the phase that notes it was repeated": {func(h *host.Host) {
			own(h)
			note(h, ocadmRelease, "v0.9.0")
			note(h, kubernetesRelease, version.Kubernetes)
			require.NoError(t, noteRelease(h))
		}, "it was installed by ocadm v0.9.0"},
		"another Kubernetes": {func(h *host.Host) {
			own(h)
			note(h, ocadmRelease, version.Version)
			note(h, kubernetesRelease, "v1.35.9")
		}, "with Kubernetes v1.35.9"},
		"a control plane of the first release, which noted nothing": {func(h *host.Host) {
			own(h)
			write(t, h, manifest("kube-apiserver"), "kind: Pod\nspec:\n  containers:\n  - image: 10.0.0.1:5000/k8s/kube-apiserver:v1.36.2\n")
		}, "it was installed by an earlier ocadm with Kubernetes v1.36.2"},
		"the same before its manifests": {func(h *host.Host) {
			write(t, h, ConfigFile, "kind: InitConfiguration\n---\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.1\n")
		}, "with Kubernetes v1.36.1"},
		"a worker of the first release": {func(h *host.Host) {
			own(h)
			h.Facts.Programs = map[string]host.Program{"kubelet": {Version: "v1.36.0"}}
		}, "with Kubernetes v1.36.0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := fakeHost(t, nil)
			tt.make(h)
			l := finding.Of(OtherRelease(h))
			if tt.says == "" {
				if len(l) > 0 {
					t.Errorf("got %v", l)
				}
				return
			}
			if len(l) != 1 || l[0].Code != "OCA-1027" || !strings.Contains(l[0].Cause, tt.says) || !strings.Contains(l[0].Remedy, "ocadm reset") {
				t.Errorf("got %+v, want %q", l, tt.says)
			}
		})
	}
}

// A repeated init or join without --kubernetes-version neither upgrades nor downgrades the node.
func TestOtherVersion(t *testing.T) {
	const file = "/usr/local/bin/kubelet"
	cluster := "kind: InitConfiguration\n---\nkind: ClusterConfiguration\nkubernetesVersion: v1.35.4\n"
	for name, tt := range map[string]struct {
		config, runs string
		now          string
		refused      bool
	}{
		"init without the flag":                 {cluster, etcdDir + "/member/wal", version.Kubernetes, true},
		"init with the flag":                    {cluster, etcdDir + "/member/wal", "v1.35.4", false},
		"init, before there is a cluster":       {cluster, KubeletKubeconfig, version.Kubernetes, false},
		"join without the flag":                 {"kind: JoinConfiguration\n", KubeletKubeconfig, version.Kubernetes, true},
		"join with the flag":                    {"kind: JoinConfiguration\n", KubeletKubeconfig, "v1.35.4", false},
		"join, before the kubelet has a client": {"kind: JoinConfiguration\n", bootstrapConf, version.Kubernetes, false},
	} {
		h := fakeHost(t, &host.Recorder{})
		h.Config.Cluster.KubernetesVersion = tt.now
		h.Facts.Programs = map[string]host.Program{"kubelet": {Path: file, Version: "v1.35.4"}}
		for _, f := range []string{file, tt.runs} {
			write(t, h, f, "x")
		}
		write(t, h, ConfigFile, tt.config)
		found := finding.Of(OtherVersion(h))
		if refused := len(found) == 1 && strings.Contains(found[0].Remedy, "--kubernetes-version v1.35.4"); refused != tt.refused {
			t.Errorf("%s: %v", name, found)
		}
	}
}
