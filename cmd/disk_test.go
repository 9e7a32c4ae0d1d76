// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
)

func TestExplainDisk(t *testing.T) {
	full := fmt.Errorf("installing kubelet: %w", &fs.PathError{Op: "write", Path: "/usr/local/bin/kubelet", Err: syscall.ENOSPC})
	for want, err := range map[string]error{
		"OCA-1023": &workflow.PhaseError{Plan: "init", Phase: "node-files", Err: full},
		"OCA-1024": fmt.Errorf("writing: %w", syscall.EROFS),
	} {
		got := explainDisk(err)
		l := finding.Of(got)
		if len(l) != 1 || l[0].Code != want || l[0].Cause == "" || l[0].Remedy == "" {
			t.Errorf("%v: want %s, got %+v", err, want, l)
		}
		var phase *workflow.PhaseError
		if errors.As(err, &phase) != errors.As(got, &phase) {
			t.Errorf("%v: the phase is lost", err)
		}
	}
	if other := errors.New("something else"); explainDisk(other) != other { //nolint:errorlint // the very same
		t.Error("another error was changed")
	}
}
