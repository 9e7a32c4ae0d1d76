// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/pki"
)

const (
	askTimeout = 3 * time.Second
	// reportEvery is the interval at which an agent reports without changes, and silentAfter the age at which a report no longer counts.
	reportEvery = 10 * time.Second
	// publishEvery is the interval at which the primary publishes the redundancy without changes.
	publishEvery = time.Minute
	silentAfter  = 40 * time.Second
)

// Config is the configuration of an agent.
type Config struct {
	Me, Node, Namespace string
	Kube                client.Client
	Limits              Limits
	Files               Files
	Programs            Programs
	// User is the administrator of both servers.
	User, Password string
	// Source is the other server as a primary, with the replication account. Its CA is the agent's.
	Source mysql.Source
	// Authority is the CA that signs the certificates of the servers. Names are the names in them.
	Authority pki.Pair
	Names     []string
	Log       *slog.Logger
}

// Agent runs the server of one pod.
type Agent struct {
	me     string
	limits Limits
	log    *slog.Logger
	alive  atomic.Int64 // time of the last look, in nanoseconds

	local    *local
	remote   remote
	copier   copier
	keeper   keeper
	other    other
	reporter reporter

	reached bool // whether the last look could read the record
	problem string
}

// New returns the agent of a server that is stopped.
func New(c Config) *Agent {
	certs := &certificates{name: c.Me, names: c.Names, files: c.Files, authority: c.Authority}
	a := &Agent{me: c.Me, limits: c.Limits, log: c.Log, local: newLocal(c, certs), remote: remote{source: c.Source, user: c.User, password: c.Password, certs: certs}}
	a.remote.source.CAFile = c.Files.CA
	a.copier = copier{local: a.local, remote: a.remote, log: c.Log}
	server, now := api{kube: c.Kube, namespace: c.Namespace, log: c.Log}, time.Now()
	a.keeper = keeper{api: server, file: c.Files.memory(), changed: now, renewed: now}
	a.other = other{api: server, name: Peer(c.Me)}
	a.reporter = reporter{api: server, me: c.Me, node: c.Node}
	return a
}

// Run looks and acts until ctx ends. Then a primary hands over to its replica, if that is in sync, and the server is stopped.
func (a *Agent) Run(ctx context.Context) error {
	tick := time.NewTicker(a.limits.Every)
	defer tick.Stop()
	var last string
	for {
		a.alive.Store(time.Now().UnixNano())
		v := a.look(ctx)
		d := Decide(v)
		if said := fmt.Sprint(d.Act, d.Why); said != last {
			a.log.Info("decided", "act", d.Act, "why", d.Why, "primary", v.Record.Primary, "inSync", v.Record.InSync, "mode", v.Mode)
			last = said
		}
		problem := ""
		if err := a.follow(ctx, v.Server, d); err != nil {
			problem = err.Error()
			if problem != a.problem {
				a.log.Warn("the action failed", "act", d.Act, "error", err)
			}
		}
		a.problem = problem
		a.report(ctx, v.Server, d)
		select {
		case <-ctx.Done():
			a.leave(context.WithoutCancel(ctx))
			return nil
		case <-tick.C:
		}
	}
}

// Alive reports whether the agent has looked recently.
func (a *Agent) Alive() bool { return time.Since(time.Unix(0, a.alive.Load())) < time.Minute }

// look gathers everything that a decision needs.
func (a *Agent) look(ctx context.Context) View {
	l, k := a.local, &a.keeper
	if l.process != nil && l.process.ended() {
		a.log.Warn("the server exited", "state", l.process.cmd.ProcessState.String(), "mode", l.mode)
		l.stop(true)
	}
	a.copier.collect(ctx)
	a.reached = k.read(ctx)
	v := View{Me: a.me, Limits: a.limits, Reached: a.reached && k.unkept == nil}
	v.Record, v.Renewed, v.Unchanged = k.record, time.Since(k.renewed), time.Since(k.changed)
	if k.unkept != nil {
		v.Unkept = k.unkept.Error()
	}
	if a.reached {
		a.other.hear(ctx)
	}
	if time.Since(a.other.heard) < silentAfter {
		v.Peer, v.Outdated = a.other.member, a.other.outdated
	}
	if k.lease != nil {
		v.Known = k.memory.of(k.lease.UID)
		v.Heard = v.Peer.Seen != "" && v.Peer.Seen == k.lease.ResourceVersion
	}
	v.Mode, v.InMode, v.Complete = l.mode, time.Since(l.since), exists(l.files.complete())
	if l.mode == Primary || l.mode == Replica {
		if v.Server, v.Answers = l.ask(ctx, a.remote); v.Answers {
			v.Unacknowledged = time.Since(l.health.acknowledged)
		} else {
			v.Silent = time.Since(l.health.answered)
		}
	}
	v.Answered, v.CopyFailed, v.SemiSyncFrom = l.health.everAnswered, a.copier.sinceFailed(), l.health.semiSyncFrom
	v.Following, v.CaughtUp, v.Diverged, v.Lacking = l.progress.following, l.progress.caughtUp, l.progress.diverged, l.progress.lacking
	return v
}

func (a *Agent) report(ctx context.Context, server mysql.Replication, d Decision) {
	l := a.local
	m := Member{
		Node: a.reporter.node, Mode: l.mode, Doing: d.Why, Last: server.Binlog, Complete: exists(l.files.complete()), Connected: server.Connected,
		Applying: server.Applying, Error: server.Error,
	}
	if l.mode == Replica {
		m.Last, m.Applied = server.Received, server.Applied
	}
	m.Error = cmp.Or(m.Error, a.problem)
	a.keeper.confess(&m)
	if l.progress.lacking != "" { // so that the primary goes on alone before the copy is replaced
		m.Applying, m.Error = false, l.progress.lacking
	}
	if a.copier.problem != "" && !m.Complete {
		m.Error = a.copier.problem
	}
	if exists(l.files.kept()) {
		m.Kept = l.files.kept()
	}
	if a.reached {
		a.reporter.publish(ctx, a.keeper.record, l.mode, a.other.member)
		a.reporter.report(ctx, m, a.keeper.record)
	}
}

// leave stops the server when the agent ends, and first hands over if it can.
func (a *Agent) leave(ctx context.Context) {
	r := a.keeper.record
	handsOver := a.local.mode == Primary && r.Primary == a.me && r.InSync != "" && r.Unsettled == ""
	if handsOver {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		r.Promote = r.InSync
		if err := a.keeper.write(ctx, r); err != nil {
			a.log.Warn("the primary stops without handing over", "error", err)
		}
	}
	a.local.stop(handsOver)
}
