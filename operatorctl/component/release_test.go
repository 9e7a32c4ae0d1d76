// SPDX-License-Identifier: Apache-2.0

package component_test

import (
	"testing"

	"yunion.io/x/ocadm/operatorctl/component"
)

func TestReleasesOfAComponent(t *testing.T) {
	for _, c := range []struct {
		releases component.Releases
		version  string
		lacks    string
	}{
		{component.Releases{}, "v3.1.1", ""},
		{component.Releases{First: "v3.10.2"}, "v3.10.2", ""},
		{component.Releases{First: "v3.10.2"}, "v3.10.10", ""},
		{component.Releases{First: "v3.10.2"}, "v3.10.1", "not in release v3.10.1: first in v3.10.2"},
		{component.Releases{First: "v3.10.2"}, "v3.9.16", "not in release v3.9.16: first in v3.10.2"},
		{component.Releases{First: "v4.0.4"}, "v4.0.4-rc.0", ""},
		{component.Releases{First: "v4.0.4"}, "v4.0.3-20260602.0", "not in release v4.0.3-20260602.0: first in v4.0.4"},
		{component.Releases{First: "v4.0.4"}, "latest", ""},
		{component.Releases{First: "v4.0.4"}, "lzx-dev", ""},
		{component.Releases{Last: "v3.10"}, "v3.10.16", ""},
		{component.Releases{Last: "v3.10"}, "3.4", ""},
		{component.Releases{Last: "v3.10"}, "v3.11.0", "not in release v3.11.0: last in v3.10"},
		{component.Releases{Last: "v3.10"}, "v4.0.3", "not in release v4.0.3: last in v3.10"},
		{component.Releases{Last: "v3.10"}, "latest", "not in release latest: last in v3.10"},
		{component.Releases{First: "v3.10.2"}, "v99999999999999999999.1", ""},
	} {
		if got := c.releases.Lacks(c.version); got != c.lacks {
			t.Errorf("%+v in %s: %q, want %q", c.releases, c.version, got, c.lacks)
		}
	}
}

func TestTagOfOlderReleases(t *testing.T) {
	image := component.Image{Tag: "v1.0.8", Older: []component.OlderTag{{Until: "v3.7", Tag: "v1.0.1"}, {Until: "v3.11", Tag: "v1.0.7"}}}
	for version, want := range map[string]string{
		"v3.1.1": "v1.0.1", "v3.7.10": "v1.0.1", "v3.8.0": "v1.0.7", "v3.11.14": "v1.0.7", "v4.0.3": "v1.0.8", "latest": "v1.0.8", "dev": "v1.0.8",
	} {
		if got := image.TagFor(version); got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
	if got := (component.Image{}).TagFor("v3.1.1"); got != "" {
		t.Errorf("an image of the cloud's own has tag %q", got)
	}
}
