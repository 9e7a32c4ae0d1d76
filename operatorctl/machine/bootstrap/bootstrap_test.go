// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/phases/config"
)

const token = "abcdef.0123456789abcdef"

func machine() *v1alpha1.OnecloudMachine {
	m := &v1alpha1.OnecloudMachine{}
	m.Name, m.Namespace, m.UID = "worker-1", "onecloud", "11-22"
	m.Spec = v1alpha1.OnecloudMachineSpec{Cloud: "default", Roles: []v1alpha1.MachineRole{"compute", "lbagent"}, Labels: map[string]string{"a/b": "it's $(id) @TOKEN@"},
		HostNetworks: []string{"eno1/br0/192.0.2.12"}}
	return m
}

// depot serves a program that repeats its arguments and its configuration.
func depot(t *testing.T) (Cluster, *[]string) {
	t.Helper()
	var asked []string
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.Header.Get("Authorization"))
		fmt.Fprint(w, "#!/bin/sh\necho \"$0\" \"$1\" \"$2\"\nwhile [ $# -gt 0 ]; do [ \"$1\" = --config ] && cat \"$2\"; shift; done\nexit 7\n")
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return Cluster{Endpoint: "127.0.0.1:6443", CA: ca, KubernetesVersion: "v1.36.3", ImageRepository: "registry.example.org/you", DepotPort: port}, &asked
}

func run(t *testing.T, script string, args ...string) (out string, status int, dir string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	dir = t.TempDir()
	c := exec.CommandContext(ctx, "sh", append([]string{"-s", "--"}, args...)...)
	c.Stdin = strings.NewReader(script)
	c.Env = append(os.Environ(), "OCADM_BOOTSTRAP_DIR="+dir, "OCADM_BOOTSTRAP_BIN="+dir, "HTTPS_PROXY=http://127.0.0.1:1")
	text, err := c.CombinedOutput()
	if err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	return string(text), c.ProcessState.ExitCode(), dir
}

// The script, run by a shell against a server that plays the depot: it checks without leaving anything, and installs for join.
func TestScript(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip(err)
	}
	c, asked := depot(t)
	script, err := Script(machine(), c, token)
	if err != nil {
		t.Fatal(err)
	}
	out, status, dir := run(t, script, "precheck")
	left, err := os.ReadDir(dir)
	if err != nil || status != 7 || len(left) != 0 || !strings.Contains(out, "/ocadm preflight join\n") {
		t.Errorf("status %d, left %v, %v:\n%s", status, left, err, out)
	}
	if len(*asked) != 1 || !strings.HasSuffix((*asked)[0], "/usr/local/bin/ocadm Bearer "+token) {
		t.Errorf("asked %q", *asked)
	}
	_, text, _ := strings.Cut(out, "\n")
	values, err := config.Parse("it", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	pin, err := Pin(c.CA)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"node.name": "worker-1", "node.enableHostAgent": true, "join.token": token, "join.endpoint": "127.0.0.1:6443", "join.caCertHashes": []string{pin},
		"node.labels":             []string{"a/b=it's $(id) @TOKEN@", "onecloud.yunion.io/lbagent=enable", "onecloud.yunion.io/machine=11-22"},
		"cluster.imageRepository": "registry.example.org/you", "cluster.kubernetesVersion": "v1.36.3", "node.hostNetworks": []string{"eno1/br0/192.0.2.12"},
	} {
		if got := fmt.Sprint(values[key]); got != fmt.Sprint(want) {
			t.Errorf("%s is %s, want %v", key, got, want)
		}
	}
	out, status, dir = run(t, script)
	if status != 7 || !strings.HasPrefix(out, filepath.Join(dir, "ocadm")+" join --config\n") {
		t.Errorf("status %d:\n%s", status, out)
	}
	if left, err = os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "ocadm" {
		t.Errorf("left %v, %v", left, err)
	}
	if out, status, _ = run(t, script[:len(script)-10], "join"); strings.Contains(out, "join") {
		t.Errorf("a script that is cut off: status %d:\n%s", status, out)
	}
}

// A server with another authority gets no token.
func TestAnotherAuthority(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip(err)
	}
	c, asked := depot(t)
	script, err := Script(machine(), c, token)
	if err != nil {
		t.Fatal(err)
	}
	other := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), 30))
	out, status, _ := run(t, strings.Replace(script, string(c.CA), "-----BEGIN CERTIFICATE-----\n"+other+"\n-----END CERTIFICATE-----\n", 1), "join")
	if status != ExitNoDownload || len(*asked) != 0 {
		t.Errorf("status %d, asked %q:\n%s", status, *asked, out)
	}
}

func TestReset(t *testing.T) {
	if out, status, _ := run(t, ResetScript); status != 0 && status != ExitGuests || out != "" && status == 0 {
		t.Errorf("status %d without ocadm:\n%s", status, out)
	}
}

func TestFormats(t *testing.T) {
	c, _ := depot(t)
	script, err := Script(machine(), c, token)
	if err != nil {
		t.Fatal(err)
	}
	data, err := Format(script, "cloud-init")
	if err != nil {
		t.Fatal(err)
	}
	var cloud struct {
		Files []struct{ Path, Permissions, Content string } `json:"write_files"`
		Run   [][]string                                    `json:"runcmd"`
	}
	if err := yaml.Unmarshal([]byte(data), &cloud); err != nil || len(cloud.Files) != 1 || cloud.Files[0].Content != script || cloud.Files[0].Permissions != "0600" || !strings.HasPrefix(data, "#cloud-config\n") {
		t.Errorf("%+v, %v", cloud, err)
	}
	schema(t, data)
	if data, err = Format(script, "ignition"); err != nil {
		t.Fatal(err)
	}
	var ignition struct {
		Ignition struct{ Version string }
		Storage  struct {
			Files []struct {
				Path     string
				Mode     int
				Contents struct{ Source string }
			}
		}
		Systemd struct {
			Units []struct{ Name, Contents string }
		}
	}
	if err := json.Unmarshal([]byte(data), &ignition); err != nil || ignition.Ignition.Version != "3.4.0" || ignition.Storage.Files[0].Mode != 0o600 {
		t.Fatalf("%+v, %v", ignition, err)
	}
	content, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(ignition.Storage.Files[0].Contents.Source, "data:;base64,"))
	if err != nil || sha256.Sum256(content) != sha256.Sum256([]byte(script)) {
		t.Errorf("%v: %s", err, content)
	}
}

// schema is cloud-init's own check, where Debian's package is installed.
func schema(t *testing.T, data string) {
	t.Helper()
	program, err := exec.LookPath("cloud-init")
	if err != nil {
		t.Log("the schema was not checked: cloud-init is not installed")
		return
	}
	file := filepath.Join(t.TempDir(), "user-data")
	if err := os.WriteFile(file, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), program, "schema", "--config-file", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestDepotPort(t *testing.T) {
	if DepotPort != config.DepotPort {
		t.Error("the installer serves the depot at another port")
	}
}
