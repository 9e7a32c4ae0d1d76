// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/hex"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	cryptoutil "k8s.io/kubernetes/cmd/kubeadm/app/util/crypto"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

const testKey = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// Each of kubeadm's phases of a control-plane join runs as a phase of ours: alone, without a secret in its arguments, and not on a worker.
func TestControlPlaneJoinRunsKubeadm(t *testing.T) {
	rec := &host.Recorder{}
	h := fakeHost(t, rec)
	h.Config.Join.ControlPlane, h.Config.Join.CertificateKey, h.Config.Join.Token = true, testKey, "abcdef.0123456789abcdef"
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: h.Config.Node.Name}}
	c := fake.NewClientBuilder().WithObjects(node).Build()
	h.Kube = func(context.Context) (client.WithWatch, error) { return c, nil }
	plan := JoinPhases()
	var ran []string
	for _, p := range flat("", plan) {
		switch p.Name {
		case "discovery", "kubeadm-config", "check-etcd", formerMemberName, "kubelet-wait-bootstrap", "node-registered":
			continue
		}
		if p.Run == nil || strings.HasPrefix(p.Name, "wait-control-plane/") {
			continue
		}
		rec.Reset()
		if err := p.Run(t.Context(), h, &reporter{}); err != nil {
			t.Errorf("%s: %v", p.Name, err)
			continue
		}
		calls := rec.Calls()
		if len(calls) != 1 || !strings.HasSuffix(calls[0], " --config "+ConfigFile) || strings.Contains(calls[0], testKey) || strings.Contains(calls[0], "abcdef") {
			t.Errorf("%s runs %q", p.Name, calls)
			continue
		}
		phase, _, _ := strings.Cut(strings.TrimPrefix(calls[0], "/usr/local/bin/ocadm kubeadm join phase "), " --config")
		ran = append(ran, phase)
	}
	want := []string{"control-plane-prepare download-certs", "control-plane-prepare certs", "control-plane-prepare kubeconfig", "control-plane-prepare control-plane",
		"kubelet-start", "etcd-join", "control-plane-join mark-control-plane"}
	if !slices.Equal(ran, want) {
		t.Errorf("kubeadm ran %q, want %q", ran, want)
	}
	h.Config.Join.ControlPlane = false
	for _, name := range []string{"control-plane-prepare", "check-etcd", "etcd-join", "wait-control-plane", "mark-control-plane"} {
		at := slices.IndexFunc(plan, func(p host.Phase) bool { return p.Name == name })
		if at < 0 || plan[at].Skip == nil || plan[at].Skip(h) == "" {
			t.Errorf("%s would run on a worker", name)
		}
	}
}

// etcd accepts one learner at a time: another machine's blocks the join, our own comes from an interrupted join.
func TestOtherLearner(t *testing.T) {
	const own, other = "https://10.0.0.2:2380", "https://10.0.0.3:2380"
	member := etcd.Member{Name: "me", PeerURL: own}
	voter := etcd.Listed{ID: 1, Name: "a", PeerURLs: []string{"https://10.0.0.1:2380"}}
	for name, tt := range map[string]struct {
		list []etcd.Listed
		want bool
	}{
		"nobody joins":        {[]etcd.Listed{voter}, false},
		"one's own":           {[]etcd.Listed{voter, {ID: 2, PeerURLs: []string{own}, Learner: true}}, false},
		"another":             {[]etcd.Listed{voter, {ID: 2, Name: "b", PeerURLs: []string{other}, Learner: true}}, true},
		"another, not yet up": {[]etcd.Listed{voter, {ID: 2, PeerURLs: []string{other}}}, true},
		"one's former":        {[]etcd.Listed{voter, {ID: 2, Name: "me", PeerURLs: []string{other}, Learner: true}}, false},
	} {
		if got, joins := otherLearner(tt.list, member); joins != tt.want || joins && !got.At(other) {
			t.Errorf("%s: %v %v", name, got, joins)
		}
	}
}

func TestNeedEndpoint(t *testing.T) {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node1", Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""}},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}}},
	}
	for endpoint, code := range map[string]string{"10.0.0.1:6443": "OCA-4130", "": "OCA-4130", "10.0.0.9:6443": "", "api.example.org:6443": ""} {
		conf := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubeadm-config"},
			Data: map[string]string{"ClusterConfiguration": "controlPlaneEndpoint: \"" + endpoint + "\"\n"}}
		err := NeedEndpoint(t.Context(), fake.NewClientBuilder().WithObjects(node, conf).Build())
		if l := finding.Of(err); code == "" && err != nil || code != "" && (len(l) != 1 || l[0].Code != code || !strings.Contains(l[0].Remedy, "--control-plane-endpoint")) {
			t.Errorf("endpoint %q: %v, want %q", endpoint, err, code)
		}
	}
}

func TestCheckControlPlaneJoin(t *testing.T) {
	later := time.Now().Add(time.Hour)
	ca := issue(t, nil, later)
	server := issue(t, &ca, later, "127.0.0.1")
	key, err := hex.DecodeString(testKey)
	require.NoError(t, err)
	sealed, err := cryptoutil.EncryptBytes([]byte(ca.pem), key)
	require.NoError(t, err)
	kept := map[string][]byte{"ca.crt": sealed}
	for name, tt := range map[string]struct {
		certs  map[string][]byte
		key    string
		change func(*kubeadmv1beta4.ClusterConfiguration)
		code   string
	}{
		"a rotation":         {kept, testKey, nil, "OCA-4409"},
		"good":               {kept, testKey, nil, ""},
		"expired":            {nil, testKey, nil, "OCA-4131"},
		"an earlier key":     {kept, strings.Repeat("0", 64), nil, "OCA-4132"},
		"external etcd":      {kept, testKey, func(k *kubeadmv1beta4.ClusterConfiguration) { k.Etcd.External = &kubeadmv1beta4.ExternalEtcd{} }, "OCA-4134"},
		"another version":    {kept, testKey, func(k *kubeadmv1beta4.ClusterConfiguration) { k.KubernetesVersion = "v1.36.0" }, "OCA-4109"},
		"endpoint is silent": {kept, testKey, func(k *kubeadmv1beta4.ClusterConfiguration) { k.ControlPlaneEndpoint = "127.0.0.1:1" }, "OCA-4135"},
	} {
		s := httptest.NewUnstartedServer(controlPlane{authorised: true, certs: tt.certs})
		s.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{server.cert.Raw}, PrivateKey: server.key}}}
		s.StartTLS()
		h := fakeHost(t, nil)
		h.Config.Join.Endpoint, h.Config.Join.Token, h.Config.Join.CertificateKey = s.Listener.Addr().String(), "abcdef.0123456789abcdef", tt.key
		d := Discovered{CA: []byte(ca.pem), Cluster: kubeadmv1beta4.ClusterConfiguration{KubernetesVersion: "v1.36.3"}}
		if name == "a rotation" {
			d.CA = append(d.CA, issue(t, nil, later).pem...)
		}
		if tt.change != nil {
			tt.change(&d.Cluster)
		}
		err := CheckControlPlaneJoin(t.Context(), h, d)
		s.Close()
		if l := finding.Of(err); tt.code == "" && err != nil || tt.code != "" && (len(l) != 1 || l[0].Code != tt.code) || err != nil && strings.Contains(err.Error(), tt.key) {
			t.Errorf("%s: %v, want %q", name, err, tt.code)
		}
	}
}

// The certificate key reaches kubeadm only through standard input.
func TestUploadAuthorities(t *testing.T) {
	var given []byte
	rec := &host.Recorder{}
	h := fakeHost(t, rec)
	rec.Answer = func(exec.Command) (exec.Result, error) {
		given = []byte(strings.Join(rec.Input(), ""))
		return exec.Result{}, nil
	}
	conf := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kubeadm-config"},
		Data: map[string]string{"ClusterConfiguration": "controlPlaneEndpoint: api.example.org:6443\nkubernetesVersion: v1.36.3\n"}}
	c := fake.NewClientBuilder().WithObjects(conf).Build()
	h.Kube = func(context.Context) (client.WithWatch, error) { return c, nil }
	if _, err := UploadAuthorities(t.Context(), h); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != "OCA-4133" {
		t.Fatalf("on a machine without the keys: %v", err)
	}
	for _, a := range authorities() {
		ca := issue(t, nil, time.Now().Add(time.Hour))
		write(t, h, a.path()+".crt", ca.pem)
		write(t, h, a.path()+".key", ca.keyPEM(t))
	}
	for _, f := range serviceAccountKeys() {
		write(t, h, f, "key")
	}
	key, err := UploadAuthorities(t.Context(), h)
	if err != nil || len(key) != 64 {
		t.Fatalf("%q, %v", key, err)
	}
	if calls := strings.Join(rec.Calls(), " "); strings.Contains(calls, key) || !strings.Contains(calls, "init phase upload-certs --upload-certs --skip-certificate-key-print") {
		t.Errorf("it runs %q", calls)
	}
	if !bytes.Contains(given, []byte("certificateKey: "+key)) || !bytes.Contains(given, []byte("kind: ClusterConfiguration")) {
		t.Errorf("kubeadm is given %s", given)
	}
}

// A machine without etcd replaces its former member, but not one that runs, and not at the cost of the majority.
func TestFormerMembers(t *testing.T) {
	peer := func(n string) string { return "https://10.0.0." + n + ":2380" }
	up := func(n string) etcd.Observed {
		return etcd.Observed{ID: n, Name: "node" + n, Peer: peer(n), Version: "3.6.8", Answers: true}
	}
	down := func(n string) etcd.Observed { return etcd.Observed{ID: n, Name: "node" + n, Peer: peer(n)} }
	moved, unstarted, learner := down("3"), etcd.Observed{ID: "3", Peer: peer("3"), Learner: true}, down("3")
	moved.Peer, learner.Learner = peer("33"), true
	for name, tt := range map[string]struct {
		all  []etcd.Observed
		want string // IDs, or the code of a finding
	}{
		"never a member":            {[]etcd.Observed{up("1"), up("2")}, ""},
		"lost":                      {[]etcd.Observed{up("1"), up("2"), down("3")}, "3"},
		"lost with another address": {[]etcd.Observed{up("1"), up("2"), moved}, "3"},
		"two of one machine":        {[]etcd.Observed{up("1"), up("2"), up("4"), moved, {ID: "5", Name: "old", Peer: peer("3")}}, "3 5"},
		"of a join that was cut":    {[]etcd.Observed{up("1"), up("2"), unstarted}, ""},
		"a learner that was lost":   {[]etcd.Observed{up("1"), up("2"), learner}, "3"},
		"runs elsewhere":            {[]etcd.Observed{up("1"), up("2"), up("3")}, "OCA-4144"},
		"no majority without it":    {[]etcd.Observed{up("1"), down("2"), down("3")}, "OCA-4144"},
		"the only other":            {[]etcd.Observed{up("1"), down("3")}, "OCA-4144"},
	} {
		got, err := formerMembers(tt.all, "node3", peer("3"))
		var ids []string
		for _, m := range got {
			ids = append(ids, m.ID)
		}
		for _, f := range finding.Of(err) {
			ids = append(ids, f.Code)
		}
		if all := strings.Join(ids, " "); all != tt.want {
			t.Errorf("%s: %q, %v", name, all, err)
		}
	}
}
