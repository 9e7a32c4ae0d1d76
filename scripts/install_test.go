// SPDX-License-Identifier: Apache-2.0

// Package scripts tests the shell scripts that users run.
package scripts

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

const installed = "#!/bin/sh\necho v9.9.9\n"

// archive returns a release archive whose program prints a version.
func archive(t *testing.T, arch string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	a := tar.NewWriter(z)
	require.NoError(t, a.WriteHeader(&tar.Header{Name: "ocadm-v9.9.9-linux-" + arch + "/ocadm", Mode: 0o755, Size: int64(len(installed))}))
	if _, err := a.Write([]byte(installed)); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, a.Close())
	require.NoError(t, z.Close())
	return b.Bytes()
}

// path returns a directory for PATH with the programs that the script needs and those given. A text becomes a shell script.
func path(t *testing.T, programs map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"awk", "cat", "chmod", "cp", "dash", "gzip", "mkdir", "mktemp", "mv", "rm", "sh", "sha256sum", "tar", "uname", "curl"} {
		if _, other := programs[name]; other {
			continue
		}
		if found, err := exec.LookPath(name); err == nil {
			require.NoError(t, os.Symlink(found, filepath.Join(dir, name)))
		}
	}
	for name, text := range programs {
		if text != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
		}
	}
	return dir
}

// A server with TLS that redirects to one without does not make the script download from there.
func TestInstallAfterARedirect(t *testing.T) {
	amd64 := archive(t, "amd64")
	name := "ocadm-v9.9.9-linux-amd64.tar.gz"
	plain := serve(t, map[string]any{"SHA256SUMS": fmt.Sprintf("%x  %s\n", sha256.Sum256(amd64), name), name: amd64})
	secure := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, plain+r.URL.Path, http.StatusFound)
	}))
	t.Cleanup(secure.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600))
	rc := filepath.Join(t.TempDir(), "wgetrc")
	require.NoError(t, os.WriteFile(rc, []byte("ca_certificate = "+ca+"\ntries = 1\n"), 0o600))
	machine := map[string]string{"uname": `[ "$1" = -s ] && echo Linux || echo x86_64`}
	with := map[string]map[string]string{"curl": machine}
	if wget, err := exec.LookPath("wget"); err == nil {
		with["wget"] = map[string]string{"uname": machine["uname"], "curl": "", "wget": "exec " + wget + ` "$@"`}
	}
	for program, programs := range with {
		for url, ok := range map[string]bool{secure.URL: false, plain: true} {
			cmd := exec.CommandContext(t.Context(), "sh", "install.sh")
			cmd.Env = []string{"PATH=" + path(t, programs), "TMPDIR=" + t.TempDir(), "CURL_CA_BUNDLE=" + ca, "WGETRC=" + rc,
				"OCADM_VERSION=v9.9.9", "OCADM_URL=" + url, "OCADM_INSTALL_DIR=" + t.TempDir()}
			if out, err := cmd.CombinedOutput(); (err == nil) != ok {
				t.Errorf("%s from %s: %v\n%s", program, url, err, out)
			}
		}
	}
}

func TestInstall(t *testing.T) {
	script, err := os.ReadFile("install.sh")
	require.NoError(t, err)
	amd64, arm64 := archive(t, "amd64"), archive(t, "arm64")
	sums := fmt.Sprintf("%x  ocadm-v9.9.9-linux-amd64.tar.gz\n%x  ocadm-v9.9.9-linux-arm64.tar.gz\n", sha256.Sum256(amd64), sha256.Sum256(arm64))
	x86 := map[string]string{"uname": `[ "$1" = -s ] && echo Linux || echo x86_64`}
	good := map[string]any{"SHA256SUMS": sums, "ocadm-v9.9.9-linux-amd64.tar.gz": amd64, "ocadm-v9.9.9-linux-arm64.tar.gz": arm64}
	with := func(name string, content any) map[string]any {
		out := map[string]any{"SHA256SUMS": sums, "ocadm-v9.9.9-linux-amd64.tar.gz": amd64}
		if content == nil {
			delete(out, name)
		} else {
			out[name] = content
		}
		return out
	}
	cutOff := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(amd64)))
		_, _ = w.Write(amd64[:len(amd64)/2])
	}
	for name, c := range map[string]struct {
		files    map[string]any
		programs map[string]string
		env      []string
		want     string // expected on standard error
		ok       bool
		dir      string // installation directory; a new one by default
	}{
		"x86_64":               {files: good, programs: x86, want: "Installed v9.9.9 as ", ok: true},
		"aarch64":              {files: with("ocadm-v9.9.9-linux-arm64.tar.gz", arm64), programs: map[string]string{"uname": `[ "$1" = -s ] && echo Linux || echo aarch64`}, want: "Installed v9.9.9", ok: true},
		"wget":                 {files: good, programs: map[string]string{"curl": "", "uname": x86["uname"], "wget": "exec " + lookPath("curl") + ` --fail --silent -o "$5" "$6"`}, want: "Installed v9.9.9", ok: true},
		"another architecture": {files: good, programs: map[string]string{"uname": `[ "$1" = -s ] && echo Linux || echo riscv64`}, want: "ocadm does not support riscv64"},
		"another system":       {files: good, programs: map[string]string{"uname": "echo Darwin"}, want: "this is Darwin"},
		"another file":         {files: with("ocadm-v9.9.9-linux-amd64.tar.gz", arm64), programs: x86, want: "its SHA-256 differs"},
		"cut off":              {files: with("ocadm-v9.9.9-linux-amd64.tar.gz", cutOff), programs: x86, want: "cannot be downloaded"},
		"no archive":           {files: with("ocadm-v9.9.9-linux-amd64.tar.gz", nil), programs: x86, want: "cannot be downloaded"},
		"no checksums":         {files: with("SHA256SUMS", nil), programs: x86, want: "SHA256SUMS cannot be downloaded"},
		"not in the checksums": {files: with("SHA256SUMS", "0  another\n"), programs: x86, want: "SHA256SUMS does not list ocadm-v9.9.9-linux-amd64.tar.gz"},
		"no program to fetch":  {files: good, programs: map[string]string{"curl": "", "uname": x86["uname"]}, want: "curl or wget is needed"},
		"no sha256sum":         {files: good, programs: map[string]string{"sha256sum": "", "uname": x86["uname"]}, want: "sha256sum is missing"},
		"no version":           {files: good, programs: x86, env: []string{"OCADM_VERSION="}, want: "set OCADM_VERSION"},
		"no address":           {files: good, programs: x86, env: []string{"OCADM_URL="}, want: "set OCADM_URL"},
		"no TLS":               {files: good, programs: x86, env: []string{"OCADM_URL=http://127.0.0.1.example.org"}, want: "set OCADM_ALLOW_HTTP=1"},
		"no TLS, in capitals":  {files: good, programs: x86, env: []string{"OCADM_URL=HTTP://127.1:1"}, want: "set OCADM_ALLOW_HTTP=1"},
		"no scheme":            {files: good, programs: x86, env: []string{"OCADM_URL=127.1:1"}, want: "set OCADM_ALLOW_HTTP=1"},
		"TLS, in capitals":     {files: good, programs: x86, env: []string{"OCADM_URL=HTTPS://127.1:1"}, want: "SHA256SUMS cannot be downloaded"},
		"no TLS, accepted":     {files: good, programs: x86, env: []string{"OCADM_URL=http://127.1:1", "OCADM_ALLOW_HTTP=1"}, want: "SHA256SUMS cannot be downloaded"},
		"mounted noexec":       {files: good, programs: map[string]string{"uname": x86["uname"], "chmod": "exec " + lookPath("chmod") + ` 0644 "$2"`}, want: "is it mounted noexec?"},
		"no permission":        {dir: "/usr/local/bin", want: "/usr/local/bin is not writable: run this as root"},
		"no such directory":    {dir: "/proc/none", want: "/proc/none cannot be created"},
	} {
		t.Run(name, func(t *testing.T) {
			server := serve(t, c.files)
			dir, tmp := t.TempDir(), t.TempDir()
			earlier := filepath.Join(dir, "ocadm")
			require.NoError(t, os.WriteFile(earlier, []byte("earlier"), 0o755))
			cmd := exec.CommandContext(t.Context(), "sh")
			cmd.Stdin = bytes.NewReader(script)
			cmd.Env = append([]string{"PATH=" + path(t, c.programs), "TMPDIR=" + tmp, "OCADM_VERSION=v9.9.9", "OCADM_URL=" + server}, c.env...)
			if c.dir == "" {
				cmd.Env = append(cmd.Env, "OCADM_INSTALL_DIR="+dir)
			} else {
				cmd.Env = append(cmd.Env, "OCADM_INSTALL_DIR="+c.dir)
				unprivileged(cmd)
			}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			err := cmd.Run()
			if (err == nil) != c.ok || !strings.Contains(stderr.String(), c.want) {
				t.Errorf("%v, want success %v and %q in\n%s", err, c.ok, c.want, stderr.String())
			}
			want := "earlier"
			if c.ok {
				want = installed
			}
			if got, err := os.ReadFile(earlier); string(got) != want {
				t.Errorf("the program is %q (error %v)", got, err)
			}
			for _, d := range []string{dir, tmp} {
				left, _ := os.ReadDir(d)
				if want := map[string]int{dir: 1, tmp: 0}[d]; len(left) != want {
					t.Errorf("%v are left in %s", left, d)
				}
			}
		})
	}
}

// A script that was cut off, as by "curl | sh", does not end with success, and leaves nothing behind.
func TestInstallCutOff(t *testing.T) {
	script, err := os.ReadFile("install.sh")
	require.NoError(t, err)
	amd64, tmp, dir := archive(t, "amd64"), t.TempDir(), t.TempDir()
	name := "ocadm-v9.9.9-linux-amd64.tar.gz"
	server := serve(t, map[string]any{"SHA256SUMS": fmt.Sprintf("%x  %s\n", sha256.Sum256(amd64), name), name: amd64})
	programs := path(t, map[string]string{"uname": `[ "$1" = -s ] && echo Linux || echo x86_64`})
	for end := bytes.Index(script, []byte("\nversion=")) + 1; end < len(script)-1; end += 1 + bytes.IndexByte(script[end:], '\n') {
		cmd := exec.CommandContext(t.Context(), "sh")
		cmd.Stdin = bytes.NewReader(script[:end])
		cmd.Env = []string{"PATH=" + programs, "TMPDIR=" + tmp, "OCADM_VERSION=v9.9.9", "OCADM_URL=" + server, "OCADM_INSTALL_DIR=" + dir}
		err := cmd.Run()
		left, _ := filepath.Glob(tmp + "/*")
		there, _ := filepath.Glob(dir + "/*")
		if err == nil || len(left)+len(there) > 0 {
			t.Fatalf("cut off before %q: %v, left %q %q", strings.SplitN(string(script[end:]), "\n", 2)[0], err, left, there)
		}
	}
}

// serve serves the files of release v9.9.9: texts, bytes and handlers.
func serve(t *testing.T, files map[string]any) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch f := files[strings.TrimPrefix(r.URL.Path, "/v9.9.9/")].(type) {
		case string:
			_, _ = w.Write([]byte(f))
		case []byte:
			_, _ = w.Write(f)
		case func(http.ResponseWriter, *http.Request):
			f(w, r)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// unprivileged makes a command run without root, which may write anywhere. It cannot access the test's directories.
func unprivileged(cmd *exec.Cmd) {
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	cmd.Dir, cmd.Env = "/", append(cmd.Env, "PATH=/usr/bin:/bin", "TMPDIR=/nonexistent")
}

func lookPath(program string) string {
	path, _ := exec.LookPath(program)
	return path
}
