// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	settings "yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/vip"
	"yunion.io/x/ocadm/test/require"
)

// A snapshot from before this node joined has neither its Node nor its place in the VRRP group.
func TestRejoinAfterAnEarlierSnapshot(t *testing.T) {
	h := machine(t)
	r := &Rejoin{Host: h, Member: own(t, h)}
	h.Config.Node.AdvertiseAddress = "10.0.0.1"
	group := settings.Settings{Address: "10.0.0.100", RouterID: 77, Password: "canary88", Peers: []string{"10.0.0.2", "10.0.0.3"}}
	synctest.Test(t, func(t *testing.T) {
		k := fake.NewClientBuilder().WithObjects(group.Secret()).Build()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		time.AfterFunc(10*time.Second, func() { // the kubelet registers it
			if err := k.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.Member.Name}}); err != nil {
				t.Error(err)
			}
		})
		require.NoError(t, r.known(ctx, k, workflow.Discard{}))
		var n corev1.Node
		require.NoError(t, k.Get(t.Context(), client.ObjectKey{Name: r.Member.Name}, &n))
		if _, is := n.Labels[v1alpha1.LabelControlPlane]; !is {
			t.Errorf("labels %v", n.Labels)
		}
		s, found, err := vip.Load(t.Context(), k)
		if err != nil || !found || !slices.Equal(s.Peers, []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}) {
			t.Errorf("%+v, %t, %v", s, found, err)
		}
		// A cluster without a virtual address has no group.
		require.NoError(t, k.Delete(t.Context(), group.Secret()))
		if err := r.known(ctx, k, workflow.Discard{}); err != nil {
			t.Error(err)
		}
	})
}

// Waiting for a restore at an address that no control-plane node has would never end.
func TestRejoinAfterAnUnknownRestore(t *testing.T) {
	for name, c := range map[string]struct {
		after, peers string
		prepare      func(t *testing.T, h *host.Host)
		refused      string
	}{
		"another control-plane node": {after: "10.0.0.2", peers: "10.0.0.1,10.0.0.2,10.0.0.3"},
		"no node":                    {after: "10.0.9.9", peers: "10.0.0.1,10.0.0.2,10.0.0.3", refused: "10.0.0.2, 10.0.0.3"},
		"this machine":               {after: "10.0.0.1", peers: "10.0.0.1,10.0.0.2,10.0.0.3", refused: "10.0.0.2, 10.0.0.3"},
		"a name":                     {after: "controller2.example.org", peers: "10.0.0.1,10.0.0.2"},
		"the data is given up": {after: "10.0.9.9", peers: "10.0.0.1,10.0.0.2", prepare: func(t *testing.T, h *host.Host) {
			t.Helper()
			write(t, h, "/etc/kubernetes/tmp/kubeadm-stopped-by-ocadm/etcd.yaml", etcdManifest)
			require.NoError(t, h.Files.Remove("/etc/kubernetes/manifests/etcd.yaml"))
			require.NoError(t, (record{Source: "after 10.0.9.9", Swapped: true}).save(h, rejoinName))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := machine(t)
			write(t, h, settings.SettingsFile, "peers: "+c.peers+"\n")
			if c.prepare != nil {
				c.prepare(t, h)
			}
			_, err := PlanRejoin(t.Context(), h, c.after)
			f := finding.Of(err)
			if c.refused == "" && err == nil {
				return
			}
			if len(f) != 1 || c.refused == "" || f[0].Code != "OCA-4159" || !strings.Contains(f[0].Cause, c.refused) {
				t.Errorf("%v, want %q", err, c.refused)
			}
		})
	}
}
