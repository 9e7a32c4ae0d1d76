// SPDX-License-Identifier: Apache-2.0

package certreport_test

import (
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/certreport"
)

var now = time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)

func TestRenewAt(t *testing.T) {
	for lasts, ahead := range map[time.Duration]time.Duration{
		365 * 24 * time.Hour: 30 * 24 * time.Hour, 60 * 24 * time.Hour: 20 * 24 * time.Hour, 15 * time.Minute: 5 * time.Minute,
	} {
		if got := now.Add(lasts).Sub(certreport.RenewAt(now, now.Add(lasts))); got != ahead {
			t.Errorf("one that lasts %s is renewed %s before its end, not %s", lasts, got, ahead)
		}
	}
}

func TestReport(t *testing.T) {
	r := certreport.Report{Time: now, Certificates: []certreport.Certificate{
		{Name: "later", Ends: now.Add(3 * time.Hour), RenewAt: now.Add(time.Hour)},
		{Name: "now", Ends: now.Add(2 * time.Hour), RenewAt: now},
		{Name: "elsewhere", Ends: now.Add(time.Hour), RenewAt: now.Add(-time.Hour), Unable: "its key is elsewhere"},
		{Name: "of a kubelet", Ends: now.Add(4 * time.Hour), RenewAt: now.Add(2 * time.Hour), Unable: "its kubelet has not renewed it"},
	}}
	if got := certreport.Names(r.Due(now)); got != "now" {
		t.Errorf("due: %s", got)
	}
	if got := certreport.Names(r.Unable()); got != "elsewhere" {
		t.Errorf("unable: %s", got)
	}
	if got := r.LookAt(); !got.Equal(now.Add(2 * time.Hour)) {
		t.Errorf("the kubelet may have renewed its own %s", got)
	}
	if got := r.RenewAt(); !got.Equal(now) {
		t.Errorf("the first is renewed %s", got)
	}
	if got := r.Next().Name; got != "elsewhere" {
		t.Errorf("%s ends first", got)
	}
	if all := certreport.All(map[string]string{"a": `{"time":"2027-01-02T03:04:05Z"}`, "b": "{"}); len(all) != 1 || !all["a"].Time.Equal(now) {
		t.Errorf("%v", all)
	}
}
