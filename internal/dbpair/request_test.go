// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"net"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/require"
)

// A requested copy that cannot begin, because the primary is unreachable for a moment, is requested until it has begun.
func TestCopyRequestIsKept(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	at, ok := ln.Addr().(*net.TCPAddr)
	if err := ln.Close(); err != nil || !ok {
		t.Fatal(err)
	}
	ca, err := pki.NewCA(time.Now(), "x", nil)
	require.NoError(t, err)
	a, _ := agentOn(t, Record{Primary: First, Term: 3, Copy: Second}, func() error { return nil })
	a.me = Second
	a.copier.remote.source = mysql.Source{Host: "127.0.0.1", Port: at.Port} // nothing listens there
	a.copier.remote.certs = &certificates{authority: ca}
	require.NoError(t, a.local.files.confirm())
	for range 2 {
		v := a.look(t.Context())
		if d := Decide(v); d.Act != Copy || a.follow(t.Context(), v.Server, d) == nil {
			t.Errorf("%+v", d)
		}
	}
	if v := a.look(t.Context()); v.Record.Copy != Second || !v.Complete {
		t.Errorf("record %+v, complete %t", v.Record, v.Complete)
	}
	if err := a.copied(t.Context()); err != nil { // it has begun
		t.Error(err)
	}
	if v := a.look(t.Context()); v.Record != (Record{Primary: First, Term: 3}) {
		t.Errorf("record %+v", v.Record)
	}
}

// The request is removed no earlier than the former copy, and does not keep the server from becoming the primary.
func TestCopyRequest(t *testing.T) {
	requested := Record{Primary: First, Term: 3, Copy: Second}
	for name, c := range map[string]struct {
		change func(*View)
		act    Act
		writes bool
	}{
		"it has a copy":                {func(*View) {}, Copy, false},
		"it has none":                  {func(v *View) { v.Complete, v.Mode = false, Stopped }, Copy, true},
		"it copies":                    {func(v *View) { v.Complete, v.Mode = false, Copying }, Wait, true},
		"a user wants the primary's":   {func(v *View) { v.Record.Copy, v.Mode = First, Copying }, Wait, false},
		"a user promotes it as it is":  {func(v *View) { v.Record.Promote, v.Record.Force, v.Unchanged = Second, true, time.Hour }, TakeOver, false},
		"a user promotes it too early": {func(v *View) { v.Record.Promote, v.Record.Force = Second, true }, Wait, false},
		"the same, without a copy":     {func(v *View) { v.Record.Promote, v.Record.Force, v.Complete, v.Mode = Second, true, false, Stopped }, Copy, true},
	} {
		v := View{Me: Second, Limits: DefaultLimits(), Reached: true, Record: requested, Mode: Replica, Complete: true, Answers: true, Answered: true, Following: true}
		c.change(&v)
		d := Decide(v)
		if d.Act != c.act || (d.Write != nil) != c.writes || d.Write != nil && d.Write.Copy != "" {
			t.Errorf("%s: %+v, record %+v", name, d, d.Write)
		}
		if d.Act == TakeOver && *d.Taken != (Record{Primary: Second, Term: 4}) {
			t.Errorf("%s: %+v", name, d.Taken)
		}
	}
}
