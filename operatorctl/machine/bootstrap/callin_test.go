// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/callin"
	"yunion.io/x/ocadm/test/require"
)

// A machine that calls in reports before it downloads anything, including failures before ocadm is there; then ocadm reports.
func TestCallIn(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip(err)
	}
	var reports []callin.Report
	gone := true
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/api/v1/namespaces/onecloud/configmaps/worker-1-call-in":
			var patch struct{ Data map[string]string }
			err := json.NewDecoder(r.Body).Decode(&patch)
			if err != nil || r.Method != http.MethodPatch || r.Header.Get("Content-Type") != "application/merge-patch+json" || r.Header.Get("Authorization") != "Bearer "+token {
				t.Errorf("%v: %s %v", err, r.Method, r.Header)
			}
			for k := range patch.Data {
				if !slices.Contains([]string{"exit", "findings", "message", "phase", "state", "try"}, k) {
					t.Errorf("key %s", k)
				}
			}
			reports = append(reports, callin.Read(patch.Data))
		case gone:
			http.NotFound(w, r)
		default:
			w.Header().Set("Docker-Content-Digest", "sha256:"+digest(program))
			fmt.Fprint(w, program)
		}
	}))
	t.Cleanup(s.Close)
	address := strings.TrimPrefix(s.URL, "https://")
	_, port, _ := strings.Cut(address, ":")
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	m := machine()
	m.Spec.Infrastructure.Callback = &v1alpha1.MachineCallback{}
	script, err := Script(m, Cluster{Endpoint: address, CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), DepotPort: number}, token)
	require.NoError(t, err)
	dir := t.TempDir()
	out, status := run(t, dir, script, "join", "4")
	want := []callin.Report{{State: callin.Called, Try: 4}, {State: callin.Failed, Try: 4, Exit: ExitNoDownload}}
	if status != ExitNoDownload || !reflect.DeepEqual(reports, want) {
		t.Errorf("status %d, %+v\n%s", status, reports, out)
	}
	gone, reports = false, nil
	out, status = run(t, dir, script, "join", "5")
	if status != 0 || !reflect.DeepEqual(reports, []callin.Report{{State: callin.Called, Try: 5}}) || !strings.HasPrefix(out, filepath.Join(dir, "ocadm")+" machine call-in\n") {
		t.Errorf("status %d, %+v\n%s", status, reports, out)
	}
	if count := strings.Count(command, " in 1 2 3 4 5 6 7 8 9 10;"); count != 1 || callin.Tries != 10 {
		t.Error("the tries of the command are others")
	}
}

// A machine that boots with expired data prints that on its console: it cannot report it.
func TestExpired(t *testing.T) {
	c, asked, _ := scripted(t)
	refuses := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	t.Cleanup(refuses.Close)
	_, port, _ := strings.Cut(strings.TrimPrefix(refuses.URL, "https://"), ":")
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	c.DepotPort, c.CA = number, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: refuses.Certificate().Raw})
	script, err := Script(machine(), c, token)
	require.NoError(t, err)
	dir := t.TempDir()
	out, status := run(t, dir, script)
	if status != ExitExpired || !strings.Contains(out, "ocadm machine bootstrap-data worker-1") || strings.Contains(out, token) || len(files(t, dir)) > 0 || len(*asked) > 0 {
		t.Errorf("status %d, left %v:\n%s", status, files(t, dir), out)
	}
}

// The settings of a machine override those of its cloud, including false and a missing empty list.
func TestSettingsOfTheCloud(t *testing.T) {
	m := machine()
	m.Spec.Settings = v1alpha1.MachineSettings{Offline: new(false), NoProxy: []string{"own.example.org"}}
	c := Cluster{Endpoint: "192.0.2.1:6443", CA: []byte(authority), Settings: v1alpha1.MachineSettings{
		Offline: new(true), NoProxy: []string{"a", "b"}, HTTPSProxy: "http://p:2", ConntrackMaxPerCore: new(int32),
	}}
	got, err := JoinConfig(m, c, token, "pin")
	require.NoError(t, err)
	node, _ := got["node"].(map[string]any)
	for key, want := range map[string]string{"offline": "false", "noProxy": "[own.example.org]", "httpsProxy": "http://p:2", "conntrackMaxPerCore": "0"} {
		if fmt.Sprint(node[key]) != want {
			t.Errorf("%s is %v, want %s", key, node[key], want)
		}
	}
}
