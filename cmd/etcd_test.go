// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/finding"
	etcdphase "yunion.io/x/ocadm/phases/etcd"
)

// A defragmentation that left members out is a failure, whatever it freed.
func TestDefragmentationStopped(t *testing.T) {
	if err := (defragmented{Freed: 1}).left(); err != nil {
		t.Error(err)
	}
	f := finding.Of(defragmented{Freed: 1, Stopped: "member node2 of etcd is a learner"}.left())
	if len(f) != 1 || f[0].Code != "OCA-4147" || !strings.Contains(f[0].Cause, "node2") || !strings.Contains(f[0].Remedy, "ocadm etcd status") {
		t.Errorf("%+v", f)
	}
}

// The preview of a restore describes the consequences for each cloud, and the next steps are to check and start it.
func TestPreviewOfRestore(t *testing.T) {
	is := etcdphase.Cloud{Namespace: "onecloud", Name: "default", Version: "v1", Release: 7}
	now := is
	now.Version, now.Release = "v2", 9
	p := etcdphase.Preview{
		Clouds: []etcdphase.CloudChange{
			{Namespace: "onecloud", Name: "default", Snapshot: &is, Now: &now}, {Namespace: "onecloud", Name: "later", Now: &now},
		},
		Operations: []string{"onecloud/update (Update)"}, Unreadable: []string{"/registry/x: invalid"},
	}
	for _, want := range []string{
		"cloud onecloud/default: version v1, release 7; now version v2, release 9\n", "cloud onecloud/later: is not in the snapshot, and will be lost",
		"operation onecloud/update (Update) had not ended: it is paused", "Cannot be read, and therefore not paused: /registry/x",
	} {
		if got := previewText(p); !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
	next := strings.Join(nextOfClouds(p), "\n")
	if !strings.Contains(next, "ocadm cluster start --name default -n onecloud") || strings.Contains(next, "later") || !strings.Contains(next, "ocadm operation list") {
		t.Error(next)
	}
	if got, next := previewText(etcdphase.Preview{Unknown: "x"}), nextOfClouds(etcdphase.Preview{}); got != "" || len(next) > 0 {
		t.Errorf("without a cloud: %q, %q", got, next)
	}
}
