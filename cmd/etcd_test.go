// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/finding"
)

// A defragmentation that left members out is no success, whatever it freed.
func TestDefragmentationStopped(t *testing.T) {
	if err := (defragmented{Freed: 1}).left(); err != nil {
		t.Error(err)
	}
	f := finding.Of(defragmented{Freed: 1, Stopped: "member node2 of etcd is a learner"}.left())
	if len(f) != 1 || f[0].Code != "OCA-4147" || !strings.Contains(f[0].Cause, "node2") || !strings.Contains(f[0].Remedy, "ocadm etcd status") {
		t.Errorf("%+v", f)
	}
}
