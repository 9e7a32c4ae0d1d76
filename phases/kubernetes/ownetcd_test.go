// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

// The files that etcd and the kubelet need to start are replaced atomically: a half-written or empty file after a power cut would keep the machine from
// starting.
func TestReplacedAsAWhole(t *testing.T) {
	h := controlPlaneEnding(t, 90*day)
	now := time.Now()
	link := "/var/lib/kubelet/pki/kubelet-client-" + now.UTC().Format("2006-01-02-15-04-05") + ".pem"
	write(t, h, link, "former")
	write(t, h, stopped(constants.Etcd), `{kind: Pod, spec: {containers: [{command: [etcd]}]}}`)
	write(t, h, manifest(constants.KubeScheduler), "{}")
	write(t, h, kubeletServing, h.Files.Text(pkiDir+"/apiserver.crt"))
	write(t, h, kubeletServingKey, h.Files.Text(pkiDir+"/apiserver.key"))
	for name, c := range map[string]struct {
		was, is string
		replace func(*host.Host) error
	}{
		"the manifest of etcd": {stopped(constants.Etcd), manifest(constants.Etcd), func(h *host.Host) error {
			m := EtcdMember{Member: etcd.Member{Name: "node1", PeerURL: "https://10.0.0.1:2380"}}
			m.pod.Spec.Containers = append(m.pod.Spec.Containers, corev1.Container{Command: []string{"etcd"}})
			return StartEtcdAs(h, m, nil)
		}},
		"the client certificate of the kubelet": {link, link, func(h *host.Host) error {
			_ = linkKubeletClient(h, []byte("new"), now) // it lacks a kubeconfig
			return nil
		}},
		"the serving certificate of the kubelet": {kubeletServing, kubeletServing, func(h *host.Host) error { return signKubeletServing(h, now) }},
	} {
		before, err := os.Stat(h.Files.Path(c.was))
		require.NoError(t, err)
		open, err := os.Open(h.Files.Path(c.was)) // so that its inode is not reused
		require.NoError(t, err)
		if err := c.replace(h); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		after, err := os.Stat(h.Files.Path(c.is))
		require.NoError(t, err)
		if os.SameFile(before, after) || after.Size() == 0 {
			t.Errorf("%s is written in its place", name)
		}
		_ = open.Close() // only read
	}
}

// An interrupted rejoin leaves the manifest of etcd moved away, and a learner without a name in the cluster. reset removes it by its address.
func TestPeerURLOfAStoppedMember(t *testing.T) {
	h := controlPlaneEnding(t, 90*day)
	h.Config.Node.AdvertiseAddress = "192.0.2.1" // that of the default route
	write(t, h, stopped(constants.Etcd), `{kind: Pod, metadata: {annotations: {kubeadm.kubernetes.io/etcd.advertise-client-urls: "https://10.0.0.5:2379"}}}`)
	if got := ownPeer(h); got != "https://10.0.0.5:2380" {
		t.Error(got)
	}
}
