// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/snapshotfile"
)

// renewed returns Leases of nodes, renewed the given times ago.
func renewed(t *testing.T, now time.Time, ago ...time.Duration) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for i, d := range ago {
		at := metav1.NewMicroTime(now.Add(-d))
		name := string(rune('a' + i))
		out[leases+"kube-node-lease/"+name] = stored(t, coordinationv1.SchemeGroupVersion, "Lease",
			&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-node-lease"}, Spec: coordinationv1.LeaseSpec{RenewTime: &at}})
	}
	return out
}

// The age of a member's data is that of the last Lease renewal. Data without one does not count as current.
func TestAge(t *testing.T) {
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		values map[string][]byte
		age    string // "" if unknown
		fresh  bool
	}{
		"a majority that was lost just now": {renewed(t, now, 72*time.Hour, 40*time.Second, time.Minute), "40s", true},
		"at the limit":                      {renewed(t, now, freshFor), "5m0s", true},
		"beyond it":                         {renewed(t, now, freshFor+time.Second), "5m1s", false},
		"two days":                          {renewed(t, now, 48*time.Hour, 49*time.Hour), "48h0m0s", false},
		"a node whose clock is ahead":       {renewed(t, now, -26*time.Hour, 48*time.Hour), "48h0m0s", false},
		"clocks that differ by seconds":     {renewed(t, now, -5*time.Second), "0s", true},
		"the clock here is behind":          {renewed(t, now, -26*time.Hour), "", false},
		"no Lease":                          {map[string][]byte{clouds + "onecloud/default": cloudJSON("", "v1")}, "", false},
		"Leases that are encrypted":         {map[string][]byte{leases + "kube-node-lease/a": []byte("k8s:enc:aescbc:v1:key1:x")}, "", false},
	} {
		own, fresh := (&Restore{began: now}).age(c.values)
		if own.Age != c.age || fresh != c.fresh || own.Pauses == c.fresh || (own.Newest == nil) != (c.age == "") {
			t.Errorf("%s: %+v, fresh %t", name, own, fresh)
		}
		if text := own.String(); strings.Contains(text, "are paused") == c.fresh || !strings.Contains(text, c.age) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// survivor returns a machine whose member has a cloud, and nodes that renewed their Leases the given time ago.
func survivor(t *testing.T, ago time.Duration) *Restore {
	t.Helper()
	h := machine(t)
	values := snapshotOf(t)
	maps.Copy(values, renewed(t, time.Now(), ago))
	database(t, h, values)
	return &Restore{Host: h, Member: own(t, h), began: time.Now()}
}

func database(t *testing.T, h *host.Host, values map[string][]byte) {
	t.Helper()
	file := h.Files.Path("/var/lib/etcd/member/snap/db")
	require.NoError(t, os.Remove(file))
	snapshotfile.Database(t, file, 100, values)
}

// A survivor that was down while the others continued restores an earlier state, like a snapshot: the clouds are paused. One that was up to the end continues immediately.
func TestOlderCopyOfOwnData(t *testing.T) {
	for ago, held := range map[time.Duration]bool{time.Minute: false, 48 * time.Hour: true} {
		r := survivor(t, ago)
		p, err := r.Preview(t.Context())
		if err != nil || p.Own == nil || p.Own.Newest == nil || p.Own.Pauses != held || p.Holds() != held || len(p.Clouds) != 1 || len(p.Misfits) > 0 {
			t.Errorf("%s: %+v, %+v, %v", ago, p, p.Own, err)
		}
		step := holdStep()
		if skipped := step.Skip(r) != ""; skipped == held {
			t.Errorf("%s: before the stop, the step is skipped: %t", ago, skipped)
		}
		require.NoError(t, prepare(t.Context(), r, workflow.Discard{}))
		later := &Restore{Host: r.Host, Member: r.Member, began: time.Now().Add(time.Hour)} // it was killed and continues
		if skipped := step.Skip(later) != ""; skipped == held {
			t.Errorf("%s: after an interruption, the step is skipped: %t", ago, skipped)
		}
		if p, err := later.Preview(t.Context()); err != nil || p.Own.Pauses != held {
			t.Errorf("%s: after an interruption: %+v, %v", ago, p.Own, err)
		}
	}
}

// While etcd has its file open and does not answer, the age is unknown, and the data does not count as current.
func TestOwnDataUnread(t *testing.T) {
	r := survivor(t, time.Minute)
	require.NoError(t, os.WriteFile(r.Host.Files.Path("/var/lib/etcd/member/snap/db"), []byte("locked"), 0o600))
	p, err := r.Preview(t.Context())
	if err != nil || p.Own.Unread == "" || p.Holds() || holdStep().Skip(r) != "" {
		t.Errorf("%+v, %v", p.Own, err)
	}
	if text := p.Own.String(); !strings.Contains(text, "can be determined only after etcd has stopped") {
		t.Error(text)
	}
	if found := finding.Of(prepare(t.Context(), r, workflow.Discard{})); len(found) != 1 || found[0].Code != "OCA-4150" {
		t.Errorf("data that is damaged: %+v", found)
	}
}
