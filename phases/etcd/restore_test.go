// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

// Other running control-plane nodes may be healthy: their data must not be given up for this node's.
func TestOthersRun(t *testing.T) {
	h := machine(t)
	write(t, h, "/etc/kubernetes/manifests/etcd.yaml", strings.Replace(etcdManifest, ",node2=https://10.0.0.2:2380", "", 1))
	write(t, h, vip.SettingsFile, "peers: 10.0.0.1,127.0.0.1\n")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	h.Config.Node.BindPort = l.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it listens on TCP
	_, err = PlanRestore(t.Context(), h, "", true, false)
	found := finding.Of(err)
	if len(found) != 1 || found[0].Code != "OCA-4151" || !slices.Equal(found[0].Evidence, []string{"127.0.0.1"}) {
		t.Fatalf("%+v, %v", found, err)
	}
	if r := found[0].Remedy; !strings.HasPrefix(r, "if etcd works there, on this machine instead: ocadm etcd rejoin;") {
		t.Error(r)
	}
	// An interrupted rejoin has moved the data aside: it continues with the others' data.
	require.NoError(t, os.RemoveAll(h.Files.Path("/var/lib/etcd/member")))
	_, err = PlanRestore(t.Context(), h, "", true, false)
	if found = finding.Of(err); len(found) != 1 || found[0].Code != "OCA-4151" {
		t.Errorf("without data: %v", err)
	}
}

// Data that a person put back after an interrupted rejoin must not be used for the new member: etcd would start as the former one, which was removed.
func TestRejoinWithRestoredData(t *testing.T) {
	for name, c := range map[string]struct{ put func(old, new string) error }{
		"moved":  {os.Rename},
		"copied": {func(old, new string) error { return os.CopyFS(new, os.DirFS(old)) }},
	} {
		h := machine(t)
		r := &Rejoin{Host: h, Member: own(t, h)}
		rec := record{Source: r.source(), Before: beforeDir + "T", Swapped: true}
		require.NoError(t, errors.Join(rec.save(h, rejoinName), moveMember(r.path("member"), r.path(rec.Before))))
		step := RejoinSteps()[2]
		if done, err := step.Check(t.Context(), r); !done || err != nil {
			t.Errorf("%s: before: %t, %v", name, done, err)
		}
		require.NoError(t, c.put(r.path(rec.Before+"/member"), r.path("member")))
		if done, err := step.Check(t.Context(), r); done || err != nil {
			t.Errorf("%s: put back: %t, %v", name, done, err)
		}
		if err := step.Run(t.Context(), r, workflow.Discard{}); err != nil || exists(r.path("member")) {
			t.Errorf("%s: it is still there, %v", name, err)
		}
		if done, err := step.Check(t.Context(), r); !done || err != nil {
			t.Errorf("%s: after: %t, %v", name, done, err)
		}
	}
}

// Data from a restore that was interrupted before the swap must not replace what etcd has accepted since.
func TestPreparedOfLongAgo(t *testing.T) {
	h := machine(t)
	alone := strings.Replace(etcdManifest, ",node2=https://10.0.0.2:2380", "", 1) // other members would be queried
	write(t, h, "/etc/kubernetes/manifests/etcd.yaml", alone)
	write(t, h, "/var/lib/etcd/"+restoredDir+"/member/snap/db", "of long ago")
	require.NoError(t, (record{Source: "data", Prepared: true}).save(h, restoreName))
	prepared := func() bool {
		t.Helper()
		r, err := PlanRestore(t.Context(), h, "", true, true)
		require.NoError(t, err)
		done, err := RestoreSteps()[1].Check(t.Context(), r)
		require.NoError(t, err)
		return done
	}
	if prepared() {
		t.Error("the control plane has run since, and the data passes for the present")
	}
	write(t, h, "/etc/kubernetes/tmp/kubeadm-stopped-by-ocadm/etcd.yaml", alone)
	require.NoError(t, os.Remove(h.Files.Path("/etc/kubernetes/manifests/etcd.yaml")))
	if !prepared() {
		t.Error("the control plane is stopped, and the data is made a second time")
	}
	require.NoError(t, os.RemoveAll(h.Files.Path("/var/lib/etcd/"+restoredDir)))
	if prepared() {
		t.Error("the data was deleted, and passes for made")
	}
}

// The directory of the data may have been deleted, or be on a new disk.
func TestPrepareWithoutDirectory(t *testing.T) {
	h := machine(t)
	r := &Restore{Host: h, Member: own(t, h), File: h.Files.Path("/snapshot.db"), Info: snapshot.Info{Digest: "sha256:x"}}
	require.NoError(t, os.RemoveAll(r.path("")))
	err := prepare(t.Context(), r, workflow.Discard{}) // without a snapshot it goes no further
	if f := finding.Of(err); len(f) != 1 || f[0].Code != "OCA-4150" {
		t.Error(err)
	}
	if st, err := os.Stat(r.path("")); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", st, err)
	}
}
