// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/artifacts"
	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
)

// work is the directory that keeps downloads until the bundle is complete. Only one run at a time may use it.
//
//	blobs/HEX     what has arrived, by its SHA-256
//	parts/HEX     what is arriving
//	unpacked/HEX  the files of an archive
//	staging       what the bundle is written from
type work struct {
	dir    string
	unlock func()
}

func openWork(dir string) (*work, error) {
	unlock, err := workflow.Lock(filepath.Join(dir, "lock"))
	if err != nil {
		if len(finding.Of(err)) == 0 {
			err = notWritten(err)
		}
		return nil, err
	}
	w := &work{dir, unlock}
	for _, d := range []string{"blobs", "parts", "unpacked"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			w.close()
			return nil, notWritten(err)
		}
	}
	// Whatever a killed run was writing is written again.
	if err := errors.Join(os.RemoveAll(w.staging()), os.MkdirAll(w.staging(), 0o700)); err != nil {
		w.close()
		return nil, notWritten(err)
	}
	return w, nil
}

func (w *work) close()                { w.unlock() }
func (w *work) staging() string       { return filepath.Join(w.dir, "staging") }
func (w *work) blob(h v1.Hash) string { return filepath.Join(w.dir, "blobs", h.Hex) }
func (w *work) part(h v1.Hash) string { return filepath.Join(w.dir, "parts", h.Hex) }

// remove deletes the directory once nothing in it is needed any more.
func (w *work) remove() error {
	if err := os.RemoveAll(w.dir); err != nil {
		return fmt.Errorf("removing the downloads: %w", err)
	}
	return nil
}

// has reports whether an intact blob is present. A damaged one, as after a power cut, is removed.
func (w *work) has(h v1.Hash) (bool, error) {
	switch got, err := fetch.Digest(w.blob(h)); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil: // it cannot be read: downloading it again may help
		return false, errors.Join(err, os.Remove(w.blob(h)))
	case got != h.Hex:
		return false, os.Remove(w.blob(h))
	}
	return true, nil
}

// arrived returns how many bytes of a blob have been downloaded.
func (w *work) arrived(h v1.Hash) int64 {
	st, err := os.Stat(w.part(h))
	if err != nil {
		return 0
	}
	return st.Size()
}

func (w *work) unpack(a artifacts.Artifact) ([]bundle.FileSource, error) {
	h := v1.Hash{Algorithm: "sha256", Hex: a.SHA256}
	origin := &bundle.Origin{Name: a.Name, Version: a.Version, URL: a.Home, SHA256: a.SHA256}
	dir := filepath.Join(w.dir, "unpacked", h.Hex)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	in, err := os.Open(w.blob(h))
	if err != nil {
		return nil, err
	}
	var out []bundle.FileSource
	err = a.Extract(in, func(to string, in io.Reader) error {
		name := filepath.Join(dir, path.Base(to))
		out = append(out, bundle.FileSource{Path: to, Mode: 0o755, Origin: origin, Open: func() (io.ReadCloser, error) { return os.Open(name) }})
		return save(name, in)
	})
	return out, errors.Join(err, in.Close())
}

func save(name string, in io.Reader) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, in)
	return errors.Join(err, f.Close())
}
