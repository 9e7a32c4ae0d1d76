// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"slices"
	"testing"
	"time"

	"yunion.io/x/ocadm/cluster/why"
	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/test/require"
)

func TestMachine(t *testing.T) {
	m := newMachine(t)
	if _, _, ok := Machine(t.Context(), m.Host); ok {
		t.Error("a machine without a kubelet is a node")
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	end := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: end}, &x509.Certificate{SerialNumber: big.NewInt(1)}, key.Public(), key)
	require.NoError(t, err)
	m.put(t, "/etc/kubernetes/manifests/kube-apiserver.yaml", "")
	m.put(t, "/etc/kubernetes/pki/apiserver.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	m.put(t, "/etc/kubernetes/pki/broken.crt", "nothing")
	m.put(t, podLogDir+"/kube-system_etcd-n1_1/etcd/0.log", line("old"))
	m.put(t, podLogDir+"/kube-system_etcd-n1_1/etcd/1.log", line("new"))
	former := podLogDir + "/kube-system_etcd-n1_9/etcd/3.log" // of the static pod before its manifest changed
	m.put(t, former, line("former"))
	require.NoError(t, os.Chtimes(m.Files.Path(former), end.AddDate(-9, 0, 0), end.AddDate(-9, 0, 0)))
	m.answers["journalctl -u kubelet -n 150 --no-pager -o cat"] = "one\ntwo\n"
	got, disks, ok := Machine(t.Context(), m.Host)
	if !ok || !got.ControlPlane || got.Node != "node2" || got.Units["kubelet"] != "active" || !slices.Equal(got.Journals["kubelet"], []string{"one", "two"}) ||
		!slices.Equal(got.StaticPods["etcd"], []string{"new"}) {
		t.Errorf("%v %+v", ok, got)
	}
	if got.APIServer == "" || got.APIServer == why.Ready || got.VirtualAddress != nil {
		t.Errorf("%+v", got)
	}
	if len(got.Certificates) != 1 || got.Certificates[0].File != "/etc/kubernetes/pki/apiserver.crt" || !got.Certificates[0].NotAfter.Equal(end) {
		t.Errorf("%+v", got.Certificates)
	}
	if len(disks) == 0 || disks[0].Node != "node2" || disks[0].Capacity == 0 {
		t.Errorf("%+v", disks)
	}
}

// A control-plane node with a virtual address reports what it sees of it: here nothing, without the node's address and keepalived's manifest.
func TestVirtualAddressOfAMachine(t *testing.T) {
	m := newMachine(t)
	m.put(t, "/etc/kubernetes/manifests/kube-apiserver.yaml", "")
	text, err := vip.Settings{Address: "192.0.2.100", RouterID: 7, Password: "canary88"}.With("192.0.2.99").Text()
	require.NoError(t, err)
	m.put(t, vip.SettingsFile, string(text))
	got, _, ok := Machine(t.Context(), m.Host)
	v := got.VirtualAddress
	if !ok || v == nil || v.Address != "192.0.2.100" || v.Here || v.Unseen == "" || v.Keepalived == why.Ready || v.Keepalived == "" {
		t.Errorf("%v %+v", ok, v)
	}
}

// The last etcd snapshot, and why there is no newer one, from the log of the static pod.
func TestSnapshotsOfAMachine(t *testing.T) {
	m := newMachine(t)
	m.put(t, "/etc/kubernetes/manifests/kube-apiserver.yaml", "")
	if got, _, _ := Machine(t.Context(), m.Host); got.EtcdSnapshots != nil {
		t.Errorf("a node that saves none: %+v", got.EtcdSnapshots)
	}
	m.put(t, "/etc/kubernetes/manifests/ocadm-etcd.yaml", "")
	log := podLogDir + "/kube-system_ocadm-etcd-n1_1/snapshots/0.log"
	failed := `level=WARN msg="no snapshot was saved" error="OCA-4148: \"no\" space"`
	m.put(t, log, line(`level=INFO msg="saved a snapshot" file=x`)+line(failed))
	got, _, _ := Machine(t.Context(), m.Host)
	if s := got.EtcdSnapshots; s == nil || s.Since.IsZero() || !s.Last.IsZero() || s.Problem != `OCA-4148: "no" space` {
		t.Errorf("%+v", s)
	}
	m.put(t, log, line(failed)+line(`level=INFO msg="saved a snapshot" file=x`))
	if got, _, _ := Machine(t.Context(), m.Host); got.EtcdSnapshots.Problem != "" {
		t.Errorf("%+v", got.EtcdSnapshots)
	}
}
