// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/operatorctl/machine/bootstrap"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/test/require"
)

// The constants match those of the installer, which the package must not import.
func TestConstants(t *testing.T) {
	if bootstrap.DepotPort != config.DepotPort || bootstrap.Ledger != host.LedgerFile || bootstrap.SettingsName != cluster.SettingsName {
		t.Error("the installer has another port of the depot, another ledger, or other settings")
	}
	objs, err := cluster.Settings(cluster.Options{ImageRepository: "registry.example.org/you"}, "")
	require.NoError(t, err)
	if text, _, _ := unstructured.NestedString(objs[1].Object, "data", bootstrap.SettingsKey); !strings.Contains(text, "imageRepository: registry.example.org/you\n") {
		t.Errorf("the settings are %q", text)
	}
}

// The script finds the name that init and join write, and nothing on a machine without it.
func TestIdentityScript(t *testing.T) {
	c := config.Default()
	c.Node.Name, c.Node.IP, c.Join.Token, c.Node.Labels = "chosen", "192.0.2.7", "abcdef.0123456789abcdef", []string{"name=other"}
	for name, render := range map[string]func(*config.Config) ([]byte, error){
		"init": kubernetes.RenderInit, "join": kubernetes.RenderJoin, "none": func(*config.Config) ([]byte, error) { return nil, nil },
	} {
		raw, err := render(&c)
		require.NoError(t, err)
		dir, want := t.TempDir(), ""
		if raw != nil {
			want = "name chosen\nca BEGIN\nca END\n"
			for file, text := range map[string]string{strings.TrimPrefix(kubernetes.ConfigFile, "/etc"): string(raw), "/kubernetes/pki/ca.crt": "BEGIN\nEND\n"} {
				to := filepath.Join(dir, file)
				require.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, []byte(text), 0o600)))
			}
		}
		run := exec.CommandContext(t.Context(), "sh", "-s")
		run.Stdin, run.Env = strings.NewReader(bootstrap.IdentityScript), append(os.Environ(), "OCADM_BOOTSTRAP_ETC="+dir)
		if got, err := run.CombinedOutput(); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}
