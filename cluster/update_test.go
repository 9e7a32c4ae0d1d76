// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/version"
)

// Whether a paused cloud has changes that wait for an update is unknown: cluster update asks for them, and is refused for the pause, rather than report success.
func TestUpdateOfAPausedCloud(t *testing.T) {
	for reason, want := range map[string]int{"Paused": 1, "UpToDate": 0} {
		cloud := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "onecloud.yunion.io/v1alpha1", "kind": "OnecloudCluster", "status": map[string]any{
			"release":    map[string]any{"revision": int64(3)},
			"conditions": []any{map[string]any{"type": "UpdateAvailable", "status": "Unknown", "reason": reason}},
		}}}
		if _, lines := (Update{}).patch(cloud, false); len(lines) != want {
			t.Errorf("%s: %q", reason, lines)
		}
	}
}

// An operator that does not start is reported with the way back. How to provide the image is only advised for this program's: another one has another image.
func TestOperatorThatDoesNotStart(t *testing.T) {
	missing := fmt.Errorf("waiting: %w", finding.New("OCA-4175", "Node a cannot pull the image", "ErrImagePull: not found", "ocadm depot add"))
	for name, c := range map[string]struct {
		err      error
		tag      string
		has, not string
	}{
		"this program's image":   {missing, version.Version, "ocadm depot add; to go back: ocadm cluster update --operator-only --operator-image r/ocadm:v1", "describe"},
		"a mistyped version":     {missing, "v4.0.O", "to go back", "depot add"},
		"no room":                {context.DeadlineExceeded, "v2", "to go back", "depot add"},
		"the image was the same": {context.DeadlineExceeded, "v1", "describe pods", "to go back"},
	} {
		f := finding.Of(notStarted(c.err, "onecloud", "r/ocadm:v1", "r/ocadm:"+c.tag))
		if len(f) == 0 || f[0].Code != "OCA-7001" || !strings.Contains(f[0].What, "not changed") || !strings.Contains(f[0].Remedy, c.has) || strings.Contains(f[0].Remedy, c.not) {
			t.Errorf("%s: %+v", name, f)
		}
	}
	lost := errors.New("connection refused")
	if err := notStarted(lost, "onecloud", "a", "b"); !errors.Is(err, lost) || len(finding.Of(err)) > 0 {
		t.Error(err)
	}
	if err := notStarted(nil, "onecloud", "a", "b"); err != nil {
		t.Error(err)
	}
}
