// SPDX-License-Identifier: Apache-2.0

package dbpair

import "fmt"

// forcedTerms is how many terms a forced promotion skips while the record is unsettled, because the other server may remember more terms than this one knows.
const forcedTerms = 1 << 20

// doubtful reports whether the record must not decide who becomes the primary: it says so itself, or this server remembers a later one.
func (v View) doubtful() bool {
	return v.Record.Unsettled != "" || v.Known.later(v.Record.known())
}

// latest returns the latest known record of the Lease, this server and the other one. It is not sure if two records of that term name different primaries.
func (v View) latest() (latest Known, sure bool) {
	latest, sure = v.Record.known(), true
	for _, k := range []Known{v.Known, v.Peer.Known} {
		switch {
		case k.forks(latest):
			sure = false
		case k.Term > latest.Term:
			latest, sure = k, true
		}
	}
	return latest, sure
}

// taken returns the record after this server has replaced the primary.
func (v View) taken() Record {
	if !v.doubtful() {
		r := Record{Primary: v.Me, Term: v.Record.Term + 1, Copy: v.Record.Copy}
		if r.Copy == v.Me { // there is nothing to copy any longer
			r.Copy = ""
		}
		return r
	}
	latest, _ := v.latest()
	return Record{Primary: v.Me, Term: latest.Term + forcedTerms}
}

// settle decides while it is not known which record is the latest: etcd was restored from a snapshot, and the databases were not. The record is
// marked first, which gives it a version that no earlier report can name. Then both servers report what they remember, and the primary of the latest
// record writes it again. If one server is silent, or both were the primary, a user decides.
func settle(v View) Decision {
	const lost = "; if that server is lost for good: ocadm cluster database promote --force"
	serves := v.Mode == Primary && v.acknowledged()
	act := Wait
	if v.Mode == Primary && !serves {
		act = Stop
	}
	switch {
	case !v.Reached:
		return Decision{Act: act, Why: v.unread()}
	case v.Record.Unsettled == "":
		r := v.Record.Doubted(fmt.Sprintf("etcd was reset to an earlier state: the record is of term %d, and %s remembers term %d", v.Record.Term, v.Me, v.Known.Term))
		return Decision{Act: act, Why: r.Unsettled, Write: &r}
	case act == Stop:
		return Decision{Act: Stop, Why: "another server may be the primary: " + v.Record.Unsettled}
	case v.Record.Promote == v.Me && v.Record.Force && v.Complete && v.Unchanged > v.Forced:
		return forced(v)
	case !v.Heard:
		return Decision{Act: Wait, Why: "it waits for the state that " + Peer(v.Me) + " remembers: " + v.Record.Unsettled + lost}
	}
	latest, sure := v.latest()
	switch {
	case !sure:
		return Decision{Act: Wait, Why: fmt.Sprintf("both servers were the primary in term %d: choose the one to keep with ocadm cluster database promote --force --server", latest.Term)}
	case latest.Primary != v.Me:
		return Decision{Act: Wait, Why: latest.Primary + " was the primary last, and will be the primary again"}
	}
	r := Record{Primary: v.Me, Term: latest.Term + 1}
	if latest.InSync == Peer(v.Me) {
		r.InSync = latest.InSync
	}
	return Decision{Act: Wait, Why: fmt.Sprintf("it was the primary last, in term %d", latest.Term), Write: &r}
}

// acknowledged reports whether the replica in sync acknowledges this server as the primary. Then no other server has become the primary, because a
// replica closes the connection before it takes over.
func (v View) acknowledged() bool {
	return v.Known.Primary == v.Me && v.Known.InSync != "" && v.Answers && v.Server.SemiSync && v.Server.Clients > 0 && v.Unacknowledged < v.Silence
}

// forced makes this server the primary at a user's request, whatever the other one remembers.
func forced(v View) Decision {
	const why = "a user accepts the loss of what it does not have"
	switch {
	case v.Mode == Stopped:
		r := v.taken()
		return Decision{Act: StartPrimary, Why: why, Write: &r}
	case v.Mode == Replica && v.Answers:
		return Decision{Act: TakeOver, Why: why}
	case v.Mode == Replica && v.hangs():
		return Decision{Act: Stop, Why: "the server does not answer"}
	}
	return Decision{Act: Wait, Why: "the server does not answer yet"}
}

// unread returns the reason why the record is not known now.
func (v View) unread() string {
	if v.Unkept != "" {
		return v.Unkept
	}
	return "the API server cannot be reached"
}
