// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/test/require"
)

// TestLongUpload: users upload images of many GB through the console, and Traefik ends each request after a minute unless told otherwise.
func TestLongUpload(t *testing.T) {
	objs, err := traefik().Objects(plainConfig(), Prepared{})
	require.NoError(t, err)
	var may time.Duration
	podSpecs(t, objs, func(_ string, p corev1.PodTemplateSpec) {
		for _, a := range p.Spec.Containers[0].Args {
			if text, is := strings.CutPrefix(a, "--entrypoints.websecure.transport.respondingtimeouts.readtimeout="); is {
				may, err = time.ParseDuration(text)
			}
		}
	})
	if err != nil || may < time.Hour {
		t.Errorf("%s: %v", may, err)
	}
}
