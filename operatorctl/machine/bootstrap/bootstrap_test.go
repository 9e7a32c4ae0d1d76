// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/test/require"
)

const token = "abcdef.0123456789abcdef"

// authority is the CA certificate of a cluster, for goldens.
const authority = `-----BEGIN CERTIFICATE-----
MIIBQDCB86ADAgECAhQxDOQjpDC6XTvpL/VgpfyHGea8WzAFBgMrZXAwFTETMBEG
A1UEAwwKa3ViZXJuZXRlczAgFw0yNjExMjMwNzE1MzFaGA8yMTI2MTAzMDA3MTUz
MVowFTETMBEGA1UEAwwKa3ViZXJuZXRlczAqMAUGAytlcAMhAMSoCNRAgO/uW8b8
BJCCaSCAWTb3JWRtPvfglr8tTD58o1MwUTAdBgNVHQ4EFgQUmys+HnQnpR/nP7li
P6yYIwRWcWQwHwYDVR0jBBgwFoAUmys+HnQnpR/nP7liP6yYIwRWcWQwDwYDVR0T
AQH/BAUwAwEB/zAFBgMrZXADQQDr4GjuL3HI8x3TlI2fp4w7+FeOKDolRgL4UE3y
9zsJDuYvqsLthXTHvWHKX0BFTvhCOGpVKX+AYwOQVB72Hx0I
-----END CERTIFICATE-----
`

func machine() *v1alpha1.OnecloudMachine {
	m := &v1alpha1.OnecloudMachine{}
	m.Name, m.Namespace, m.UID = "worker-1", "onecloud", "11-22"
	m.Spec = v1alpha1.OnecloudMachineSpec{Cloud: "default", Roles: []v1alpha1.MachineRole{"compute", "lbagent"}, Labels: map[string]string{"a/b": "it's $(id) @TOKEN@"},
		HostNetworks: []string{"eno1/br0/192.0.2.12"}, Settings: v1alpha1.MachineSettings{
			IP: "192.0.2.12", Offline: new(true), Mirror: "http://mirror.example.org", RegistryMirrors: []string{"docker.io=https://mirror.example.org"},
			HTTPProxy: "http://p:1", HTTPSProxy: "http://p:2", NoProxy: []string{"a.example.org", "192.0.2.0/24"}, HostLocalImagePath: []string{"/disks"},
			Hugepages: "native", AllowCgroupV1: new(true), ConntrackMaxPerCore: new(int32),
		}}
	return m
}

// program prints its arguments and its configuration.
const program = `#!/bin/sh
echo "$0" "$1" "$2"
while [ $# -gt 0 ]; do [ "$1" = --config ] && cat "$2"; shift; done
[ -e "$0.fails" ] || exit 0
exit 7
`

func digest(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// depot serves a program that prints its arguments and its configuration.
func depot(t *testing.T) (Cluster, *[]string) {
	t.Helper()
	var asked []string
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
		w.Header().Set("Docker-Content-Digest", "sha256:"+digest(program))
		fmt.Fprint(w, program)
	}))
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	require.NoError(t, err)
	port, err := strconv.Atoi(u.Port())
	require.NoError(t, err)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return Cluster{Endpoint: "127.0.0.1:6443", CA: ca, KubernetesVersion: "v1.36.3", ImageRepository: "registry.example.org/you", DepotPort: port}, &asked
}

// run runs a script on a machine: directory bin holds its programs, root is the home directory of its user.
func run(t *testing.T, dir, script string, args ...string) (out string, status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "sh", append([]string{"-s", "--"}, args...)...)
	c.Stdin = strings.NewReader(script)
	c.Env = append(os.Environ(), "OCADM_BOOTSTRAP_DIR="+filepath.Join(dir, "root"), "OCADM_BOOTSTRAP_BIN="+dir, "HTTPS_PROXY=http://127.0.0.1:1")
	text, err := c.CombinedOutput()
	if err != nil && c.ProcessState == nil {
		t.Fatal(err)
	}
	return string(text), c.ProcessState.ExitCode()
}

// files returns the names of a machine's files.
func files(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if name, _ := filepath.Rel(dir, path); !e.IsDir() {
			out = append(out, name)
		}
		return err
	})
	require.NoError(t, err)
	return out
}

func write(t *testing.T, name, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(content), 0o700)); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
}

// scripted returns the script for a machine and its depot, for tests that run it.
func scripted(t *testing.T) (bootstrap Cluster, asked *[]string, script string) {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip(err)
	}
	c, asked := depot(t)
	script, err := Script(machine(), c, token)
	require.NoError(t, err)
	return c, asked, script
}

// The script, run by a shell against a server that acts as the depot: precheck does not install ocadm, join does, and the reset removes it.
func TestScript(t *testing.T) {
	c, asked, script := scripted(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "root/run.0/ocadm.json"), "of a run that lost its power")
	write(t, filepath.Join(dir, "ocadm.fails"), "")
	out, status := run(t, dir, script, "precheck")
	if left := files(t, dir); status != 0 || !slices.Equal(left, []string{"ocadm.fails", "root/ocadm"}) || !strings.Contains(out, "/ocadm preflight join\n") {
		t.Errorf("status %d, left %v:\n%s", status, left, out)
	}
	from := " /v1/files/linux/" + runtime.GOARCH + "/usr/local/bin/ocadm Bearer " + token
	if !slices.Equal(*asked, []string{"HEAD" + from, "GET" + from}) {
		t.Errorf("asked %q", *asked)
	}
	_, text, _ := strings.Cut(out, "\n")
	settingsArrive(t, c, text)
	for range 2 {
		out, status = run(t, dir, script)
		if left := files(t, dir); status != 7 || !strings.HasPrefix(out, filepath.Join(dir, "ocadm")+" join --config\n") ||
			!slices.Equal(left, []string{"ocadm", "ocadm.fails", "root/delivered"}) {
			t.Errorf("status %d, left %v:\n%s", status, left, out)
		}
	}
	if !slices.Equal(*asked, []string{"HEAD" + from, "GET" + from, "HEAD" + from, "HEAD" + from}) {
		t.Errorf("ocadm is there, and asked %q", *asked)
	}
	if out, status = run(t, dir, script[:len(script)-10], "join"); strings.Contains(out, "join") {
		t.Errorf("a script that is cut off: status %d:\n%s", status, out)
	}
	if out, status = run(t, dir, ResetScript); status != 7 || len(files(t, dir)) != 3 {
		t.Errorf("a reset that fails: status %d, %v\n%s", status, files(t, dir), out)
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "ocadm.fails")))
	for range 2 {
		if out, status = run(t, dir, ResetScript); status != 0 || len(files(t, dir)) > 0 {
			t.Errorf("status %d, left %v:\n%s", status, files(t, dir), out)
		}
	}
}

// settingsArrive reads the configuration in a script as ocadm does.
func settingsArrive(t *testing.T, c Cluster, text string) {
	t.Helper()
	values, err := config.Parse("it", []byte(text))
	require.NoError(t, err)
	pin, err := Pin(c.CA)
	require.NoError(t, err)
	for key, want := range map[string]any{
		"node.name": "worker-1", "node.enableHostAgent": true, "join.token": token, "join.endpoint": "127.0.0.1:6443", "join.caCertHashes": []string{pin},
		"node.labels":             []string{"a/b=it's $(id) @TOKEN@", "onecloud.yunion.io/lbagent=enable", "onecloud.yunion.io/machine=11-22"},
		"cluster.imageRepository": "registry.example.org/you", "cluster.kubernetesVersion": "v1.36.3", "node.hostNetworks": []string{"eno1/br0/192.0.2.12"},
		"node.ip": "192.0.2.12", "node.offline": true, "node.mirror": "http://mirror.example.org", "node.registryMirrors": []string{"docker.io=https://mirror.example.org"},
		"node.httpProxy": "http://p:1", "node.httpsProxy": "http://p:2", "node.noProxy": []string{"a.example.org", "192.0.2.0/24"},
		"node.hostLocalImagePath": []string{"/disks"}, "node.hugepages": "native", "node.allowCgroupV1": true, "node.conntrackMaxPerCore": 0,
	} {
		if got := fmt.Sprint(values[key]); got != fmt.Sprint(want) {
			t.Errorf("%s is %s, want %v", key, got, want)
		}
	}
}

// These tests set every field of a machine's settings.
func TestAllSettings(t *testing.T) {
	v := reflect.ValueOf(machine().Spec.Settings)
	for i := range v.NumField() {
		if v.Field(i).IsZero() {
			t.Errorf("%s is not tested", v.Type().Field(i).Name)
		}
	}
}

// Goldens of the three formats: apart from the script, they are the same for every machine.
func TestGoldens(t *testing.T) {
	c := Cluster{Endpoint: "192.0.2.1:6443", CA: []byte(authority), KubernetesVersion: "v1.36.3"}
	script, err := Script(machine(), c, token)
	require.NoError(t, err)
	for _, format := range []string{"script", "cloud-init", "ignition"} {
		got, err := Format(script, format)
		require.NoError(t, err)
		require.Golden(t, filepath.Join("testdata", format+".golden"), got)
	}
}

// The reset restores another ocadm that was there before. It leaves the same one.
func TestProgramBefore(t *testing.T) {
	_, _, script := scripted(t)
	for _, before := range []string{"another", program} {
		dir := t.TempDir()
		file := filepath.Join(dir, "ocadm")
		write(t, file, before)
		for _, text := range []string{script, script, ResetScript} {
			if out, status := run(t, dir, text); status != 0 || !strings.HasPrefix(out, file) {
				t.Errorf("status %d:\n%s", status, out)
			}
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != before || len(files(t, dir)) != 1 {
			t.Errorf("%q is left, and %v, %v", got, files(t, dir), err)
		}
	}
}

// While virtual machines run, the check ends with its status, and the reset does nothing.
func TestGuests(t *testing.T) {
	dir, proc := t.TempDir(), t.TempDir()
	t.Setenv("OCADM_BOOTSTRAP_PROC", proc)
	write(t, filepath.Join(dir, "ocadm"), program)
	for _, name := range []string{"systemd", "qemu-system-x86"} {
		if out, status := run(t, dir, NoGuestsScript); status != 0 || out != "" {
			t.Fatalf("without virtual machines: status %d: %s", status, out)
		}
		proc := filepath.Join(proc, fmt.Sprint(len(name)))
		require.NoError(t, os.Mkdir(proc, 0o700))
		write(t, filepath.Join(proc, "comm"), name+"\n")
	}
	for _, text := range []string{NoGuestsScript, ResetScript} {
		if out, status := run(t, dir, text); status != ExitGuests || out != "1 virtual machines run on the machine\n" {
			t.Errorf("status %d: %s", status, out)
		}
	}
}

// A server with another CA gets no token.
func TestAnotherAuthority(t *testing.T) {
	c, asked, script := scripted(t)
	other := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), 30))
	out, status := run(t, t.TempDir(), strings.Replace(script, string(c.CA), "-----BEGIN CERTIFICATE-----\n"+other+"\n-----END CERTIFICATE-----\n", 1), "join")
	if status != ExitNoDownload || len(*asked) != 0 {
		t.Errorf("status %d, asked %q:\n%s", status, *asked, out)
	}
}

func TestFormats(t *testing.T) {
	c, _ := depot(t)
	script, err := Script(machine(), c, token)
	require.NoError(t, err)
	data, err := Format(script, "cloud-init")
	require.NoError(t, err)
	var cloud struct {
		Files []struct{ Path, Permissions, Content string } `json:"write_files"`
		Run   [][]string                                    `json:"runcmd"`
	}
	if err := yaml.Unmarshal([]byte(data), &cloud); err != nil || len(cloud.Files) != 2 || cloud.Files[0].Content != script || cloud.Files[0].Permissions != "0600" || !strings.HasPrefix(data, "#cloud-config\n") {
		t.Errorf("%+v, %v", cloud, err)
	}
	// A command of cloud-init is not repeated at the next boot; an enabled unit is.
	if run := strings.Join(cloud.Run[0], " "); run != "systemctl enable --now "+filepath.Base(cloud.Files[1].Path) || !strings.Contains(cloud.Files[1].Content, "ConditionPathExists="+cloud.Files[0].Path) {
		t.Errorf("cloud-init runs %s", run)
	}
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
