// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"testing"

	"yunion.io/x/ocadm/api/v1alpha1"
)

func TestPath(t *testing.T) {
	for _, c := range []struct {
		from, to string
		allow    bool
		code     string
	}{
		{"v4.0.3", "v4.0.4", false, ""},
		{"v3.11.14", "v4.0.2", false, ""},
		{"v3.10.16", "v4.0.2", false, "OCA-7060"},
		{"v3.4.16", "v3.6.22", false, ""}, // 3.5 was never released
		{"v3.4.16", "v3.7.10", false, "OCA-7060"},
		{"v4.0.3", "v4.0.2", false, "OCA-7062"},
		{"v4.0.3", "v3.11.14", false, "OCA-7061"},
		{"v4.0.3", "v3.11.14", true, "OCA-7062"},
		{"v4.0.3", "v4.0.3-20260602.0", false, ""}, // a hot fix comes after its release
		{"v4.0.3", "mine", false, ""},
		{"mine", "v4.0.3", false, ""},
		{"v4.0.3", "v4.1.0", false, ""}, // one that this build does not know
	} {
		code := ""
		if l := path(c.from, c.to, c.allow); len(l) > 0 {
			code = l[0].Code
		}
		if code != c.code {
			t.Errorf("%s → %s: %q, want %q", c.from, c.to, code, c.code)
		}
	}
}

func TestUnsaved(t *testing.T) {
	cloud := &v1alpha1.OnecloudCluster{}
	cloud.Status.Release.Version = "v4.0.3"
	for _, c := range []struct {
		update *v1alpha1.UpdateParameters
		want   string
	}{
		{nil, ""},
		{&v1alpha1.UpdateParameters{Version: "v4.1.0"}, ""},
		{&v1alpha1.UpdateParameters{NoBackup: true}, "OCA-7065"},
		{&v1alpha1.UpdateParameters{NoBackup: true, Version: "v4.0.4"}, "OCA-7065"},
		{&v1alpha1.UpdateParameters{NoBackup: true, Version: "v4.1.0"}, "OCA-7064"},
		{&v1alpha1.UpdateParameters{NoBackup: true, Version: "v3.11.9", AllowDowngrade: true}, "OCA-7064"},
	} {
		got := ""
		for _, f := range unsaved(facts{cloud: cloud, update: c.update}) {
			got += f.Code
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.update, got, c.want)
		}
	}
}
