// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/test/require"
)

const etcdManifest = `{apiVersion: v1, kind: Pod, metadata: {name: etcd}, spec: {containers: [{name: etcd, command: [etcd,
 --advertise-client-urls=https://10.0.0.1:2379, --data-dir=/var/lib/etcd, --initial-advertise-peer-urls=https://10.0.0.1:2380,
 "--initial-cluster=node1=https://10.0.0.1:2380,node2=https://10.0.0.2:2380", --initial-cluster-state=existing, --name=node1]}]}}`

// machine returns a control-plane node with fake etcd data.
func machine(t *testing.T) *host.Host {
	t.Helper()
	c := config.Default()
	h, err := host.Fake(t.Context(), t.TempDir(), &c, &host.Recorder{})
	require.NoError(t, err)
	write(t, h, "/etc/kubernetes/manifests/etcd.yaml", etcdManifest)
	write(t, h, "/var/lib/etcd/member/snap/db", "former")
	return h
}

func write(t *testing.T, h *host.Host, name, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(h.Files.Path(name)), 0o700))
	require.NoError(t, os.WriteFile(h.Files.Path(name), []byte(text), 0o600))
}

func own(t *testing.T, h *host.Host) kubernetes.EtcdMember {
	t.Helper()
	m, err := kubernetes.OwnEtcd(h)
	if err != nil || m.Name != "node1" || m.ClientURL != "https://10.0.0.1:2379" || m.PeerURL != "https://10.0.0.1:2380" || m.DataDir != "/var/lib/etcd" {
		t.Fatalf("%+v, %v", m, err)
	}
	return m
}

// The data is swapped in two moves. A restore interrupted before, between or after them continues to the same end, and can be undone.
func TestSwap(t *testing.T) {
	for _, at := range []string{"before", "between", "after"} {
		h := machine(t)
		r := &Restore{Host: h, Member: own(t, h), File: "x.db", Info: snapshot.Info{Digest: "sha256:x"}}
		write(t, h, "/var/lib/etcd/"+restoredDir+"/member/snap/db", "restored")
		rec := record{Source: r.source(), Prepared: true, Before: beforeDir + "T"}
		require.NoError(t, rec.save(h, restoreName))
		if at != "before" {
			require.NoError(t, moveMember(r.path("member"), r.path(rec.Before)))
		}
		if at == "after" {
			require.NoError(t, os.Rename(r.path(restoredDir+"/member"), r.path("member")))
		}
		require.NoError(t, swap(t.Context(), r, workflow.Discard{}))
		got, err := load(h, restoreName, r.source())
		if text := h.Files.Text("/var/lib/etcd/member/snap/db"); err != nil || !got.Swapped || text != "restored" {
			t.Errorf("cut off %s: %+v, data %q, %v", at, got, text, err)
		}
		if text := h.Files.Text("/var/lib/etcd/" + rec.Before + "/member/snap/db"); text != "former" {
			t.Errorf("cut off %s: the former data is %q", at, text)
		}
		for range 2 {
			require.NoError(t, unswap(t.Context(), r, workflow.Discard{}))
		}
		entries, err := os.ReadDir(r.path(""))
		if text := h.Files.Text("/var/lib/etcd/member/snap/db"); err != nil || text != "former" || len(entries) != 1 {
			t.Errorf("cut off %s, taken back: data %q, %v, %v", at, text, entries, err)
		}
	}
}

// A restore also continues from any point of its rollback, and never starts etcd without data.
func TestUnswapCutOff(t *testing.T) {
	for cut := range 4 {
		h := machine(t)
		r := &Restore{Host: h, Member: own(t, h), File: "x.db", Info: snapshot.Info{Digest: "sha256:x"}}
		write(t, h, "/var/lib/etcd/"+restoredDir+"/member/snap/db", "restored")
		rec := record{Source: r.source(), Prepared: true}
		require.NoError(t, errors.Join(rec.save(h, restoreName), swap(t.Context(), r, workflow.Discard{})))
		rec, err := r.record()
		require.NoError(t, err)
		rec.Swapped = false
		for i, move := range []func() error{ // the moves of unswap
			func() error { return rec.save(h, restoreName) },
			func() error { return moveMember(r.path("member"), r.path(restoredDir)) },
			func() error { return os.Rename(r.path(rec.Before+"/member"), r.path("member")) },
		} {
			if i < cut {
				require.NoError(t, move())
			}
		}
		require.NoError(t, swap(t.Context(), r, workflow.Discard{}))
		if text := h.Files.Text("/var/lib/etcd/member/snap/db"); text != "restored" {
			t.Errorf("cut off after %d moves: the data is %q", cut, text)
		}
		require.NoError(t, unswap(t.Context(), r, workflow.Discard{}))
		if text := h.Files.Text("/var/lib/etcd/member/snap/db"); text != "former" {
			t.Errorf("cut off after %d moves, taken back: the data is %q", cut, text)
		}
	}
}

// The record of a restore or rejoin that was interrupted when the control plane was running again does not count for the next one, weeks later.
func TestRecordIsOver(t *testing.T) {
	h := machine(t)
	alone := strings.Replace(etcdManifest, ",node2=https://10.0.0.2:2380", "", 1) // other members would be queried
	write(t, h, "/etc/kubernetes/manifests/etcd.yaml", alone)
	for _, name := range []string{restoreName, rejoinName} {
		source := map[string]string{restoreName: "data", rejoinName: "after 10.0.0.9"}[name]
		require.NoError(t, (record{Source: source, Prepared: true, Swapped: true, Added: true, Before: beforeDir + "T"}).save(h, name))
	}
	write(t, h, "/var/lib/etcd/"+beforeDir+"T/member/snap/db", "of long ago")
	r, err := PlanRestore(t.Context(), h, "", true, true)
	require.NoError(t, err)
	if rec, err := r.record(); err != nil || rec.Prepared || rec.Swapped {
		t.Errorf("%+v, %v", rec, err)
	}
	if err := unswap(t.Context(), r, workflow.Discard{}); err != nil || h.Files.Text("/var/lib/etcd/member/snap/db") != "former" {
		t.Errorf("a rollback took data of long ago: %v", err)
	}
	j, err := PlanRejoin(t.Context(), h, "10.0.0.9")
	require.NoError(t, err)
	if rec, err := j.record(); err != nil || rec.Added || rec.Swapped {
		t.Errorf("%+v, %v", rec, err)
	}
	write(t, h, "/etc/kubernetes/tmp/kubeadm-stopped-by-ocadm/etcd.yaml", alone) // one that was interrupted earlier continues
	require.NoError(t, os.Remove(h.Files.Path("/etc/kubernetes/manifests/etcd.yaml")))
	if r, err = PlanRestore(t.Context(), h, "", true, true); err != nil {
		t.Fatal(err)
	}
	if rec, err := r.record(); err != nil || !rec.Swapped {
		t.Errorf("%+v, %v", rec, err)
	}
}

// An interrupted rejoin leaves no data. A restore that then fails must not start an empty etcd: it would be an empty cluster.
func TestNoEmptyEtcd(t *testing.T) {
	h := machine(t)
	alone := strings.Replace(etcdManifest, ",node2=https://10.0.0.2:2380", "", 1) // other members would be queried
	write(t, h, "/etc/kubernetes/tmp/kubeadm-stopped-by-ocadm/etcd.yaml", alone)
	for _, f := range []string{"/etc/kubernetes/manifests/etcd.yaml", "/var/lib/etcd/member"} {
		require.NoError(t, os.RemoveAll(h.Files.Path(f)))
	}
	if _, err := PlanRestore(t.Context(), h, "", true, true); len(finding.Of(err)) != 1 || !strings.Contains(err.Error(), "no data in /var/lib/etcd") {
		t.Errorf("a restore from no data: %v", err)
	}
	r := &Restore{Host: h, Member: own(t, h)}
	if err := RestoreSteps()[0].Undo(t.Context(), r, workflow.Discard{}); err == nil || h.Files.Exists("/etc/kubernetes/manifests/etcd.yaml") {
		t.Errorf("etcd is started with nothing, %v", err)
	}
}

// A rejoin keeps its data if the others have lost their majority since it started.
func TestReplaceable(t *testing.T) {
	own, other, third := etcd.Observed{ID: "1", Peer: "https://10.0.0.1:2380"}, etcd.Observed{ID: "2", Peer: "https://10.0.0.2:2380", Answers: true},
		etcd.Observed{ID: "3", Peer: "https://10.0.0.3:2380", Answers: true}
	away := third
	away.Answers = false
	r := &Rejoin{Member: kubernetes.EtcdMember{Member: etcd.Member{Name: "node1", PeerURL: own.Peer}}}
	for name, c := range map[string]struct {
		all     []etcd.Observed
		refused bool
	}{
		"the others answer":            {[]etcd.Observed{own, other, third}, false},
		"one of them is away":          {[]etcd.Observed{own, other, away}, true},
		"it is no member":              {[]etcd.Observed{other, third}, false},
		"it is the only voting member": {[]etcd.Observed{own}, true},
		"the only other answers":       {[]etcd.Observed{own, other}, true},
	} {
		if err := r.replaceable(c.all); (err != nil) != c.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The record of an abandoned restore does not count for another one.
func TestRecordMatchesOneSnapshot(t *testing.T) {
	h := machine(t)
	require.NoError(t, (record{Source: "sha256:a", Prepared: true, Swapped: true}).save(h, restoreName))
	if r, err := load(h, restoreName, "sha256:b"); err != nil || r.Prepared || r.Swapped {
		t.Errorf("%+v, %v", r, err)
	}
	if st, err := os.Stat(h.Files.Path(recordFile(restoreName))); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
}

// A rejoin does not clear the data twice: after the first time, it belongs to the new member.
func TestClearDataOnce(t *testing.T) {
	h := machine(t)
	r := &Rejoin{Host: h, Member: own(t, h)}
	require.NoError(t, clearData(t.Context(), r, workflow.Discard{}))
	if h.Files.Exists("/var/lib/etcd/member") || !h.Files.Any("/var/lib/etcd/"+beforeDir+"*/member/snap/db") {
		t.Error("the data was not moved aside")
	}
	if done, err := RejoinSteps()[2].Check(t.Context(), r); !done || err != nil {
		t.Errorf("done %t, %v", done, err)
	}
}

func TestDiagnose(t *testing.T) {
	for _, c := range []struct {
		name, db, log, code, cause string
	}{
		{"damaged file", "rubbish", "", "OCA-4014", "invalid database"},
		{"damaged log", "", `{"msg":"wal: max entry size limit exceeded, walpb: crc mismatch"}`, "OCA-4014", "crc mismatch"},
		{"no file", "", "", "OCA-4014", "no such file"},
	} {
		h := machine(t)
		if c.db == "" {
			require.NoError(t, os.Remove(h.Files.Path("/var/lib/etcd/member/snap/db")))
		} else {
			write(t, h, "/var/lib/etcd/member/snap/db", c.db)
		}
		if c.log != "" {
			write(t, h, "/var/log/pods/kube-system_etcd-node1_0/etcd/0.log", c.log)
		}
		f := finding.Of(Diagnose(h, own(t, h), os.ErrDeadlineExceeded))
		if len(f) != 1 || f[0].Code != c.code || !strings.Contains(strings.Join(f[0].Evidence, "\n"), c.cause) || !strings.Contains(f[0].Remedy, "ocadm etcd re") {
			t.Errorf("%s: %+v", c.name, f)
		}
	}
}

func TestJudge(t *testing.T) {
	now := time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC)
	member := func(name string, answers bool) etcd.Observed {
		return etcd.Observed{Name: name, Answers: answers, Size: 10, Quota: 100}
	}
	const none = time.Duration(-1)
	full := member("c", true)
	full.Size, full.Alarms = 90, []string{"NOSPACE"}
	inUse := member("c", true)
	inUse.Size, inUse.InUse = 90, 85
	for _, c := range []struct {
		members   []etcd.Observed
		age       time.Duration
		tolerates int
		problems  []string
	}{
		{[]etcd.Observed{member("a", true), member("b", true), member("c", true)}, time.Hour, 1, nil},
		{[]etcd.Observed{member("a", true), member("b", true), member("c", false)}, time.Hour, 0, []string{"member c does not answer"}},
		{[]etcd.Observed{member("a", true), member("b", true), full}, time.Hour, 1, []string{"reports NOSPACE", "ocadm etcd defrag"}},
		{[]etcd.Observed{member("a", true), member("b", true), inUse}, time.Hour, 1, []string{"delete objects"}}, // nothing to defragment
		{[]etcd.Observed{member("a", true), {Peer: "https://10.0.0.7:2380", Learner: true}}, time.Hour, 0,
			[]string{"member 10.0.0.7 does not answer", "ocadm node remove 10.0.0.7"}},
		{[]etcd.Observed{member("a", true)}, 5 * time.Hour, 0, []string{"5h0m0s old"}},
		{[]etcd.Observed{member("a", true)}, none, 0, []string{"no snapshot"}},
		{[]etcd.Observed{member("a", true)}, -10 * time.Second, 0, nil}, // the clock was adjusted
		{[]etcd.Observed{member("a", true)}, -24 * time.Hour, 0, []string{"from 2026-11-24T07:00:00Z, which is in the future"}},
	} {
		s := Status{Members: c.members}
		if c.age != none {
			s.Snapshots.Last = &snapshot.Info{Time: now.Add(-c.age)}
		}
		s.judge(now)
		if s.Tolerates != c.tolerates || len(s.Problems) != len(c.problems) {
			t.Errorf("%+v: %d, %q", c.members, s.Tolerates, s.Problems)
			continue
		}
		for i, p := range c.problems {
			if !strings.Contains(s.Problems[i], p) {
				t.Errorf("problem %q, want %q", s.Problems[i], p)
			}
		}
	}
}

// A clock that was wrong when a snapshot was saved, or is wrong now, delays the next one by one interval at most.
func TestUntilNext(t *testing.T) {
	now := time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC)
	for since, want := range map[time.Duration]time.Duration{
		20 * time.Minute: 40 * time.Minute, 0: time.Hour, time.Hour: 0, 9 * time.Hour: 0, -time.Minute: time.Hour, -5000 * time.Hour: time.Hour,
	} {
		if got := untilNext(now.Add(-since), now, time.Hour); got != want {
			t.Errorf("%s after the last: wait %s, want %s", since, got, want)
		}
	}
}

func TestLost(t *testing.T) {
	now := time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC)
	s := snapshot.Info{Time: now.Add(-90 * time.Minute), Revision: 100}
	if got := Lost(s, 142, now); got != "every change since 2026-11-23T05:30:00Z, 1h30m0s ago (42 revisions)" {
		t.Error(got)
	}
	if got := Lost(s, 0, now.Add(-24*time.Hour)); got != "every change since 2026-11-23T05:30:00Z" {
		t.Error(got)
	}
	if got := Lost(s, snapshot.RevisionBump+142, now); strings.Contains(got, "revisions") { // restored since
		t.Errorf("%q", got)
	}
	if got := Lost(s, 0, now); strings.Contains(got, "revisions") {
		t.Error(got)
	}
}

func TestOtherControlPlanes(t *testing.T) {
	h := machine(t)
	write(t, h, "/var/lib/ocadm/vip/settings.yaml", "peers: 10.0.0.1,10.0.0.2,10.0.0.3\n")
	got := otherControlPlanes(h, own(t, h), []string{"https://10.0.0.4:2380", "https://10.0.0.1:2380"})
	if !slices.Equal(got, []string{"10.0.0.2", "10.0.0.3", "10.0.0.4"}) {
		t.Errorf("%v", got)
	}
}

// A file that a full or broken disk has emptied names no other control-plane node, which does not mean that there is none.
func TestDamagedSettingsOfTheVirtualAddress(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		sure bool
	}{
		"empty": {"", false}, "damaged": {"\x00\x00\x00", false}, "without peers": {"address: 10.0.0.100\n", false},
		"alone": {"peers: 10.0.0.1\n", true},
	} {
		h := machine(t)
		write(t, h, "/var/lib/ocadm/vip/settings.yaml", c.text)
		if _, sure := known(t.Context(), h, own(t, h)); sure != c.sure {
			t.Errorf("%s: sure %t", name, sure)
		}
	}
}

// TestUnsaved checks that a snapshot into a file, or onto a full disk, ends with a code and what to do.
func TestUnsaved(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, err := snapshot.Save(t.Context(), "", nil, file, 0, time.Now())
	if l := finding.Of(unsaved(file, err)); len(l) != 1 || l[0].Code != "OCA-4148" || l[0].Remedy == "" || !strings.Contains(l[0].Cause, "not a directory") {
		t.Errorf("%v, %+v", err, l)
	}
}
