// SPDX-License-Identifier: Apache-2.0

package dbpair_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/test/require"
)

// TestPair plays the events in the life of two nodes, with real servers and agents.
func TestPair(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.on(dbpair.First)
	p.await("the first primary serves", func() bool {
		return p.member(dbpair.First).Mode == dbpair.Primary && p.insert(t.Context(), dbpair.First, -1) != nil
	})
	p.must(dbpair.First, "CREATE DATABASE t")
	p.must(dbpair.First, "CREATE TABLE t.n (i INT PRIMARY KEY)")
	p.must(dbpair.First, "INSERT INTO t.n VALUES (1), (2)")
	p.must(dbpair.First, "CREATE USER 'glance'@'%' IDENTIFIED BY 'g'")
	p.must(dbpair.First, "GRANT ALL PRIVILEGES ON t.* TO 'glance'@'%'")
	p.on(dbpair.Second)
	p.inSync(dbpair.First)
	if n := p.numbers(dbpair.Second); len(n) != 2 {
		t.Errorf("the replica has %v", n)
	}
	t.Run("the primary is lost", func(t *testing.T) {
		w := p.write(1000)
		p.await("200 rows", func() bool { return w.count() > 200 })
		p.inSync(dbpair.First) // on a machine that stalled, the primary may have gone on alone
		p.off(p.nodes[dbpair.First])
		lostAt, before := time.Now(), w.count()
		p.await("writes work again", func() bool { return p.record().Primary == dbpair.Second && w.count() > before+20 })
		t.Logf("writes work again %.1f s after the loss", time.Since(lostAt).Seconds())
		acked := w.end()
		if lost := p.lost(acked, dbpair.Second); len(lost) > 0 {
			t.Errorf("%d of %d acknowledged rows are lost", len(lost), len(acked))
		}
		t.Logf("%d rows acknowledged, none lost", len(acked))
	})
	t.Run("the old primary comes back", func(t *testing.T) {
		p.on(dbpair.First)
		p.inSync(dbpair.Second)
		p.await("the same rows", func() bool { return len(p.numbers(dbpair.First)) == len(p.numbers(dbpair.Second)) })
	})
	t.Run("promotion by command", func(t *testing.T) {
		w := p.write(2_000_000)
		p.await("the promotion", func() bool { // it is cleared if no replica is in sync at this moment
			if r := p.record(); r.Primary != dbpair.First && r.Promote == "" {
				p.ask(func(r *dbpair.Record) { r.Promote = dbpair.First })
			}
			return p.record().Primary == dbpair.First
		})
		p.inSync(dbpair.First)
		acked := w.end()
		if lost := p.lost(acked, dbpair.First); len(lost) > 0 {
			t.Errorf("%d of %d acknowledged rows are lost", len(lost), len(acked))
		}
	})
	t.Run("the primary is isolated", func(t *testing.T) {
		p.isolated(t)
	})
}

// isolated isolates the running primary: writes there are no longer acknowledged, and it stops.
func (p *pair) isolated(t *testing.T) {
	first := p.nodes[dbpair.First]
	first.isolate()
	inside := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		inside <- p.execute(ctx, dbpair.First, "INSERT INTO t.n VALUES (-7)")
	}()
	p.await("the replica takes over", func() bool {
		return p.record().Primary == dbpair.Second && p.member(dbpair.Second).Mode == dbpair.Primary
	})
	if err := <-inside; err == nil {
		t.Error("the isolated primary acknowledged a row")
	}
	p.must(dbpair.Second, "INSERT INTO t.n VALUES (-8)")
	first.unreached.Store(false)
	first.link.cut(false)
	p.inSync(dbpair.Second)
	if n := p.numbers(dbpair.First); n[-7] || !n[-8] {
		t.Errorf("the former primary: -7 %t, -8 %t", n[-7], n[-8])
	}
	if m := p.member(dbpair.First); m.Kept != "" {
		t.Errorf("it was copied again: %+v", m)
	}
}

// TestPairUnanswered checks that a replica that took over without an answer acknowledges nothing more to the former primary. It would drop that on its start.
func TestPairUnanswered(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.on(dbpair.First)
	p.on(dbpair.Second)
	p.inSync(dbpair.First)
	p.must(dbpair.First, "CREATE DATABASE t")
	p.must(dbpair.First, "CREATE TABLE t.n (i INT PRIMARY KEY)")
	first, second := p.nodes[dbpair.First], p.nodes[dbpair.Second]
	unanswered := func(o client.Object, do func() error) error {
		if err := do(); err != nil || !takesOver(o) {
			return err
		}
		second.unreached.Store(true)
		return errors.New("no answer")
	}
	second.update.Store(&unanswered)
	w := p.write(1000)
	first.unreached.Store(true)
	p.await("the replica takes over", func() bool { return p.record().Primary == dbpair.Second })
	p.await("the former primary ends", func() bool {
		db, err := p.open(t.Context(), dbpair.First)
		if err == nil {
			_ = db.Close()
		}
		return err != nil
	})
	second.update.Store(nil)
	second.unreached.Store(false)
	p.await("the replica serves", func() bool { return p.member(dbpair.Second).Mode == dbpair.Primary })
	first.unreached.Store(false)
	acked := w.end()
	p.inSync(dbpair.Second)
	if lost := p.lost(acked, dbpair.Second); len(lost) > 0 || len(acked) == 0 {
		t.Errorf("%d of %d acknowledged rows are lost", len(lost), len(acked))
	}
}

// takesOver reports whether an object is the record that names the second server as the primary.
func takesOver(o client.Object) bool {
	l, ok := o.(*coordinationv1.Lease)
	return ok && l.Name == dbpair.RecordName && dbpair.ReadRecord(l).Primary == dbpair.Second
}

// TestPairLate checks that a pending write of a takeover no longer succeeds once the replica, having found the record unchanged, receives again.
func TestPairLate(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.on(dbpair.First)
	p.on(dbpair.Second)
	p.inSync(dbpair.First)
	var under client.Object
	next := make(chan error, 1)
	late := func(o client.Object, do func() error) error {
		if under == nil && takesOver(o) {
			under, _ = o.DeepCopyObject().(client.Object)
			return errors.New("no answer")
		}
		again := takesOver(o)
		err := do()
		if l, ok := o.(*coordinationv1.Lease); under != nil && ok && l.Name == dbpair.RecordName && err == nil {
			late := p.kube.Update(context.WithoutCancel(t.Context()), under)
			if again { // it may have reconnected to the former primary meanwhile
				late = errors.New("nothing was written before the next takeover")
			}
			select {
			case next <- late:
			default:
			}
		}
		return err
	}
	p.nodes[dbpair.Second].update.Store(&late)
	p.off(p.nodes[dbpair.First])
	select {
	case err := <-next:
		if !apierrors.IsConflict(err) {
			t.Errorf("the write that was under way: %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the replica does not take over")
	}
	p.await("the replica serves", func() bool { return p.member(dbpair.Second).Mode == dbpair.Primary })
}

// TestPairTrouble breaks replication, and takes over where data is lost.
func TestPairTrouble(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.on(dbpair.First)
	p.on(dbpair.Second)
	p.inSync(dbpair.First)
	p.must(dbpair.First, "CREATE DATABASE t")
	p.must(dbpair.First, "CREATE TABLE t.n (i INT PRIMARY KEY)")
	p.must(dbpair.First, "INSERT INTO t.n VALUES (1)")
	p.await("the row is replicated", func() bool { return len(p.numbers(dbpair.Second)) == 1 })

	// The replica has this row already: it cannot continue, and the primary goes on alone.
	p.must(dbpair.Second, "SET STATEMENT sql_log_bin = 0 FOR INSERT INTO t.n VALUES (5)")
	p.must(dbpair.First, "INSERT INTO t.n VALUES (5)")
	p.await("the primary goes on alone", func() bool { return p.record().InSync == "" && p.member(dbpair.Second).Error != "" })
	p.must(dbpair.First, "INSERT INTO t.n VALUES (6)")
	p.ask(func(r *dbpair.Record) { r.Copy = dbpair.Second })
	p.await("the replica is copied again", func() bool { return p.member(dbpair.Second).Kept != "" })
	p.inSync(dbpair.First)
	p.await("the same rows", func() bool { return len(p.numbers(dbpair.Second)) == 3 })
	if r := p.record(); r.Copy != "" {
		t.Errorf("it would be copied again: %+v", r)
	}

	// The replica is lost; the primary goes on alone and is lost, too; the replica returns without some acknowledged rows.
	p.off(p.nodes[dbpair.Second])
	p.await("the primary goes on alone", func() bool { return p.record().InSync == "" })
	p.must(dbpair.First, "INSERT INTO t.n VALUES (7)")
	p.off(p.nodes[dbpair.First])
	p.on(dbpair.Second)
	p.await("the replica serves its socket", func() bool { return p.member(dbpair.Second).Mode == dbpair.Replica })
	time.Sleep(quick().Forced) // long enough for a takeover that must not happen
	if r := p.record(); r.Primary != dbpair.First {
		t.Fatalf("a replica that is behind took over: %+v", r)
	}
	p.ask(func(r *dbpair.Record) { r.Promote, r.Force = dbpair.Second, true })
	p.await("the forced promotion", func() bool {
		return p.record().Primary == dbpair.Second && p.member(dbpair.Second).Mode == dbpair.Primary
	})
	p.must(dbpair.Second, "INSERT INTO t.n VALUES (8)")

	// The former primary has a row that the new one lacks: it keeps its old data and copies.
	p.on(dbpair.First)
	p.inSync(dbpair.Second)
	if n := p.numbers(dbpair.First); n[7] || !n[8] {
		t.Errorf("the former primary has %v", n)
	}
	if m := p.member(dbpair.First); m.Kept == "" {
		t.Errorf("what it had was not kept: %+v", m)
	}
}

// TestPairOwners checks that the record of owners is copied, and that a replica that an earlier version copied without it is copied again.
func TestPairOwners(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.on(dbpair.First)
	p.await("the first primary serves", func() bool { return p.member(dbpair.First).Mode == dbpair.Primary })
	p.must(dbpair.First, "CREATE DATABASE ocadm")
	p.must(dbpair.First, "CREATE TABLE ocadm.owners (name VARCHAR(64) PRIMARY KEY)")
	p.must(dbpair.First, "CREATE DATABASE t")
	p.must(dbpair.First, "CREATE TABLE t.n (i INT PRIMARY KEY)")
	p.on(dbpair.Second)
	p.inSync(dbpair.First)
	p.must(dbpair.First, "INSERT INTO ocadm.owners VALUES ('glance')")
	p.must(dbpair.First, "INSERT INTO t.n VALUES (1)")
	p.await("a row that follows the owner", func() bool { return len(p.numbers(dbpair.Second)) == 1 })

	p.must(dbpair.Second, "SET STATEMENT sql_log_bin = 0 FOR DROP DATABASE ocadm")
	p.off(p.nodes[dbpair.Second])
	p.on(dbpair.Second)
	p.await("the replica is copied again", func() bool { return p.member(dbpair.Second).Kept != "" })
	p.inSync(dbpair.First)
	p.must(dbpair.First, "INSERT INTO ocadm.owners VALUES ('keystone')")
	p.must(dbpair.First, "INSERT INTO t.n VALUES (2)")
	p.await("a row that follows the owner", func() bool { return len(p.numbers(dbpair.Second)) == 2 })
}

// TestPairReplicaLosesPower checks that writes wait once, and then no longer, although no packet says that the replica's machine is lost.
func TestPairReplicaLosesPower(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.on(dbpair.First)
	p.on(dbpair.Second)
	p.inSync(dbpair.First)
	p.must(dbpair.First, "CREATE DATABASE t")
	p.must(dbpair.First, "CREATE TABLE t.n (i INT PRIMARY KEY)")
	p.inSync(dbpair.First)
	way := p.nodes[dbpair.First].link // the replica's connection goes through it
	way.silent.Store(true)
	way.cut(true)
	p.nodes[dbpair.Second].isolate()
	lost := time.Now()
	var stalls []time.Duration
	for i := 1; time.Since(lost) < 4*quick().Silence; i++ {
		waits := p.record().InSync != "" // otherwise a slow write only shows a busy machine
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := p.execute(ctx, dbpair.First, fmt.Sprintf("INSERT INTO t.n VALUES (%d)", i))
		cancel()
		require.NoError(t, err)
		if took := time.Since(began); waits && took > 2*quick().Silence/3 {
			stalls = append(stalls, took)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if r := p.record(); len(stalls) != 1 || r.InSync != "" {
		t.Errorf("writes waited %v, want once; record %+v", stalls, r)
	}
	way.silent.Store(false)
	way.cut(false)
	second := p.nodes[dbpair.Second]
	second.unreached.Store(false)
	second.link.cut(false)
	p.inSync(dbpair.First)
}
