// SPDX-License-Identifier: Apache-2.0

// Package objectstore tests backups in a bucket against a real object store.
package objectstore

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/test/child"
	"yunion.io/x/ocadm/test/lab/binaries"
	"yunion.io/x/ocadm/test/require"
)

const accessKey, secretKey = "backups", "only-a-test"

// start runs the object store on a socket, with one bucket, and returns the configuration of a client.
func start(t *testing.T) (cfg backup.S3Config, data string) {
	t.Helper()
	program, err := binaries.Path(t.Context(), "versitygw")
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "ocadm-s3-") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, data := filepath.Join(dir, "s"), filepath.Join(dir, "data")
	sidecar := filepath.Join(dir, "sidecar") // in case the file system has no extended attributes
	for _, d := range []string{filepath.Join(data, "bucket"), sidecar} {
		require.NoError(t, os.MkdirAll(d, 0o700))
	}
	cmd := exec.Command(program, "--port", socket, "--quiet", "posix", "--sidecar", sidecar, data)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY_ID="+accessKey, "ROOT_SECRET_ACCESS_KEY="+secretKey)
	cmd.Dir = dir
	p, err := child.Start(cmd, filepath.Join(dir, "log"))
	require.NoError(t, err)
	t.Cleanup(func() { p.Stop(20 * time.Second) })
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	for {
		c, err := net.Dial("unix", socket)
		if err == nil {
			_ = c.Close()
			break
		}
		select {
		case <-p.Exited:
			t.Fatalf("the object store ended: %s", p.Output())
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return backup.S3Config{Endpoint: "localhost:7070", Plain: true, Region: "us-east-1", Bucket: "bucket", Prefix: "clouds/a", AccessKey: accessKey, SecretKey: secretKey,
		Transport: transport}, data
}

func put(t *testing.T, s backup.Store, name string, content []byte) {
	t.Helper()
	f, err := s.Create(t.Context(), name)
	require.NoError(t, err)
	if _, err := io.Copy(f, bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, f.Commit())
	f.Abort() // has no effect any more
}

func TestStore(t *testing.T) {
	if os.Getenv("OCADM_TEST_REQUIRE") != "1" {
		t.Skip("the object store is built for OCADM_TEST_REQUIRE=1 only")
	}
	cfg, data := start(t)
	s, err := backup.NewS3(t.Context(), cfg)
	require.NoError(t, err)
	large := make([]byte, 70<<20) // three parts
	if _, err := rand.Read(large); err != nil {
		t.Fatal(err)
	}
	put(t, s, "b"+backup.Suffix, large)
	put(t, s, "a"+backup.Suffix, []byte("small"))
	cfg.Prefix = "clouds/ab" // not a part of the other prefix
	other, err := backup.NewS3(t.Context(), cfg)
	require.NoError(t, err)
	put(t, other, "c"+backup.Suffix, nil)

	names, err := s.Names(t.Context())
	if want := []string{"a" + backup.Suffix, "b" + backup.Suffix}; err != nil || !slices.Equal(names, want) {
		t.Errorf("%v %v", names, err)
	}
	r, err := s.Open(t.Context(), "b"+backup.Suffix)
	require.NoError(t, err)
	got, err := io.ReadAll(r)
	if err := errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, large) {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	if _, err := s.Open(t.Context(), "none"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}

	f, err := s.Create(t.Context(), "half"+backup.Suffix)
	require.NoError(t, err)
	if _, err := f.Write(large[:40<<20]); err != nil {
		t.Fatal(err)
	}
	f.Abort()
	if err := s.Clean(t.Context(), "half"); err != nil {
		t.Error(err)
	}
	if left := uploads(t, data); len(left) > 0 {
		t.Errorf("an upload that was not finished is left: %v", left)
	}

	for range 2 { // deleting a missing one succeeds
		if err := s.Remove(t.Context(), "a"+backup.Suffix); err != nil {
			t.Error(err)
		}
	}
	if names, err := s.Names(t.Context()); err != nil || len(names) != 1 {
		t.Errorf("%v %v", names, err)
	}
}

// uploads returns the large files below a directory that are not objects.
func uploads(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, backup.Suffix) {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > 1<<20 {
			out = append(out, path)
		}
		return err
	})
	require.NoError(t, err)
	return out
}

func TestRefusals(t *testing.T) {
	if os.Getenv("OCADM_TEST_REQUIRE") != "1" {
		t.Skip("the object store is built for OCADM_TEST_REQUIRE=1 only")
	}
	cfg, _ := start(t)
	wrong := cfg
	wrong.SecretKey = "another"
	if _, err := backup.NewS3(t.Context(), wrong); err == nil || strings.Contains(err.Error(), "another") {
		t.Errorf("a wrong key: %v", err)
	}
	wrong = cfg
	wrong.Bucket = "nowhere"
	if _, err := backup.NewS3(t.Context(), wrong); err == nil || !strings.Contains(err.Error(), "create it first") {
		t.Errorf("a missing bucket: %v", err)
	}
}
