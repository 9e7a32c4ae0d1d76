// SPDX-License-Identifier: Apache-2.0

package move

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/test/require"
)

func TestReplaced(t *testing.T) {
	for _, c := range []struct{ name, text, from, to, want string }{
		{"URL", "server: https://10.0.0.1:6443\n", "10.0.0.1", "10.0.1.5", "server: https://10.0.1.5:6443\n"},
		{"several", "a=10.0.0.1,b=10.0.0.1", "10.0.0.1", "10.0.0.2", "a=10.0.0.2,b=10.0.0.2"},
		{"end of a sentence", "at 10.0.0.1.", "10.0.0.1", "10.0.0.2", "at 10.0.0.2."},
		{"longer at the end", "10.0.0.11 10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.11 10.0.0.2"},
		{"longer at the beginning", "110.0.0.1 10.0.0.1", "10.0.0.1", "10.0.0.2", "110.0.0.1 10.0.0.2"},
		{"part of another", "1.10.0.0.1.2", "10.0.0.1", "10.0.0.2", "1.10.0.0.1.2"},
		{"network", "10.0.0.1/24", "10.0.0.1", "10.0.0.2", "10.0.0.2/24"},
		{"IPv6 URL", "https://[fd00::1]:6443", "fd00::1", "fd00::2", "https://[fd00::2]:6443"},
		{"longer IPv6", "fd00::12 fd00::1:2 2fd00::1 fd00::1", "fd00::1", "fd00::2", "fd00::12 fd00::1:2 2fd00::1 fd00::2"},
		{"nothing", "none here", "10.0.0.1", "10.0.0.2", "none here"},
		{"the new one holds the former one", "10.0.0.1", "10.0.0.1", "10.0.0.12", "10.0.0.12"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := replaced(c.text, c.from, c.to)
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
			if again := replaced(got, c.from, c.to); again != got {
				t.Errorf("again: %q", again)
			}
		})
	}
}

// Workers that have not followed pull from the depot at the former address, so its certificate keeps it. After the update, nothing is left to change.
func TestDepotKeepsBothNames(t *testing.T) {
	const file = "/etc/kubernetes/manifests/ocadm-depot.yaml"
	h := worker(t)
	text := "spec:\n  containers:\n  - {name: depot, args: [serve, --except, \"10.0.0.7:5443,10.0.0.9:5443\"]}\n" +
		"  - {name: certificate, args: [depot, renew, 10.0.0.7, node1]}\n"
	require.NoError(t, h.Files.WriteFile(file, []byte(text), 0o600))
	for round, want := range []bool{true, false} {
		files, err := changes(h, "10.0.0.7", "10.0.0.8")
		at := slices.IndexFunc(files, func(f host.File) bool { return f.Name == file })
		if err != nil || (at >= 0) != want {
			t.Fatalf("round %d: %v, %v", round, files.Todo(h), err)
		}
		if !want {
			return
		}
		var p corev1.Pod
		require.NoError(t, yaml.Unmarshal(files[at].Data, &p))
		serve, renew := strings.Join(p.Spec.Containers[0].Args, " "), strings.Join(p.Spec.Containers[1].Args, " ")
		if serve != "serve --except 10.0.0.8:5443,10.0.0.9:5443" || renew != "depot renew 10.0.0.7 node1 10.0.0.8" {
			t.Errorf("%s; %s", serve, renew)
		}
		require.NoError(t, h.Files.WriteFile(file, files[at].Data, 0o600))
	}
}
