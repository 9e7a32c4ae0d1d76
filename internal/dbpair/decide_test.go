// SPDX-License-Identifier: Apache-2.0

package dbpair_test

import (
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/mysql"
)

const (
	first  = dbpair.First
	second = dbpair.Second
)

// healthy returns a pair in sync, as seen by the first server, the primary.
func healthy() dbpair.View {
	return dbpair.View{
		Me: first, Limits: dbpair.DefaultLimits(), Reached: true, Record: dbpair.Record{Primary: first, InSync: second, Term: 1},
		Mode: dbpair.Primary, InMode: time.Hour, Complete: true, Answers: true, Answered: true, Server: mysql.Replication{Binlog: "0-1-9000", SemiSync: true, Clients: 1},
		Peer: dbpair.Member{Mode: dbpair.Replica, Last: "0-1-9000", Connected: true, Applying: true, Complete: true},
	}
}

// replica returns the same pair as seen by the second server.
func replica() dbpair.View {
	v := healthy()
	v.Me, v.Mode, v.CaughtUp, v.Following = second, dbpair.Replica, true, true
	v.Server = mysql.Replication{Connected: true, Applying: true, Received: "0-1-9000", Applied: "0-1-9000"}
	v.Peer = dbpair.Member{Mode: dbpair.Primary, Last: "0-1-9000", Complete: true}
	return v
}

func TestPrimary(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*dbpair.View)
		want   dbpair.Act
		inSync string // in the written record
		writes bool
	}{
		"all is well":        {func(*dbpair.View) {}, dbpair.Wait, second, true},
		"it was stopped":     {func(v *dbpair.View) { v.Mode, v.Answers = dbpair.Stopped, false }, dbpair.StartPrimary, second, true},
		"it does not answer": {func(v *dbpair.View) { v.Answers, v.Silent = false, 20*time.Second }, dbpair.Wait, "", false},
		"it hangs":           {func(v *dbpair.View) { v.Answers, v.Silent = false, time.Minute }, dbpair.Stop, "", false},
		"it recovers":        {func(v *dbpair.View) { v.Answers, v.Answered, v.Silent = false, false, 29*time.Minute }, dbpair.Wait, "", false},
		"it recovers without an end": {func(v *dbpair.View) {
			v.Answers, v.Answered, v.Silent = false, false, 31*time.Minute
		}, dbpair.Stop, "", false},
		"replica silent":       {func(v *dbpair.View) { v.Unacknowledged = 9 * time.Second }, dbpair.GoOnAlone, "", true},
		"replica slow":         {func(v *dbpair.View) { v.Unacknowledged = 7 * time.Second }, dbpair.Wait, second, true},
		"replica cannot apply": {func(v *dbpair.View) { v.Peer.Applying, v.Peer.Error = false, "duplicate" }, dbpair.GoOnAlone, "", true},
		"semi-sync is off although the record says in sync": {func(v *dbpair.View) { v.Server.SemiSync = false }, dbpair.WaitForPeer, second, true},
		"alone": {func(v *dbpair.View) {
			v.Record.InSync, v.Server.SemiSync, v.Server.Clients, v.Peer = "", false, 0, dbpair.Member{}
		}, dbpair.Wait, "", true},
		"alone, and the replica has nearly caught up": {func(v *dbpair.View) {
			v.Record.InSync, v.Server.SemiSync, v.Peer.Last = "", false, "0-1-8500"
		}, dbpair.WaitForPeer, "", true},
		"alone, and the replica is far behind": {func(v *dbpair.View) {
			v.Record.InSync, v.Server.SemiSync, v.Peer.Last = "", false, "0-1-10"
		}, dbpair.Wait, "", true},
		"the replica has not received all from before commits waited": {func(v *dbpair.View) {
			v.Record.InSync, v.SemiSyncFrom, v.Peer.Last = "", "0-1-9000", "0-1-8999"
		}, dbpair.Wait, "", true},
		"the replica has received all from before commits waited": {func(v *dbpair.View) {
			v.Record.InSync, v.SemiSyncFrom = "", "0-1-8999"
		}, dbpair.Wait, second, true},
		"no API server, replica connected": {func(v *dbpair.View) { v.Reached, v.Renewed = false, time.Hour }, dbpair.Wait, "", false},
		"no API server, replica gone":      {func(v *dbpair.View) { v.Reached, v.Renewed, v.Server.Clients = false, 11*time.Second, 0 }, dbpair.Stop, "", false},
		"no API server, replica does not acknowledge": {func(v *dbpair.View) {
			v.Reached, v.Renewed, v.Unacknowledged = false, 11*time.Second, 9*time.Second
		}, dbpair.Stop, "", false},
		"no API server for a while, alone":  {func(v *dbpair.View) { v.Reached, v.Renewed, v.Record.InSync = false, 40*time.Second, "" }, dbpair.Wait, "", false},
		"no API server for too long, alone": {func(v *dbpair.View) { v.Reached, v.Renewed, v.Record.InSync = false, 46*time.Second, "" }, dbpair.Stop, "", false},
		"its volume is a new one":           {func(v *dbpair.View) { v.Complete, v.Mode = false, dbpair.Stopped }, dbpair.Wait, "", false},
		"the first start": {func(v *dbpair.View) {
			v.Complete, v.Mode, v.Record.Term, v.Record.InSync = false, dbpair.Stopped, 0, ""
		}, dbpair.Confirm, "", true},
		"the first start, the record was not written": {func(v *dbpair.View) {
			v.Mode, v.Record.Term, v.Record.InSync = dbpair.Stopped, 0, ""
		}, dbpair.Confirm, "", true},
		"a promotion is asked for":                 {func(v *dbpair.View) { v.Record.Promote = second }, dbpair.StepDown, "", false},
		"it has stepped down":                      {func(v *dbpair.View) { v.Record.Promote, v.Mode, v.InMode = second, dbpair.Stopped, time.Second }, dbpair.Wait, "", false},
		"a forced promotion in sync, and it lives": {func(v *dbpair.View) { v.Record.Promote, v.Record.Force = second, true }, dbpair.StepDown, "", false},
		"the same, without another primary": {func(v *dbpair.View) {
			v.Record.Promote, v.Record.Force, v.Mode, v.InMode = second, true, dbpair.Stopped, 31*time.Second
		}, dbpair.StartPrimary, second, true},
		"nobody took over":                   {func(v *dbpair.View) { v.Record.Promote, v.Mode = second, dbpair.Stopped }, dbpair.StartPrimary, second, true},
		"a promotion of a replica behind":    {func(v *dbpair.View) { v.Record.Promote, v.Record.Force, v.Record.InSync = second, true, "" }, dbpair.Wait, "", true},
		"killed between record and start":    {func(v *dbpair.View) { v.Mode, v.Record.InSync = dbpair.Stopped, "" }, dbpair.StartPrimary, "", true},
		"it runs as a replica, and was made": {func(v *dbpair.View) { v.Mode = dbpair.Replica }, dbpair.Stop, "", false},
	} {
		v := healthy()
		c.change(&v)
		d := dbpair.Decide(v)
		if d.Act != c.want || (d.Write != nil) != c.writes || d.Write != nil && d.Write.InSync != c.inSync {
			t.Errorf("%s: %+v, record %+v; want %s, in sync %q", name, d, d.Write, c.want, c.inSync)
		}
	}
}

func TestReplica(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*dbpair.View)
		want   dbpair.Act
	}{
		"all is well":             {func(*dbpair.View) {}, dbpair.Wait},
		"it was stopped":          {func(v *dbpair.View) { v.Mode, v.Answers = dbpair.Stopped, false }, dbpair.StartReplica},
		"it hangs":                {func(v *dbpair.View) { v.Answers, v.Silent = false, time.Minute }, dbpair.Stop},
		"it recovers":             {func(v *dbpair.View) { v.Answers, v.Answered, v.Silent = false, false, 29*time.Minute }, dbpair.Wait},
		"it is still the primary": {func(v *dbpair.View) { v.Mode = dbpair.Primary }, dbpair.Stop},
		"the same, no API server": {func(v *dbpair.View) { v.Mode, v.Reached = dbpair.Primary, false }, dbpair.Stop},
		"it has no copy":          {func(v *dbpair.View) { v.Complete, v.Mode = false, dbpair.Stopped }, dbpair.Copy},
		"its copy has just failed": {func(v *dbpair.View) {
			v.Complete, v.Mode, v.CopyFailed = false, dbpair.Stopped, time.Second
		}, dbpair.Wait},
		"the same, and a copy is asked for": {func(v *dbpair.View) {
			v.Complete, v.Mode, v.CopyFailed, v.Record.Copy, v.Record.InSync = false, dbpair.Stopped, time.Second, second, ""
		}, dbpair.Copy},
		"its copy failed a while ago": {func(v *dbpair.View) { v.Complete, v.Mode, v.CopyFailed = false, dbpair.Stopped, 2*time.Minute }, dbpair.Copy},
		"it has a row too many":       {func(v *dbpair.View) { v.Diverged = true }, dbpair.Copy},
		"it does not follow yet":      {func(v *dbpair.View) { v.Following, v.CaughtUp = false, false }, dbpair.Follow},
		"the log is gone":             {func(v *dbpair.View) { v.Server.Connected, v.Server.Code = false, 1236 }, dbpair.Copy},
		"no API server":               {func(v *dbpair.View) { v.Reached, v.Server.Connected, v.Unchanged = false, false, time.Hour }, dbpair.Wait},
		"a copy is asked for in sync": {func(v *dbpair.View) { v.Record.Copy = second }, dbpair.Wait},
		"a copy is asked for":         {func(v *dbpair.View) { v.Record.Copy, v.Record.InSync = second, "" }, dbpair.Copy},
		"it lacks the owners":         {func(v *dbpair.View) { v.Lacking, v.Record.InSync = "x", "" }, dbpair.Copy},
		"it lacks them, in sync":      {func(v *dbpair.View) { v.Lacking = "x" }, dbpair.Wait},
		"it lacks them, and the primary is lost": {func(v *dbpair.View) {
			v.Lacking, v.Server.Connected, v.Unchanged = "x", false, 16*time.Second
		}, dbpair.TakeOver},
		"the primary is silent":      {func(v *dbpair.View) { v.Server.Connected, v.Unchanged = false, 10*time.Second }, dbpair.Wait},
		"the primary is lost":        {func(v *dbpair.View) { v.Server.Connected, v.Unchanged = false, 16*time.Second }, dbpair.TakeOver},
		"lost, and it is behind":     {func(v *dbpair.View) { v.Server.Connected, v.Unchanged, v.Record.InSync = false, time.Hour, "" }, dbpair.Wait},
		"lost, and it was restarted": {func(v *dbpair.View) { v.Server.Connected, v.Unchanged, v.CaughtUp = false, time.Hour, false }, dbpair.Wait},
		"lost, and it cannot apply": {func(v *dbpair.View) {
			v.Server.Connected, v.Server.Applying, v.Server.Error, v.Unchanged = false, false, "duplicate", time.Hour
		}, dbpair.Wait},
		"the primary has no API server":       {func(v *dbpair.View) { v.Unchanged = 30 * time.Second }, dbpair.Wait},
		"the primary never has an API server": {func(v *dbpair.View) { v.Unchanged = 61 * time.Second }, dbpair.TakeOver},
		"asked for, the primary has stopped":  {func(v *dbpair.View) { v.Record.Promote, v.Server.Connected = second, false }, dbpair.TakeOver},
		"asked for, the primary still serves": {func(v *dbpair.View) { v.Record.Promote = second }, dbpair.Wait},
		"forced, the primary may live": {func(v *dbpair.View) {
			v.Record.Promote, v.Record.Force, v.Record.InSync, v.Unchanged = second, true, "", 46*time.Second
		}, dbpair.Wait},
		"forced": {func(v *dbpair.View) {
			v.Record.Promote, v.Record.Force, v.Record.InSync, v.Unchanged = second, true, "", 61*time.Second
		}, dbpair.TakeOver},
		"forced, in sync, restarted and the primary is gone": {func(v *dbpair.View) {
			v.Record.Promote, v.Record.Force, v.CaughtUp, v.Server.Connected, v.Unchanged = second, true, false, false, 61*time.Second
		}, dbpair.TakeOver},
		"the same, the primary may live": {func(v *dbpair.View) {
			v.Record.Promote, v.Record.Force, v.CaughtUp, v.Server.Connected, v.Unchanged = second, true, false, false, 46*time.Second
		}, dbpair.Wait},
		"forced without a copy": {func(v *dbpair.View) {
			v.Record.Promote, v.Record.Force, v.Record.InSync, v.Unchanged, v.Complete, v.Mode = second, true, "", time.Hour, false, dbpair.Stopped
		}, dbpair.Copy},
	} {
		v := replica()
		c.change(&v)
		if d := dbpair.Decide(v); d.Act != c.want {
			t.Errorf("%s: %+v, want %s", name, d, c.want)
		}
	}
}

// TestNeverTwo checks that a primary, whatever it sees, never goes on alone while the record says that the replica may take over.
func TestNeverTwo(t *testing.T) {
	l := dbpair.DefaultLimits()
	if l.Fence >= l.Takeover || l.FenceAlone >= l.Forced || l.Silence >= l.Takeover {
		t.Errorf("limits: %+v", l)
	}
	for _, reached := range []bool{true, false} {
		for _, clients := range []int64{0, 1} {
			for _, silent := range []time.Duration{0, time.Hour} {
				for _, peer := range []dbpair.Member{{}, healthy().Peer, {Mode: dbpair.Replica, Error: "x"}, {Mode: dbpair.Copying}} {
					v := healthy()
					v.Reached, v.Server.Clients, v.Unacknowledged, v.Peer, v.Renewed = reached, clients, silent, peer, time.Hour
					if d := dbpair.Decide(v); d.Act == dbpair.GoOnAlone && (d.Write == nil || d.Write.InSync != "") {
						t.Errorf("%+v: %+v", v, d)
					}
				}
			}
		}
	}
}
