// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"maps"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/finding"
)

func TestCompare(t *testing.T) {
	then := contentsOf(snapshotOf(t))
	if c := then.clouds["onecloud/default"]; c != (Cloud{Namespace: "onecloud", Name: "default", Version: "v1", Release: 7}) {
		t.Errorf("%+v", c)
	}
	with := func(change func(*contents)) contents {
		c := contentsOf(snapshotOf(t))
		change(&c)
		return c
	}
	at := func(server string) contents {
		return contentsOf(map[string][]byte{clouds + "onecloud/default": []byte(`{"metadata":{"namespace":"onecloud","name":"default"},"spec":{"mysql":` + server + `}}`)})
	}
	noPair := with(func(c *contents) { c.records = nil })
	second := with(func(c *contents) { c.records["onecloud"] = dbpair.Record{Primary: dbpair.Second, Term: 9} })
	for name, c := range map[string]struct {
		then, now contents
		known     bool
		line      string // of the first cloud
		misfit    string
	}{
		"nothing has changed": {then, then, true, "version v1, release 7; now version v1, release 7", ""},
		"updated since": {then, with(func(c *contents) {
			c.clouds["onecloud/default"] = Cloud{Namespace: "onecloud", Name: "default", Version: "v2", Release: 8}
		}), true,
			"version v1, release 7; now version v2, release 8", "of version v2, and the snapshot restores version v1"},
		"changed since":                         {then, with(func(c *contents) { c.clouds["onecloud/default"] = Cloud{Version: "v1", Release: 9} }), true, "now version v1, release 9", ""},
		"deleted since":                         {then, with(func(c *contents) { clear(c.clouds) }), true, "cloud onecloud/default: version v1, release 7", ""},
		"made since":                            {with(func(c *contents) { clear(c.clouds) }), then, true, "is not in the snapshot, and will be lost", ""},
		"the present unknown":                   {then, contents{}, false, "version v1, release 7", ""},
		"the same server":                       {at(`{"host":"10.0.0.5"}`), at(`{"host":"10.0.0.5","port":3306}`), true, "", ""},
		"moved to a server since":               {at(`{"host":"10.0.0.5"}`), at(`{"host":"10.0.0.9","port":3307}`), true, "", "uses database server 10.0.0.9:3307, and the snapshot was taken when it used 10.0.0.5:3306"},
		"another primary":                       {then, second, true, "", ""}, // the servers settle it
		"a replica since":                       {noPair, then, true, "", ""},
		"a replica since, which is the primary": {noPair, second, true, "", "ocadm-mysql-0 would serve its old rows"},
	} {
		p := compare(c.then, c.now, c.known)
		if len(p.Clouds) != 1 || !strings.Contains(p.Clouds[0].String(), c.line) {
			t.Errorf("%s: %+v", name, p.Clouds)
		}
		f := finding.Of(p.Fits())
		if c.misfit == "" && len(f) == 0 {
			continue
		}
		if len(f) != 1 || f[0].Code != "OCA-4157" || len(f[0].Evidence) != 1 || !strings.Contains(f[0].Evidence[0], c.misfit) || c.misfit == "" {
			t.Errorf("%s: %+v", name, f)
		}
	}
	if p := compare(then, then, true); len(p.Operations) != 4 || !p.Holds() || p.Operations[3] != "onecloud/update (Update)" {
		t.Errorf("%q", p.Operations)
	}
	if p := compare(contents{}, then, true); p.Holds() {
		t.Errorf("%+v", p)
	}
}

// Unreadable keys are listed, and the others are read.
func TestUnreadable(t *testing.T) {
	values := snapshotOf(t)
	maps.Copy(values, map[string][]byte{clouds + "other/cloud": []byte("k8s:enc:aescbc:v1:key1:x"), leases + "other/ocadm-mysql": []byte("k8s\x00rubbish")})
	c := contentsOf(values)
	if len(c.unreadable) != 2 || len(c.clouds) != 1 || len(c.records) != 1 {
		t.Errorf("%+v", c)
	}
}
