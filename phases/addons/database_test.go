// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/test/require"
)

// databaseSpec returns the pod of the first server.
func databaseSpec(t *testing.T, p Prepared) (out corev1.PodTemplateSpec) {
	t.Helper()
	objs, err := database().Objects(plainConfig(), p)
	require.NoError(t, err)
	podSpecs(t, objs, func(name string, p corev1.PodTemplateSpec) {
		if name == DatabaseName {
			out = p
		}
	})
	return out
}

// script is the shell script that creates the data directory, on a volume, with programs that write what they do to a log.
func script(t *testing.T, volume string) (said string, err error) {
	t.Helper()
	bin := t.TempDir()
	log := filepath.Join(bin, "log")
	for name, does := range map[string]string{
		"mariadb-install-db": "for a; do case $a in --datadir=*) mkdir -p ${a#*=}/mysql; : >${a#*=}/ibdata1; esac; done",
		"sync":               ":", "mv": "/bin/mv \"$@\"",
	} {
		text := "#!/bin/sh\nset -e\necho " + name + " >>" + log + "\n" + does + "\n"
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil { //nolint:gosec // a program of the test
			t.Fatal(err)
		}
	}
	c := databaseSpec(t, Prepared{Password: placeholder}).Spec.InitContainers[0]
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-euc", strings.ReplaceAll(c.Args[0], "/var/lib/mysql", volume))
	cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	did, _ := os.ReadFile(log) // missing if nothing was done
	return strings.Join(strings.Fields(string(did)), " ") + string(out), err
}

// TestDataDirectoryIsOnTheDisk: after a power cut, a complete name must not hold files that were never written.
func TestDataDirectoryIsOnTheDisk(t *testing.T) {
	if said, err := script(t, t.TempDir()); err != nil || said != "mariadb-install-db sync mv" {
		t.Errorf("%s: %v", said, err)
	}
}

// TestDataIsNotDeleted: a data directory that lost its system database still holds the tables of all clouds.
func TestDataIsNotDeleted(t *testing.T) {
	for _, tc := range []struct {
		name string
		has  []string
		kept bool
	}{
		{"damaged", []string{"data/ibdata1", "data/default_region/guests.ibd"}, true},
		{"damaged in a pair", []string{"data/ibdata1", "complete", "primary.json"}, true},
		{"half deleted before a copy", []string{"data/ibdata1", "primary.json"}, false},
		{"interrupted", []string{"data.new/ibdata1"}, false},
		{"complete", []string{"data/ibdata1", "data/mysql/global_priv.MAD"}, true},
	} {
		volume := t.TempDir()
		for _, f := range tc.has {
			name := filepath.Join(volume, f)
			require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
			require.NoError(t, os.WriteFile(name, []byte("former"), 0o600))
		}
		said, err := script(t, volume)
		now, _ := os.ReadFile(filepath.Join(volume, "data", "ibdata1")) // empty if it was created again
		if kept := string(now) == "former"; kept != tc.kept {
			t.Errorf("%s: kept %v: %s: %v", tc.name, kept, said, err)
		}
	}
}

// TestRecoveryIsNotKilled: the probes of a single server allow a recovery as long as the agent of a pair does.
func TestRecoveryIsNotKilled(t *testing.T) {
	p := databaseSpec(t, Prepared{Password: placeholder}).Spec.Containers[0].StartupProbe
	if may, want := p.PeriodSeconds*p.FailureThreshold, int32(dbpair.DefaultLimits().Recovery.Seconds()); may < want {
		t.Errorf("%d s, and %d s in a pair", may, want)
	}
}

// TestNewPasswordRestarts: if the Secret was lost and is created again, the server must take over the new password before its probes use it.
func TestNewPasswordRestarts(t *testing.T) {
	hash := func(pw string) string { return databaseSpec(t, Prepared{Password: pw}).Annotations[configAnnotation] }
	if hash("a") == hash("b") || hash("a") == "" {
		t.Errorf("%s %s", hash("a"), hash("b"))
	}
}
