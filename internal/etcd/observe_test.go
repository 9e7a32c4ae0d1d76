// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/test/require"
)

func TestMustStay(t *testing.T) {
	const up, learner = 'u', 'l'
	for _, c := range []struct {
		members string // states of m0, m1, …
		remove  string
		why     string // "" if it can be removed
	}{
		{"u", "m0", "only voting member"},
		{"uu", "m1", ""}, // one that answers remains
		{"ud", "m1", "1 of 2"},
		{"ud", "m0", "1 of 2"},
		{"uuu", "m2", ""},
		{"uud", "m2", ""},
		{"uud", "m0", "that would remain"},
		{"udd", "m2", "1 of 3"},
		{"uuddd", "m4", "2 of 5"},
		{"uuudd", "m4", ""},
		{"uuudd", "m0", "that would remain"},
		{"ul", "m1", ""}, // a learner does not vote
		{"ul", "m0", "only voting member"},
		{"uudl", "m2", ""},
	} {
		var all []Observed
		for i, kind := range c.members {
			all = append(all, Observed{ID: "m" + string(rune('0'+i)), Answers: kind == up, Learner: kind == learner})
		}
		why := MustStay(all, c.remove)
		if (why == "") != (c.why == "") || !strings.Contains(why, c.why) {
			t.Errorf("%s without %s: %q, want %q", c.members, c.remove, why, c.why)
		}
	}
}

func TestObserve(t *testing.T) {
	c := startCluster(t, 3)
	cl := c.open()
	all, err := cl.Observe(t.Context())
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	leaders := 0
	for _, m := range all {
		if m.Leader {
			leaders++
		}
		if !m.Answers || m.Size == 0 || m.Quota == 0 || m.Revision == 0 || m.Version == "" || m.Learner || m.Problem != "" {
			t.Errorf("member %+v", m)
		}
	}
	if leaders != 1 {
		t.Errorf("%d leaders", leaders)
	}
	c.stop("m-2")
	led := func(m Observed) bool { return m.Leader }
	for deadline := time.Now().Add(time.Minute); ; { // m-2 may have been the leader: the others elect another one first
		if all, err = cl.Observe(t.Context()); err != nil || len(all) != 3 {
			t.Fatalf("%+v, %v", all, err)
		}
		if slices.ContainsFunc(all, led) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no leader without m-2: %+v", all)
		}
	}
	for _, m := range all {
		if m.Answers == (m.Name == "m-2") || (m.Problem == "") != m.Answers {
			t.Errorf("without m-2: %+v", m)
		}
		if m.Name == "m-2" && MustStay(all, m.ID) != "" || m.Name == "m-0" && MustStay(all, m.ID) == "" {
			t.Errorf("%s: %q", m.Name, MustStay(all, m.ID))
		}
	}
	c.stop("m-1")
	if all, err = cl.Observe(t.Context()); err != nil || len(all) != 3 {
		t.Errorf("without a majority the list is that of a member: %+v, %v", all, err)
	}
}

// The last survivor of three lists the members, and takes no longer than the limit for that. Reset depends on it.
func TestObserveLastSurvivor(t *testing.T) {
	c := startCluster(t, 3)
	c.stop("m-1")
	c.stop("m-2")
	began := time.Now()
	cl, err := Open(t.Context(), Config{Members: []Member{c.member("m-0")}})
	require.NoError(t, err)
	defer cl.Close()
	all, err := cl.Observe(t.Context())
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	for _, m := range all {
		if why := MustStay(all, m.ID); why == "" {
			t.Errorf("%s could be removed: %+v", m.Name, all)
		}
	}
	if took := time.Since(began); took > ObserveTimeout {
		t.Errorf("it took %s, want at most %s", took, ObserveTimeout)
	}
}

// A learner lists no members.
func TestObserveLearner(t *testing.T) {
	c := startCluster(t, 1)
	m := Member{Name: "m-1", ClientURL: "http://" + freeAddress(t), PeerURL: "http://" + freeAddress(t)}
	require.NoError(t, c.open().AddLearner(t.Context(), m.Name, m.PeerURL))
	c.config.Members = append(c.config.Members, m)
	c.start(m.Name, "existing")
	deadline := time.Now().Add(time.Minute)
	for {
		cl, err := Open(t.Context(), Config{Members: []Member{m}})
		if err == nil {
			_, err = cl.Observe(t.Context())
			cl.Close()
		}
		if IsLearner(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond) // it starts
	}
}

// etcd keeps the alarm of a member that was removed, and accepts no writes because of it.
func TestLiftNoSpaceOfRemovedMember(t *testing.T) {
	c := startCluster(t, 3)
	c.stop("m-2")
	c.args = []string{fmt.Sprintf("--quota-backend-bytes=%d", 16*mebi)} // with the same quota, the first to exceed it would stop all writes, and it need not be m-2
	c.start("m-2", "")
	c.ready("m-2")
	e := c.open()
	all, err := e.List(t.Context())
	require.NoError(t, err)
	gone := all[slices.IndexFunc(all, func(l Listed) bool { return l.Name == "m-2" })]
	if err := fill(t.Context(), c.kv("m-2"), 40); err == nil || !strings.Contains(err.Error(), "space exceeded") {
		t.Fatalf("filling it: %v", err)
	}
	if full, err := e.alarms(t.Context()); err != nil || len(full) != 1 || !full[gone.ID] {
		t.Fatalf("the alarms are %v, %v", full, err)
	}
	c.stop("m-2")
	require.NoError(t, e.Remove(t.Context(), gone))
	if lifted, err := e.LiftNoSpace(t.Context()); err != nil || !slices.Contains(lifted.Members, fmt.Sprintf("the removed member %x", gone.ID)) {
		t.Errorf("%+v does not name it, %v", lifted, err)
	}
	if err := fill(t.Context(), c.kv("m-0", "m-1"), 1); err != nil {
		t.Errorf("it accepts no writes: %v", err)
	}
}
