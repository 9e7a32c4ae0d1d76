// SPDX-License-Identifier: Apache-2.0

// Package artifactstest makes small downloads for tests of code that downloads artifacts.
package artifactstest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/artifacts"
)

// Plugins are the programs in the archive of CNI plugins.
var Plugins = []string{"bridge", "host-local", "loopback", "portmap"}

// Release returns downloads for everything that a Kubernetes version needs on the given architectures, by path on a mirror ("/HOST/PATH"), and the
// embedded table with their digests. The content of a program is "new NAME", followed by the architecture if there are several.
func Release(t *testing.T, kubernetes string, archs ...string) (pages map[string][]byte, table []byte) {
	t.Helper()
	real, err := artifacts.Parse(artifacts.Embedded)
	if err != nil {
		t.Fatal(err)
	}
	pages = map[string][]byte{}
	for i := range real {
		real[i].SHA256 = map[string]map[string]string{}
	}
	for _, arch := range archs {
		suffix := ""
		if len(archs) > 1 {
			suffix = " " + arch
		}
		for i, a := range real.Of(kubernetes, arch, "") {
			data := download(t, a, suffix)
			pages["/"+strings.TrimPrefix(a.URL, "https://")] = data
			if real[i].SHA256[a.Version] == nil {
				real[i].SHA256[a.Version] = map[string]string{}
			}
			real[i].SHA256[a.Version][arch] = Sum(data)
		}
	}
	table, err = yaml.Marshal(real)
	if err != nil {
		t.Fatal(err)
	}
	return pages, table
}

func download(t *testing.T, a artifacts.Artifact, suffix string) []byte {
	t.Helper()
	files := map[string]string{"LICENSE/x": "no", "../../etc/passwd": "no", "bin/other": "no"}
	switch {
	case a.Dir != "":
		for _, n := range Plugins {
			files["./"+n] = "new " + n + suffix
		}
	case a.Files != nil:
		for n := range a.Files {
			files[n] = "new " + path.Base(n) + suffix
		}
	default:
		return []byte("new " + a.Name + suffix)
	}
	return archive(t, files)
}

// Sum returns the SHA-256 in hexadecimal digits.
func Sum(b []byte) string {
	return fmt.Sprintf("%x", sha256.Sum256(b))
}

func archive(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	for _, n := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: n, Mode: 0o755, Size: int64(len(files[n]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[n]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
