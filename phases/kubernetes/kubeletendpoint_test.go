// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// A volume that is never mounted delays an upgrade by a minute but does not fail it. A kubelet that reports no volumes does.
func TestAwaitVolumes(t *testing.T) {
	metrics := func(wanted, found int) string {
		const line = `volume_manager_total_volumes{plugin_name="x",state="%s_state_of_world"} %d` + "\n"
		return fmt.Sprintf(line+line, "desired", wanted, "actual", found)
	}
	for name, c := range map[string]struct {
		answer func(since time.Duration) (string, error)
		fails  bool
		after  time.Duration
	}{
		"all are there":           {func(time.Duration) (string, error) { return metrics(3, 3), nil }, false, 0},
		"one is never mounted":    {func(time.Duration) (string, error) { return metrics(3, 2), nil }, false, volumesPatience},
		"the kubelet is not read": {func(time.Duration) (string, error) { return "", errors.New("refused") }, true, volumesPatience},
		"they come": {func(since time.Duration) (string, error) {
			return metrics(3, min(3, int(since/(10*time.Second)))), nil
		}, false, 30 * time.Second},
	} {
		h := fakeHost(t, &host.Recorder{})
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			err := awaitVolumes(t.Context(), h, workflow.Discard{}, 2, func(context.Context) (string, error) { return c.answer(time.Since(begun)) })
			if took := time.Since(begun); (err != nil) != c.fails || took < c.after || took > c.after+2*time.Second {
				t.Errorf("%s: after %s: %v", name, took, err)
			}
		})
	}
}
