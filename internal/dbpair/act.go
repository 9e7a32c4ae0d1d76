// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"context"
	"errors"
	"fmt"
	"time"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/wait"
)

// follow carries out a decision about the server. It writes the record first, except for the first primary: if the answer to that write were lost, the
// record would have a term, but the volume no mark that its data is complete, and nothing would start the only copy.
func (a *Agent) follow(ctx context.Context, server mysql.Replication, d Decision) error {
	if d.Act == Confirm {
		if err := a.local.files.confirm(); err != nil {
			return err
		}
	}
	if d.Write != nil {
		limited, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		if err := a.keeper.write(limited, *d.Write); err != nil {
			return fmt.Errorf("writing the record: %w", err)
		}
		if d.Write.Primary == a.me {
			a.keeper.renewed = time.Now()
		}
	}
	l := a.local
	switch d.Act {
	case StartPrimary:
		return a.startPrimary(ctx)
	case StartReplica:
		return l.start(Replica, false)
	case Stop, StepDown:
		l.stop(l.mode == Primary)
		return nil
	case Follow:
		return a.followPrimary(ctx, server)
	case Copy:
		l.stop(l.mode == Primary)
		if err := a.copier.begin(ctx); err != nil {
			return err
		}
		return a.copied(ctx)
	case TakeOver:
		return a.takeOver(ctx, server, *d.Taken)
	case WaitForPeer:
		return l.setSemiSync(ctx, true)
	case GoOnAlone:
		a.other.outdated = true
		return l.setSemiSync(ctx, false)
	case Wait:
		return l.renewCertificate(ctx)
	}
	return nil
}

// copied removes the request to copy this server from the record, once the copy has begun. If that fails, the next looks repeat it while it copies.
func (a *Agent) copied(ctx context.Context) error {
	r := a.keeper.record
	if r.Copy != a.me {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r.Copy = ""
	if err := a.keeper.write(ctx, r); err != nil {
		return fmt.Errorf("writing the record: %w", err)
	}
	return nil
}

// startPrimary starts the server as the primary. If the record says that a replica is in sync, even the first commit waits for it.
func (a *Agent) startPrimary(ctx context.Context) error {
	if err := a.local.start(Primary, a.keeper.record.InSync != ""); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, a.limits.Takeover)
	defer cancel()
	db, err := a.local.await(ctx)
	if err != nil {
		return nil // the server recovers; the next look asks it again
	}
	return db.Unfollow(ctx)
}

// followPrimary makes the replica follow the primary, if the primary has everything that the replica has.
func (a *Agent) followPrimary(ctx context.Context, server mysql.Replication) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	if err := a.keeper.preclude(ctx); err != nil {
		return err
	}
	source, err := a.remote.ask(ctx)
	if err != nil {
		return err
	}
	p := &a.local.progress
	if !mysql.Contains(source.State, server.Binlog) && mysql.Sequence(server.Binlog) > 0 {
		p.diverged = true
		return nil
	}
	db, err := a.local.open(ctx)
	if err != nil {
		return err
	}
	at := server.Applied
	if mysql.Sequence(server.Binlog) > mysql.Sequence(at) {
		at = server.Binlog
	}
	p.caughtUp, p.target = false, "" // events that were received and not applied are dropped, even if this fails half-way
	if err := db.Follow(ctx, a.remote.source, at); err != nil {
		return err
	}
	p.following = true
	return nil
}

// takeOver makes the replica the primary. It first closes the connection to the source, so that no more commits there are acknowledged, and applies what it
// has received. Then it writes the record, unless that has changed meanwhile. If killed before that, the server is still a replica; if killed after, it starts
// as the primary. A write without an answer may have succeeded, so the replica receives nothing until it has read the record: a start as the primary drops it.
func (a *Agent) takeOver(ctx context.Context, server mysql.Replication, taken Record) error {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	l, k := a.local, &a.keeper
	db, err := l.open(ctx)
	if err != nil {
		return err
	}
	l.progress.following = false // the next look makes it follow again, unless resume does
	if err := db.StopReceiving(ctx); err != nil {
		return err
	}
	if err := a.drain(ctx, db); err != nil {
		if !k.record.Force {
			return errors.Join(err, l.resume(ctx, db))
		}
		a.log.Warn("the received changes are not applied", "error", err)
	}
	k.unanswered = k.lease.ResourceVersion
	if err := k.write(ctx, taken); err != nil {
		err = fmt.Errorf("writing the record: %w", err)
		if !k.read(ctx) {
			return err
		}
		if k.record.Primary != a.me {
			if late := k.preclude(ctx); late != nil {
				return errors.Join(err, late)
			}
			return errors.Join(err, l.resume(ctx, db))
		}
	}
	if k.unkept != nil {
		return k.unkept
	}
	k.renewed = time.Now()
	a.log.Info("took over", "term", taken.Term, "last", server.Received)
	a.reporter.label(ctx, k.record)
	l.stop(false)
	return a.startPrimary(ctx)
}

// drainTime limits how long a replica applies what it has received before it gives up and tries again.
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
			return fmt.Errorf("applying the received changes: %s", r.Error)
		}
		a.alive.Store(time.Now().UnixNano())
		if wait.Sleep(ctx, 50*time.Millisecond) != nil { // a server has no event to wait for
			return ctx.Err()
		}
	}
}
