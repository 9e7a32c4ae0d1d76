// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"time"

	"yunion.io/x/ocadm/internal/mysql"
)

// Mode is the mode that a server's process was started in.
type Mode string

// The modes. Only a primary listens on the network.
const (
	Stopped Mode = "stopped"
	Primary Mode = "primary"
	Replica Mode = "replica"
	Copying Mode = "copying"
)

// Limits holds how long an agent waits. Each agent measures with its own clock, and the times of two agents are never compared.
type Limits struct {
	// Every is the interval between looks.
	Every time.Duration
	// Silence is the time without an acknowledgement after which a primary goes on alone.
	Silence time.Duration
	// Fence and FenceAlone are the times without access to the record after which a primary stops, with and without a replica in sync. With one, it
	// stops only if the replica is disconnected too.
	Fence, FenceAlone time.Duration
	// Takeover is how long the record must not have changed before a replica in sync that lost its source takes over. Connected is the same for one
	// that still has its source, which then cannot reach the record.
	Takeover, Connected time.Duration
	// Forced is the same for a promotion that accepts a loss. It is longer than FenceAlone.
	Forced time.Duration
	// Handover is how long a primary that stepped down waits for the replica to take over.
	Handover time.Duration
	// Unresponsive is how long a server may fail to answer before it is restarted. Recovery is the same for one that has not answered since its
	// start: after a crash it recovers first, and a restart would begin that again.
	Unresponsive, Recovery time.Duration
	// CopyAgain is how long a replica waits after a failed copy; without it, one whose disk is full would keep the primary busy endlessly.
	CopyAgain time.Duration
}

// DefaultLimits returns the limits of the product.
func DefaultLimits() Limits {
	return Limits{
		Every: time.Second, Silence: 8 * time.Second, Fence: 10 * time.Second, FenceAlone: 45 * time.Second, Takeover: 15 * time.Second, Connected: time.Minute,
		Forced: time.Minute, Handover: 30 * time.Second, Unresponsive: 30 * time.Second, Recovery: 30 * time.Minute,
		CopyAgain: time.Minute,
	}
}

// View is everything that an agent knows when it decides.
type View struct {
	Me string
	Limits
	// Reached is true if the last look read the record and the volume holds it; Unkept is the reason if the volume does not. Record is the last one read.
	Reached bool
	Unkept  string
	Record  Record
	// Known is the latest record kept on the volume. Heard is true if the other agent has reported what it knows about the current version of the record.
	Known Known
	Heard bool
	// Renewed is the time since this server, as the primary, wrote the record; Unchanged is the time since the record last changed, without the time
	// during which it could not be read.
	Renewed, Unchanged time.Duration

	Mode Mode
	// InMode is the time since it entered this mode.
	InMode time.Duration
	// Complete is true if the volume holds a complete copy.
	Complete bool
	// Answers is true if the last look read Server, Answered if any look did since the server was started. Silent is the time without an answer.
	Answers, Answered bool
	Server            mysql.Replication
	Silent            time.Duration
	// Unacknowledged is the time without an acknowledgement from a replica although one is due.
	Unacknowledged time.Duration
	// SemiSyncFrom is the last event in the log at the moment when commits began to wait for the replica; "" while they do not wait.
	SemiSyncFrom string
	// CaughtUp is true once a replica has received, since its server started, everything that the primary had when it connected. Before that, it may
	// have less than it once acknowledged: on start, a server drops what it received and did not apply.
	CaughtUp bool
	// Following is true once a replica follows the primary since its server started. Diverged is true if it has events that the primary lacks.
	Following, Diverged bool
	// CopyFailed is the time since the last copy failed, 0 if it did not.
	CopyFailed time.Duration
	// Lacking names what is missing from the copy of a replica; "" if nothing is, or it is not known yet.
	Lacking string
	// Peer is the last report of the other agent; the zero value if it is silent. Outdated is true if this server has gone on alone since.
	Peer     Member
	Outdated bool
}

// Act is an action of an agent.
type Act string

const (
	Wait         Act = "wait"
	Confirm      Act = "confirm"      // mark the volume as complete, then write the record
	StartPrimary Act = "primary"      // start the server as the primary
	StartReplica Act = "replica"      // start the server as the replica
	Stop         Act = "stop"         // stop the server and close all its connections
	StepDown     Act = "step-down"    // the same, after the current commits
	Follow       Act = "follow"       // replicate from the primary
	Copy         Act = "copy"         // fill the server with a copy of the primary
	TakeOver     Act = "take-over"    // apply what was received, become the primary in the record, start as the primary
	WaitForPeer  Act = "semi-sync"    // make commits wait for the replica
	GoOnAlone    Act = "asynchronous" // make commits no longer wait
)

// Decision is the action to take and its reason. Write is the record to write before; if that fails, nothing is done. Taken is the record that a takeover writes.
type Decision struct {
	Act          Act
	Why          string
	Write, Taken *Record
}

// hangs reports whether the server has been silent for so long that it must be restarted.
func (v View) hangs() bool {
	if !v.Answered {
		return v.Silent > v.Recovery
	}
	return v.Silent > v.Unresponsive
}

// Decide is a pure function. It gives a record with another primary, or another replica in sync, a later term.
func Decide(v View) Decision {
	d := decide(v)
	if w := d.Write; w != nil && w.Term == v.Record.Term && w.known() != v.Record.known() {
		w.Term++
	}
	if d.Act == TakeOver {
		r := v.taken()
		d.Taken = &r
	}
	return d
}

func decide(v View) Decision {
	switch {
	case v.doubtful():
		return settle(v)
	case v.Record.Primary == v.Me:
		return asPrimary(v)
	}
	return asReplica(v)
}

func asPrimary(v View) Decision {
	r := v.Record
	switch {
	case !v.Reached:
		return unreached(v)
	case r.Term == 0: // even if the volume is marked: the record may not have been written after that
		r.Term = 1
		return Decision{Act: Confirm, Why: "it is the first primary", Write: &r}
	case !v.Complete:
		return Decision{Act: Wait, Why: "it is the primary and its volume has no data: promote the other server"}
	case v.Mode == Replica || v.Mode == Copying:
		return Decision{Act: Stop, Why: "it became the primary"}
	case r.Promote == Peer(v.Me) && r.InSync == r.Promote:
		return handOver(v)
	case r.Promote != "":
		r.Promote, r.Force = "", false
		return Decision{Act: Wait, Why: "the promotion is not needed, or not possible now", Write: &r}
	case v.Mode == Stopped:
		return Decision{Act: StartPrimary, Why: "it is the primary", Write: &r}
	case v.hangs():
		return Decision{Act: Stop, Why: "the server does not answer"}
	case !v.Answers:
		return Decision{Act: Wait, Why: "the server does not answer yet"}
	}
	return replicated(v)
}

// replicated decides whether a primary that serves waits for its replica. Commits wait before the record says so, and as long as it does. Once the primary
// has gone on alone, only a new report makes them wait again: the last one of a lost node says that all is well, and counts for a while.
func replicated(v View) Decision {
	r := v.Record
	healthy := !v.Outdated && v.Peer.Mode == Replica && v.Peer.Applying && v.Peer.Connected && v.Peer.Complete
	switch {
	case r.InSync != "" && !v.Server.SemiSync:
		return Decision{Act: WaitForPeer, Why: "the record lists the replica as in sync", Write: &r}
	case r.InSync != "" && v.Unacknowledged > v.Silence:
		r.InSync = ""
		return Decision{Act: GoOnAlone, Why: "the replica does not acknowledge", Write: &r}
	case r.InSync != "" && v.Peer.Mode == Replica && !v.Peer.Applying && v.Peer.Error != "":
		r.InSync = ""
		return Decision{Act: GoOnAlone, Why: "the replica cannot apply what it receives: " + v.Peer.Error, Write: &r}
	case r.InSync != "":
		return Decision{Act: Wait, Why: "the replica is in sync", Write: &r}
	case v.Server.SemiSync && v.Unacknowledged > v.Silence:
		return Decision{Act: GoOnAlone, Why: "the replica does not acknowledge", Write: &r}
	case v.Server.SemiSync && healthy && v.SemiSyncFrom != "" && mysql.Sequence(v.Peer.Last) >= mysql.Sequence(v.SemiSyncFrom):
		r.InSync = Peer(v.Me)
		return Decision{Act: Wait, Why: "the replica is in sync", Write: &r}
	case v.Server.SemiSync:
		return Decision{Act: Wait, Why: "the replica catches up", Write: &r}
	case healthy && v.Server.Clients > 0 && mysql.Sequence(v.Peer.Last) >= mysql.Sequence(v.Server.Binlog)-nearly:
		return Decision{Act: WaitForPeer, Why: "the replica has nearly caught up", Write: &r}
	}
	return Decision{Act: Wait, Why: "there is no replica in sync", Write: &r}
}

// nearly is how many events a replica may be behind when commits begin to wait for it.
const nearly = 1000

// unreached decides for a primary that cannot read the record. As long as its replica acknowledges, no other server has become the primary, because a
// replica closes the connection before it takes over.
func unreached(v View) Decision {
	limit := v.FenceAlone
	if v.Record.InSync != "" {
		limit = v.Fence
		if v.Answers && v.Server.Clients > 0 && v.Unacknowledged < v.Silence {
			return Decision{Act: Wait, Why: v.unread() + "; the replica acknowledges"}
		}
	}
	if v.Mode != Stopped && v.Renewed > limit {
		return Decision{Act: Stop, Why: v.unread() + ": another server may have become the primary"}
	}
	return Decision{Act: Wait, Why: v.unread()}
}

func handOver(v View) Decision {
	switch {
	case v.Mode != Stopped:
		return Decision{Act: StepDown, Why: "it hands over to the replica"}
	case v.InMode > v.Handover:
		r := v.Record
		r.Promote, r.Force = "", false
		return Decision{Act: StartPrimary, Why: "the replica did not take over", Write: &r}
	}
	return Decision{Act: Wait, Why: "the replica takes over"}
}

func asReplica(v View) Decision {
	switch {
	case v.Mode == Primary:
		return Decision{Act: Stop, Why: "it is no longer the primary"}
	case !v.Reached:
		return Decision{Act: Wait, Why: v.unread()}
	case v.Mode == Copying:
		return Decision{Act: Wait, Why: "it copies the primary", Write: v.copied()}
	case v.Record.Copy == v.Me && v.Record.InSync != v.Me && !v.chosen():
		return Decision{Act: Copy, Why: "a new copy was requested", Write: v.copied()}
	case !v.Complete && v.CopyFailed > 0 && v.CopyFailed < v.CopyAgain:
		return Decision{Act: Wait, Why: "the copy failed and will start over soon"}
	case !v.Complete || v.Diverged:
		return Decision{Act: Copy, Why: map[bool]string{true: "it has changes that the primary does not have", false: "it has no copy yet"}[v.Diverged]}
	case v.Lacking != "" && v.Record.InSync != v.Me:
		return Decision{Act: Copy, Why: v.Lacking}
	case v.Mode == Stopped:
		return Decision{Act: StartReplica, Why: "it is the replica"}
	case v.hangs():
		return Decision{Act: Stop, Why: "the server does not answer"}
	case !v.Answers:
		return Decision{Act: Wait, Why: "the server does not answer yet"}
	}
	if d, due := takeOver(v); due {
		return d
	}
	if !v.Following {
		return Decision{Act: Follow, Why: "it replicates from the primary"}
	}
	if v.Lacking != "" {
		return Decision{Act: Wait, Why: v.Lacking + ": it copies again once the primary continues alone"}
	}
	if v.Server.Code == lostLog && !v.Server.Connected {
		return Decision{Act: Copy, Why: "the primary no longer has the changes that the replica lacks"}
	}
	return Decision{Act: Wait, Why: "it replicates"}
}

// copied returns the record without the request to copy this server again, nil if there is none, or the former copy is still in place: a copy that cannot
// begin, for example because the primary is unreachable, must not be forgotten.
func (v View) copied() *Record {
	if v.Record.Copy != v.Me || v.Mode != Copying && v.Complete {
		return nil
	}
	r := v.Record
	r.Copy = ""
	return &r
}

// chosen reports whether a user wants this server, with the copy that it has, to replace the primary. Then there may be no primary to copy.
func (v View) chosen() bool { return v.Record.Promote == v.Me && v.Record.Force && v.Complete }

// lostLog is the error number of a source that cannot send what a replica requests.
const lostLog = 1236

// takeOver decides whether a replica replaces the primary. Only the first case can lose data, and only because a user asked for it.
func takeOver(v View) (Decision, bool) {
	r := v.Record
	wanted := r.Promote == v.Me
	inSync := r.InSync == v.Me && v.CaughtUp
	broken := v.Server.Error != "" && !v.Server.Applying
	switch {
	case wanted && r.Force && v.Unchanged > v.Forced:
		return Decision{Act: TakeOver, Why: "a user accepts the loss of what it has not received"}, true
	case !inSync || broken:
		return Decision{}, false
	case wanted && !v.Server.Connected:
		return Decision{Act: TakeOver, Why: "the primary has handed over"}, true
	case !v.Server.Connected && v.Unchanged > v.Takeover:
		return Decision{Act: TakeOver, Why: "the primary is lost"}, true
	case v.Unchanged > v.Connected:
		return Decision{Act: TakeOver, Why: "the primary cannot reach the API server"}, true
	}
	return Decision{}, false
}
