// SPDX-License-Identifier: Apache-2.0

package version_test

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/version"
)

func TestUnknownRelease(t *testing.T) {
	for tag, want := range map[string]bool{
		"v4.1.0": true, "v9.9.9": true, "v5.0.0-rc.1": true, "v3.5.1": true, "v4.0.3": false, "v4.0.99-20260602.0": false, "v3.11.14": false, "master": false, "": false,
	} {
		if got := version.UnknownRelease(tag); got != want {
			t.Errorf("%q: %t", tag, got)
		}
	}
}

func TestCloudHint(t *testing.T) {
	for tag, want := range map[string]string{
		"4.0.3": "v4.0.3?", "3.11.14-20260602.0": "v3.11.14-20260602.0?", "4": "three numbers", "v4": "three numbers", "4.0": "three numbers", "v4.0": "three numbers",
		"v4.0.x": "three numbers", "v4.0.*": "three numbers", "v4.x": "three numbers", "latest": "fixed version",
		"": "", "v4.0.3": "", "v4.0.3-20260602.0": "", "v4.0.4-rc.6": "", "master": "", "lzx-dev": "", "release-4.0": "", "20260602": "", "v9.9.9": "",
	} {
		if got := version.CloudHint(tag); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", tag, got, want)
		}
	}
}
