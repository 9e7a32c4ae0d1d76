// SPDX-License-Identifier: Apache-2.0

package dbpair_test

import (
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/dbpair"
)

// old returns what the first server finds after etcd went back to when it was the primary; the second one has taken over since.
func old() dbpair.View {
	v := healthy()
	v.Mode, v.Answers, v.Peer = dbpair.Stopped, false, dbpair.Member{}
	v.Record = dbpair.Record{Primary: first, InSync: second, Term: 3}
	v.Known = dbpair.Known{Primary: first, InSync: second, Term: 3}
	return v
}

// unsettled is like old, once the record is marked and both servers have answered.
func unsettled() dbpair.View {
	v := old()
	v.Record.Unsettled = dbpair.Restored
	v.Heard, v.Peer = true, dbpair.Member{Mode: dbpair.Stopped, Complete: true, Known: dbpair.Known{Primary: second, Term: 4}}
	return v
}

// TestOlderRecord checks what a server does if the record is older than the one it remembers.
func TestOlderRecord(t *testing.T) {
	for name, c := range map[string]struct {
		known  dbpair.Known
		change func(*dbpair.View)
		want   dbpair.Act
		marks  bool
	}{
		"it remembers another primary":    {dbpair.Known{Primary: second, Term: 4}, func(*dbpair.View) {}, dbpair.Wait, true},
		"it remembers that it was alone":  {dbpair.Known{Primary: first, Term: 4}, func(*dbpair.View) {}, dbpair.Wait, true},
		"it runs as the primary":          {dbpair.Known{Primary: first, Term: 4}, func(v *dbpair.View) { v.Mode = dbpair.Primary }, dbpair.Stop, true},
		"the same, without an API server": {dbpair.Known{Primary: first, Term: 4}, func(v *dbpair.View) { v.Mode, v.Reached = dbpair.Primary, false }, dbpair.Stop, false},
		"it runs as the primary, and its replica acknowledges": {dbpair.Known{Primary: first, InSync: second, Term: 5}, func(v *dbpair.View) {
			v.Mode, v.Answers = dbpair.Primary, true
		}, dbpair.Wait, true},
		"the same, without an API server, for an hour": {dbpair.Known{Primary: first, InSync: second, Term: 5}, func(v *dbpair.View) {
			v.Mode, v.Answers, v.Reached, v.Renewed = dbpair.Primary, true, false, time.Hour
		}, dbpair.Wait, false},
		"its replica does not acknowledge": {dbpair.Known{Primary: first, InSync: second, Term: 5}, func(v *dbpair.View) {
			v.Mode, v.Answers, v.Unacknowledged = dbpair.Primary, true, 9*time.Second
		}, dbpair.Stop, true},
		"it runs as the replica":           {dbpair.Known{Primary: second, InSync: first, Term: 4}, func(v *dbpair.View) { v.Mode, v.Answers = dbpair.Replica, true }, dbpair.Wait, true},
		"another primary of the same term": {dbpair.Known{Primary: second, Term: 3}, func(*dbpair.View) {}, dbpair.Wait, true},
		"the record is of before the pair": {dbpair.Known{Primary: second, Term: 4}, func(v *dbpair.View) {
			v.Record = dbpair.Record{Primary: first}
		}, dbpair.Wait, true},
		"the record wants a forced promotion of long ago": {dbpair.Known{Primary: second, Term: 4}, func(v *dbpair.View) {
			v.Record.Promote, v.Record.Force, v.Unchanged = first, true, time.Hour
		}, dbpair.Wait, true},
		"the present record":                             {dbpair.Known{Primary: first, InSync: second, Term: 3}, func(*dbpair.View) {}, dbpair.StartPrimary, false},
		"an earlier ocadm counted no changes of in sync": {dbpair.Known{Primary: first, Term: 3}, func(*dbpair.View) {}, dbpair.StartPrimary, false},
		"it remembers less":                              {dbpair.Known{Primary: second, Term: 2}, func(*dbpair.View) {}, dbpair.StartPrimary, false},
		"it remembers nothing":                           {dbpair.Known{}, func(*dbpair.View) {}, dbpair.StartPrimary, false},
		"the record cannot be kept": {dbpair.Known{}, func(v *dbpair.View) {
			v.Reached, v.Unkept = false, "the disk is full"
		}, dbpair.Wait, false},
	} {
		v := old()
		v.Known = c.known
		c.change(&v)
		d := dbpair.Decide(v)
		marks := d.Write != nil && d.Write.Unsettled != ""
		if d.Act != c.want || marks != c.marks {
			t.Errorf("%s: %+v, record %+v; want %s, marked %t", name, d, d.Write, c.want, c.marks)
		}
		if marks && (d.Write.Primary != v.Record.Primary || d.Write.Term != v.Record.Term || d.Write.Promote != "" || d.Write.Force) {
			t.Errorf("%s: the mark changes the record: %+v", name, d.Write)
		}
	}
}

// TestSettle checks how the servers find out which was the primary last.
func TestSettle(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*dbpair.View)
		act    dbpair.Act
		want   dbpair.Record // the written record
		says   string
	}{
		"the other one took over since": {func(*dbpair.View) {}, dbpair.Wait, dbpair.Record{}, second + " was the primary last"},
		"this one took over since": {func(v *dbpair.View) {
			v.Me, v.Known, v.Peer.Known = second, dbpair.Known{Primary: second, Term: 4}, dbpair.Known{Primary: first, InSync: second, Term: 3}
		}, dbpair.Wait, dbpair.Record{Primary: second, Term: 5}, "in term 4"},
		"this one went on alone since": {func(v *dbpair.View) {
			v.Known, v.Peer.Known = dbpair.Known{Primary: first, Term: 4}, dbpair.Known{Primary: first, InSync: second, Term: 3}
		}, dbpair.Wait, dbpair.Record{Primary: first, Term: 5}, "in term 4"},
		"both remember changes, the other one the last": {func(v *dbpair.View) {
			v.Known, v.Peer.Known = dbpair.Known{Primary: first, Term: 4}, dbpair.Known{Primary: second, Term: 5}
		}, dbpair.Wait, dbpair.Record{}, second + " was the primary last"},
		"both remember changes, this one the last": {func(v *dbpair.View) {
			v.Known, v.Peer.Known = dbpair.Known{Primary: first, InSync: second, Term: 6}, dbpair.Known{Primary: second, Term: 5}
		}, dbpair.Wait, dbpair.Record{Primary: first, InSync: second, Term: 7}, "in term 6"},
		"the other one remembers that this one is": {func(v *dbpair.View) {
			v.Peer.Known = dbpair.Known{Primary: first, Term: 8}
		}, dbpair.Wait, dbpair.Record{Primary: first, Term: 9}, "in term 8"},
		"the record is the latest": {func(v *dbpair.View) { v.Peer.Known = v.Known }, dbpair.Wait, dbpair.Record{Primary: first, InSync: second, Term: 4}, "in term 3"},
		"the volume of the other one is new": {func(v *dbpair.View) { v.Peer.Known, v.Peer.Complete = dbpair.Known{}, false }, dbpair.Wait,
			dbpair.Record{Primary: first, InSync: second, Term: 4}, "in term 3"},
		"the volume of this one is new, and it was the primary": {func(v *dbpair.View) {
			v.Known, v.Complete, v.Peer.Known = dbpair.Known{}, false, dbpair.Known{Primary: first, Term: 3}
		}, dbpair.Wait, dbpair.Record{Primary: first, InSync: second, Term: 4}, "in term 3"},
		"the other one is silent":          {func(v *dbpair.View) { v.Heard, v.Peer = false, dbpair.Member{} }, dbpair.Wait, dbpair.Record{}, "promote --force"},
		"its report is of an earlier time": {func(v *dbpair.View) { v.Heard = false }, dbpair.Wait, dbpair.Record{}, "it waits for the state that " + second},
		"both were the primary": {func(v *dbpair.View) {
			v.Known, v.Peer.Known = dbpair.Known{Primary: first, Term: 4}, dbpair.Known{Primary: second, Term: 4}
		}, dbpair.Wait, dbpair.Record{}, "both servers were the primary in term 4"},
		"both were, and one again later": {func(v *dbpair.View) {
			v.Record.Term, v.Known, v.Peer.Known = 4, dbpair.Known{Primary: first, Term: 5}, dbpair.Known{Primary: second, Term: 4}
		}, dbpair.Wait, dbpair.Record{Primary: first, Term: 6}, "in term 5"},
		"no API server":          {func(v *dbpair.View) { v.Reached, v.Peer.Known = false, v.Known }, dbpair.Wait, dbpair.Record{}, "cannot be reached"},
		"it runs as the primary": {func(v *dbpair.View) { v.Mode, v.Peer.Known = dbpair.Primary, v.Known }, dbpair.Stop, dbpair.Record{}, ""},
		"its replica acknowledges": {func(v *dbpair.View) { v.Mode, v.Answers, v.Peer.Known = dbpair.Primary, true, v.Known }, dbpair.Wait,
			dbpair.Record{Primary: first, InSync: second, Term: 4}, "in term 3"},
		"a user has just forced this one": {func(v *dbpair.View) { v.Heard, v.Record.Promote, v.Record.Force = false, first, true }, dbpair.Wait, dbpair.Record{}, "waits"},
		"a user has forced this one": {func(v *dbpair.View) {
			v.Heard, v.Peer, v.Record.Promote, v.Record.Force, v.Unchanged = false, dbpair.Member{}, first, true, 61*time.Second
		}, dbpair.StartPrimary, dbpair.Record{Primary: first, Term: 3 + 1<<20}, "a user accepts"},
		"a user has forced this one of two primaries": {func(v *dbpair.View) {
			v.Known, v.Peer.Known = dbpair.Known{Primary: first, Term: 4}, dbpair.Known{Primary: second, Term: 4}
			v.Record.Promote, v.Record.Force, v.Unchanged = first, true, 61*time.Second
		}, dbpair.StartPrimary, dbpair.Record{Primary: first, Term: 4 + 1<<20}, "a user accepts"},
		"a user has forced a replica": {func(v *dbpair.View) {
			v.Mode, v.Answers, v.Record.Promote, v.Record.Force, v.Unchanged = dbpair.Replica, true, first, true, 61*time.Second
		}, dbpair.TakeOver, dbpair.Record{}, "a user accepts"},
		"a user has forced the other one": {func(v *dbpair.View) {
			v.Heard, v.Record.Promote, v.Record.Force, v.Unchanged = false, second, true, 61*time.Second
		}, dbpair.Wait, dbpair.Record{}, "waits"},
		"a user has forced one without data": {func(v *dbpair.View) {
			v.Heard, v.Complete, v.Record.Promote, v.Record.Force, v.Unchanged = false, false, first, true, 61*time.Second
		}, dbpair.Wait, dbpair.Record{}, "waits"},
	} {
		v := unsettled()
		c.change(&v)
		d := dbpair.Decide(v)
		var wrote dbpair.Record
		if d.Write != nil {
			wrote = *d.Write
		}
		if d.Act != c.act || wrote != c.want || !strings.Contains(d.Why, c.says) {
			t.Errorf("%s: %+v, record %+v; want %s, %+v", name, d, wrote, c.act, c.want)
		}
	}
}

// TestOneSettles checks that, whatever the two remember, at most one of them writes the record, and never the one with the older memory.
func TestOneSettles(t *testing.T) {
	var all []dbpair.Known
	for term := range 4 {
		for _, primary := range dbpair.Servers() {
			for _, inSync := range []string{"", dbpair.Peer(primary)} {
				all = append(all, dbpair.Known{Primary: primary, InSync: inSync, Term: term})
			}
		}
	}
	for _, r := range all {
		for _, a := range all {
			for _, b := range all {
				of := func(me string, mine, theirs dbpair.Known) *dbpair.Record {
					v := unsettled()
					v.Me, v.Known, v.Peer.Known = me, mine, theirs
					v.Record = dbpair.Record{Primary: r.Primary, InSync: r.InSync, Term: r.Term, Unsettled: dbpair.Restored}
					return dbpair.Decide(v).Write
				}
				one, other := of(first, a, b), of(second, b, a)
				if one != nil && other != nil {
					t.Fatalf("record %+v, memories %+v and %+v: both write", r, a, b)
				}
				for _, w := range []*dbpair.Record{one, other} {
					if w == nil {
						continue
					}
					for _, k := range []dbpair.Known{r, a, b} {
						if k.Term >= w.Term || k.Term == w.Term-1 && k.Term > 0 && k.Primary != w.Primary {
							t.Fatalf("record %+v, memories %+v and %+v: %+v", r, a, b, w)
						}
					}
				}
			}
		}
	}
}

// TestTermCountsChanges checks that a record that names another primary or replica in sync is of a later term, and a renewed one of the same term.
func TestTermCountsChanges(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*dbpair.View)
		term   int
	}{
		"renewed":                          {func(*dbpair.View) {}, 7},
		"it goes on alone":                 {func(v *dbpair.View) { v.Unacknowledged = 9 * time.Second }, 8},
		"in sync again":                    {func(v *dbpair.View) { v.Record.InSync, v.SemiSyncFrom = "", "0-1-8999" }, 8},
		"a promotion that is not possible": {func(v *dbpair.View) { v.Record.InSync, v.Record.Promote = "", second }, 7},
	} {
		v := healthy()
		v.Record.Term = 7
		c.change(&v)
		if d := dbpair.Decide(v); d.Write == nil || d.Write.Term != c.term {
			t.Errorf("%s: %+v, record %+v", name, d, d.Write)
		}
	}
}
