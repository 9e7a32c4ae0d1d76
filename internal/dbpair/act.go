// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"yunion.io/x/ocadm/internal/mysql"
)

// follow does what was decided: the record first.
func (a *Agent) follow(ctx context.Context, v View, d Decision) error {
	if d.Write != nil {
		limited, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		if err := a.writeRecord(limited, *d.Write); err != nil {
			return fmt.Errorf("writing the record: %w", err)
		}
		if d.Write.Primary == a.Me {
			a.renewed = time.Now()
		}
	}
	return a.act(ctx, v, d)
}

func (a *Agent) act(ctx context.Context, v View, d Decision) error {
	switch d.Act {
	case Confirm:
		return a.confirm()
	case StartPrimary:
		return a.startPrimary(ctx)
	case StartReplica:
		return a.start(Replica, false)
	case Stop, StepDown:
		a.stop(a.mode == Primary)
		return nil
	case Follow:
		return a.followPrimary(ctx, v)
	case Copy:
		a.stop(a.mode == Primary)
		return a.beginCopy(ctx)
	case TakeOver:
		return a.takeOver(ctx, v)
	case WaitForPeer:
		return a.semiSync(ctx, true)
	case GoOnAlone:
		return a.semiSync(ctx, false)
	case Wait:
		return a.renewCertificate(ctx)
	}
	return nil
}

// startPrimary starts the server as the primary. If the record says that a replica is in sync, not even the first commit goes without it.
func (a *Agent) startPrimary(ctx context.Context) error {
	if err := a.start(Primary, a.record.InSync != ""); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.Limits.Takeover)
	defer cancel()
	db, err := a.awaitServer(ctx)
	if err != nil {
		return nil // it recovers; the next look asks it again
	}
	return db.Unfollow(ctx)
}

// awaitServer waits until the server of this agent answers.
func (a *Agent) awaitServer(ctx context.Context) (*mysql.Admin, error) {
	for {
		db, err := a.server(ctx)
		if err == nil {
			return db, nil
		}
		var exited <-chan struct{}
		if a.process != nil {
			exited = a.process.exited
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-exited:
			return nil, errors.New("the server ended while it started")
		case <-time.After(50 * time.Millisecond): // a server has no event for this
		}
	}
}

// followPrimary points the replica to the primary, if that has everything the replica has.
func (a *Agent) followPrimary(ctx context.Context, v View) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := a.preclude(ctx); err != nil {
		return err
	}
	source, err := a.askSource(ctx)
	if err != nil {
		return err
	}
	if !mysql.Contains(source.State, v.Server.Binlog) && mysql.Sequence(v.Server.Binlog) > 0 {
		a.diverged = true
		return nil
	}
	db, err := a.server(ctx)
	if err != nil {
		return err
	}
	at := v.Server.Applied
	if mysql.Sequence(v.Server.Binlog) > mysql.Sequence(at) {
		at = v.Server.Binlog
	}
	a.caughtUp, a.target = false, "" // what it had received and not applied is dropped, also if this fails half-way
	if err := db.Follow(ctx, a.source(), at); err != nil {
		return err
	}
	a.following = true
	return nil
}

func (a *Agent) source() mysql.Source {
	host, port := a.Address(Peer(a.Me))
	return mysql.Source{Host: host, Port: port, User: a.ReplicationUser, Password: a.ReplicationPassword, CAFile: a.Files.CA}
}

// semiSync makes commits wait for the replica, or no longer.
func (a *Agent) semiSync(ctx context.Context, on bool) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	db, err := a.server(ctx)
	if err != nil {
		return err
	}
	if err := db.SetSemiSync(ctx, on); err != nil {
		return err
	}
	a.semiSyncFrom, a.acknowledged = "", time.Now()
	if on {
		r, err := db.Replication(ctx)
		if err != nil {
			return err
		}
		a.semiSyncFrom = cmp.Or(r.Binlog, noEvent)
	}
	return nil
}

// noEvent stands for the last event of a log that has none.
const noEvent = "0-0-0"

// takeOver makes the replica the primary. It first ends the connection to its source, so that nothing is acknowledged there any more, and applies what it
// has received. Only then the record changes, and if it did meanwhile, nothing happens: killed before, the server is a replica as it was; killed after,
// it starts as the primary. A write without an answer may be done: nothing is received until the record was read, because a start as the primary drops it.
func (a *Agent) takeOver(ctx context.Context, v View) error {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	db, err := a.server(ctx)
	if err != nil {
		return err
	}
	a.following = false // the next look lets it follow again, unless resume does
	if err := db.StopReceiving(ctx); err != nil {
		return err
	}
	if err := a.drain(ctx, db); err != nil {
		if !v.Record.Force {
			return errors.Join(err, a.resume(ctx, db))
		}
		a.Log.Warn("what was received is not applied", "error", err)
	}
	r := v.taken()
	a.unanswered = a.lease.ResourceVersion
	if err := a.writeRecord(ctx, r); err != nil {
		err = fmt.Errorf("writing the record: %w", err)
		if !a.readRecord(ctx) {
			return err
		}
		if a.record.Primary != a.Me {
			if late := a.preclude(ctx); late != nil {
				return errors.Join(err, late)
			}
			return errors.Join(err, a.resume(ctx, db))
		}
	}
	if a.unkept != nil {
		return a.unkept
	}
	a.renewed = time.Now()
	a.Log.Info("took over", "term", r.Term, "last", v.Server.Received)
	a.label(ctx)
	a.stop(false)
	return a.startPrimary(ctx)
}

// preclude makes sure that a takeover without an answer is not recorded later: it is written only over the version of the record that it was made from.
func (a *Agent) preclude(ctx context.Context) error {
	if a.unanswered != a.lease.ResourceVersion {
		return nil
	}
	changed := a.changed
	if err := a.writeRecord(ctx, a.record); err != nil {
		return fmt.Errorf("writing the record: %w", err)
	}
	a.changed = changed // the other agent changed nothing
	return nil
}

// resume continues a replica that has not taken over. The time for that may be up.
func (a *Agent) resume(ctx context.Context, db *mysql.Admin) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askTimeout)
	defer cancel()
	err := db.StartReceiving(ctx)
	a.following = err == nil
	return err
}

// drainTime bounds how long a replica applies what it has received before it gives up and tries again.
const drainTime = 10 * time.Minute

// drain waits until everything that was received is applied.
func (a *Agent) drain(ctx context.Context, db *mysql.Admin) error {
	for {
		r, err := db.Replication(ctx)
		switch {
		case err != nil:
			return err
		case mysql.Sequence(r.Applied) >= mysql.Sequence(r.Received):
			return nil
		case !r.Applying:
			return fmt.Errorf("applying what was received: %s", r.Error)
		}
		a.alive.Store(time.Now().UnixNano())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond): // a server has no event for this
		}
	}
}

// renewCertificate replaces the certificate in time, without a restart.
func (a *Agent) renewCertificate(ctx context.Context) error {
	if a.mode != Primary && a.mode != Replica || time.Since(a.checkedCertificate) < time.Hour {
		return nil
	}
	a.checkedCertificate = time.Now()
	if err := a.certificate(); err != nil {
		return err
	}
	db, err := a.server(ctx)
	if err != nil {
		return nil //nolint:nilerr // it does not answer: the decision is about that
	}
	return db.ReloadCertificates(ctx)
}
