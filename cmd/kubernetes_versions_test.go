// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/version"
)

// Each pair of a Kubernetes version requested from init and a bundle works, or is refused before anything changes.
func TestKubernetesVersions(t *testing.T) {
	const older, invalid = "v1.35.8", "OCA-0320"
	type bundled struct {
		connected
		file string
	}
	bundles := map[string]bundled{"": {}} // without a bundle
	for _, v := range []string{older, version.Kubernetes} {
		b := bundled{connectFor(t, v), filepath.Join(t.TempDir(), "test.bundle")}
		if out, err := b.create(t, "--kubernetes-version", v, "-o", b.file); err != nil {
			t.Fatalf("creating the bundle for %s: %v\n%s", v, err, out)
		}
		bundles[v] = b
	}
	for _, tt := range []struct{ bundle, asked, code, remedy string }{
		{version.Kubernetes, "", "", ""},
		{version.Kubernetes, version.Kubernetes, "", ""},
		{version.Kubernetes, "v1.36.0", bundle.CodeWrongVersion, "add --kubernetes-version " + version.Kubernetes},
		{version.Kubernetes, older, bundle.CodeWrongVersion, "created with --kubernetes-version " + older},
		{older, older, "", ""},
		{older, "", bundle.CodeWrongVersion, "add --kubernetes-version " + older},
		{older, "v1.35.0", bundle.CodeWrongVersion, "add --kubernetes-version " + older},
		{older, "v1.34.9", invalid, ""},
		{version.Kubernetes, "v1.37.0", invalid, ""},
		{version.Kubernetes, "1.36.3", invalid, ""},
		{"", "v1.34.0", invalid, ""},
	} {
		b := bundles[tt.bundle]
		root := t.TempDir()
		flags := []string{"--rootfs", root, "--node-name", "n", "--node-ip", "192.0.2.1"}
		if tt.bundle != "" {
			flags = append(flags, "--bundle", b.file, "--image-repository", b.repository())
		}
		if tt.asked != "" {
			flags = append(flags, "--kubernetes-version", tt.asked)
		}
		_, err := ocadm(t, append([]string{"preflight", "init"}, flags...)...)
		found := map[string]string{}
		for _, f := range finding.Of(err) {
			found[f.Code] = f.Remedy
		}
		for _, code := range []string{invalid, bundle.CodeWrongVersion, bundle.CodeMissingImages} {
			if remedy, ok := found[code]; ok != (code == tt.code) || !strings.Contains(remedy, tt.remedy) && ok {
				t.Errorf("Kubernetes %q from bundle %q: finding %s is %v (%s), want %s %q", tt.asked, tt.bundle, code, ok, remedy, tt.code, tt.remedy)
			}
		}
		// The same again, without preflight.
		out, err := ocadm(t, append([]string{"init", "phase", "node-files"}, flags...)...)
		if tt.code != "" {
			if !has(finding.Of(err), tt.code) {
				t.Errorf("Kubernetes %q from bundle %q: %v\n%s", tt.asked, tt.bundle, err, out)
			}
			for _, dir := range []string{"usr", "opt", "etc"} {
				if _, err := os.Stat(filepath.Join(root, dir)); err == nil {
					t.Errorf("Kubernetes %q from bundle %q: there is a directory %s", tt.asked, tt.bundle, dir)
				}
			}
			continue
		}
		plan, err := ocadm(t, append([]string{"init", "phase", "images", "--dry-run"}, flags...)...)
		if err != nil || !strings.Contains(plan, "import "+b.repository()+"/kube-apiserver:"+tt.bundle) {
			t.Errorf("Kubernetes %q from bundle %q: %v\n%s", tt.asked, tt.bundle, err, plan)
		}
		if out, err := ocadm(t, append([]string{"init", "phase", "kubeadm-config"}, flags...)...); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		raw, err := os.ReadFile(filepath.Join(root, "etc/ocadm/kubeadm.yaml"))
		if err != nil || !strings.Contains(string(raw), "kubernetesVersion: "+tt.bundle) {
			t.Errorf("Kubernetes %q from bundle %q: %v\n%s", tt.asked, tt.bundle, err, raw)
		}
	}
	s := bundles[older]
	if _, err := s.create(t, "--kubernetes-version", "v1.34.0", "-o", filepath.Join(t.TempDir(), "x.bundle")); !has(finding.Of(err), invalid) {
		t.Errorf("creating a bundle for another ocadm: %v", err)
	}
}
