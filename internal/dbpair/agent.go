// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/pki"
)

const (
	askTimeout = 3 * time.Second
	// reportEvery is how often an agent reports though nothing has changed, and silentAfter when a report no longer counts.
	reportEvery = 10 * time.Second
	// publishEvery is how often the primary writes whether the database is redundant though nothing has changed.
	publishEvery = time.Minute
	silentAfter  = 40 * time.Second
)

// Agent runs the server of one pod.
type Agent struct {
	Me, Node, Namespace string
	Kube                client.Client
	Limits              Limits
	Files               Files
	// Server and Install are the programs with their arguments: mariadbd, and what makes a data directory.
	Server, Install []string
	// User administers both servers. Replication is the account that the replica logs in with.
	User, Password, ReplicationUser, ReplicationPassword string
	// Authority signs the certificates of the servers, which have the Names.
	Authority pki.Pair
	Names     []string
	// Address is where a server is reached, as a primary.
	Address func(server string) (host string, port int)
	// Output takes what the server prints.
	Output io.Writer
	Log    *slog.Logger

	alive atomic.Int64 // when it last looked, in nanoseconds

	process *process
	local   *mysql.Admin
	mode    Mode
	inMode  time.Time
	copying chan error
	// copiedAt is the last event of a copy, and copyError why the last one failed.
	copiedAt, copyError string
	copyFailed          time.Time // zero if it did not

	record      Record
	lease       *coordinationv1.Lease
	memory      memory
	recalled    bool      // whether the memory was read
	unkept      error     // why the record that was read is not kept
	reached     bool      // whether it was read just now
	unanswered  string    // the version of the record from which a takeover was last written
	changed     time.Time // when the record was seen to change
	renewed     time.Time // when it was written as the primary
	peer        Member
	peerVersion string
	peerHeard   time.Time
	reported    Member
	reportedAt  time.Time
	labelled    string
	published   Redundancy
	publishedAt time.Time

	answered           time.Time // when the server last answered, or was started
	everAnswered       bool      // whether it did since
	acknowledged       time.Time // when a replica last acknowledged, or nothing waited
	acks               int64
	semiSyncFrom       string
	caughtUp           bool
	following          bool
	diverged           bool
	ownersAt           string // what the primary had when its owners were looked for
	ownersSeen         bool   // whether they were, and nothing is missing
	lacking            string
	target             string // what the primary had when the replica connected
	problem            string
	checkedCertificate time.Time
}

// Run looks and acts until ctx ends. Then a primary hands over to its replica if there is one in sync, and the server is stopped.
func (a *Agent) Run(ctx context.Context) error {
	a.mode, a.inMode, a.changed, a.renewed = Stopped, time.Now(), time.Now(), time.Now()
	tick := time.NewTicker(a.Limits.Every)
	defer tick.Stop()
	var last string
	for {
		a.alive.Store(time.Now().UnixNano())
		v := a.look(ctx)
		d := Decide(v)
		if said := fmt.Sprint(d.Act, d.Why); said != last {
			a.Log.Info("decided", "act", d.Act, "why", d.Why, "primary", v.Record.Primary, "inSync", v.Record.InSync, "mode", v.Mode)
			last = said
		}
		problem := ""
		if err := a.follow(ctx, v, d); err != nil {
			problem = err.Error()
			if problem != a.problem {
				a.Log.Warn("not done", "act", d.Act, "error", err)
			}
		}
		a.problem = problem
		a.report(ctx, v, d)
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

// look gathers all that a decision needs.
func (a *Agent) look(ctx context.Context) View {
	if a.process != nil && a.process.ended() {
		a.Log.Warn("the server has ended", "state", a.process.cmd.ProcessState.String(), "mode", a.mode)
		a.closeLocal()
		a.process = nil
		a.enter(Stopped)
	}
	a.collectCopy(ctx)
	a.reached = a.readRecord(ctx)
	v := View{Me: a.Me, Limits: a.Limits, Reached: a.reached && a.unkept == nil}
	v.Record, v.Renewed, v.Unchanged = a.record, time.Since(a.renewed), time.Since(a.changed)
	if a.unkept != nil {
		v.Unkept = a.unkept.Error()
	}
	if a.reached {
		a.hear(ctx)
	}
	if time.Since(a.peerHeard) < silentAfter {
		v.Peer = a.peer
	}
	if a.lease != nil {
		v.Known = a.memory.of(a.lease.UID)
		v.Heard = v.Peer.Seen != "" && v.Peer.Seen == a.lease.ResourceVersion
	}
	v.Mode, v.InMode, v.Complete = a.mode, time.Since(a.inMode), a.complete()
	if a.mode == Primary || a.mode == Replica {
		a.ask(ctx, &v)
	}
	v.Answered, v.CopyFailed = a.everAnswered, a.sinceFailedCopy()
	v.SemiSyncFrom, v.CaughtUp, v.Following, v.Diverged = a.semiSyncFrom, a.caughtUp, a.following, a.diverged
	v.Lacking = a.lacking
	return v
}

// ask asks the server of this agent.
func (a *Agent) ask(ctx context.Context, v *View) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	db, err := a.server(ctx)
	if err == nil {
		v.Server, err = db.Replication(ctx)
	}
	if err != nil {
		v.Silent = time.Since(a.answered)
		return
	}
	v.Answers, a.answered, a.everAnswered = true, time.Now(), true
	r := v.Server
	if !r.SemiSync || r.Clients > 0 && (r.Waiting == 0 || r.Acknowledged != a.acks) {
		a.acknowledged = time.Now()
	}
	a.acks = r.Acknowledged
	v.Unacknowledged = time.Since(a.acknowledged)
	if a.mode == Replica && a.following && r.Connected && !a.caughtUp {
		a.caughtUp = a.catchUp(ctx, r)
	}
	if a.mode == Replica && a.following && r.Connected && !a.ownersSeen && a.lacking == "" {
		if err := a.lookForOwners(ctx, db, r); err != nil {
			a.Log.Debug("the owners cannot be compared", "error", err)
		}
	}
}

// catchUp reports whether a replica has what the primary had when this was first asked, after the replica had connected.
func (a *Agent) catchUp(ctx context.Context, r mysql.Replication) bool {
	if a.target == "" {
		source, err := a.askSource(ctx)
		if err != nil {
			return false
		}
		a.target = source.Binlog
	}
	return mysql.Sequence(r.Received) >= mysql.Sequence(a.target)
}

// askSource asks the other server.
func (a *Agent) askSource(ctx context.Context) (mysql.Replication, error) {
	db, err := mysql.Open(ctx, a.sourceConfig())
	if err != nil {
		return mysql.Replication{}, err
	}
	defer db.Close()
	return db.Replication(ctx)
}

// leave ends the server with the agent.
func (a *Agent) leave(ctx context.Context) {
	r := a.record
	handsOver := a.mode == Primary && r.Primary == a.Me && r.InSync != "" && r.Unsettled == ""
	if handsOver {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		r.Promote = r.InSync
		if err := a.writeRecord(ctx, r); err != nil {
			a.Log.Warn("the primary ends without handing over", "error", err)
		}
	}
	a.stop(handsOver)
}

// certificate makes the certificate of the server, if there is none that is good for long enough.
func (a *Agent) certificate() error {
	if err := a.renewAuthority(time.Now()); err != nil {
		return err
	}
	ca, _ := os.ReadFile(a.Files.CA)                                   // there is none before the first start
	pair, err := tls.LoadX509KeyPair(a.Files.Certificate, a.Files.Key) // they do not fit if the agent was killed while it wrote them
	if err == nil && bytes.Equal(ca, a.Authority.CertPEM()) && !pki.NeedsRenewal(pair.Leaf, time.Now()) && pki.SignedBy(pair.Leaf, a.Authority.Cert) {
		return nil
	}
	dns, ips := pki.SplitNames(a.Names)
	leaf, err := pki.Issue(a.Authority, pki.Request{CommonName: a.Me, DNSNames: dns, IPs: ips, NotBefore: time.Now(), Small: true})
	if err != nil {
		return fmt.Errorf("issuing the certificate of the server: %w", err)
	}
	key, err := leaf.KeyPEM()
	if err != nil {
		return fmt.Errorf("issuing the certificate of the server: %w", err)
	}
	for name, data := range map[string][]byte{a.Files.CA: a.Authority.CertPEM(), a.Files.Certificate: leaf.CertPEM(), a.Files.Key: key} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			return fmt.Errorf("writing the certificate of the server: %w", err)
		}
	}
	return nil
}

// renewAuthority continues the authority with its key, which both agents have: what one signs is valid for the other, whose authority may be the former one.
// Nothing else makes the Secret anew, and no server starts without a certificate.
func (a *Agent) renewAuthority(now time.Time) error {
	if !pki.NeedsRenewal(a.Authority.Cert, now) {
		return nil
	}
	next, err := pki.ContinueCA(now, a.Authority)
	if err != nil {
		return err
	}
	a.Authority = next
	return nil
}
