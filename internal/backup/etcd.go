// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"yunion.io/x/ocadm/internal/fetch"
)

// EtcdSuffix is the suffix of the name of an etcd snapshot. It lies beside a backup, has the same name apart from the suffix, and is removed with it.
// Like a backup it is an archive, compressed and encrypted; the snapshot is its only entry.
const EtcdSuffix = ".ocadm-etcd"

// etcdEntry is the suffix of the name of that entry. No entry of a backup has it.
const etcdEntry = ".db"

// ErrEtcd is returned for a snapshot of etcd where a backup of a cloud is wanted, ErrCloud for the opposite. ErrUnencrypted is returned for a
// snapshot without recipients: it has the Secrets of the whole cluster, not of one cloud.
var (
	ErrEtcd        = errors.New("the file is a snapshot of etcd, not a backup of a cloud")
	ErrCloud       = errors.New("the file is a backup of a cloud, not a snapshot of etcd")
	ErrUnencrypted = errors.New("the backups have no recipient, and snapshots of etcd are stored only encrypted")
)

// Etcd describes the snapshot of etcd beside a backup.
type Etcd struct {
	// Name is the name of the file, "" if there is none; Problem is the reason.
	Name    string `json:"name,omitempty"`
	Problem string `json:"problem,omitempty"`
	// Time and Revision are those of the snapshot.
	Time     time.Time `json:"time,omitzero"`
	Revision int64     `json:"revision,omitempty"`
	// Size and SHA256 are those of the file.
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
}

func etcdName(backup string) string { return strings.TrimSuffix(backup, Suffix) + EtcdSuffix }

func isEtcd(entry string) bool { return strings.HasSuffix(entry, etcdEntry) }

// ours reports whether a name is that of a backup or an etcd snapshot, which may be large.
func ours(name string) bool {
	return strings.HasSuffix(name, Suffix) || strings.HasSuffix(name, EtcdSuffix)
}

// StoreEtcd stores a file with a snapshot of etcd beside a backup, and reads it back to the end.
func (p *Plan) StoreEtcd(ctx context.Context, w Watcher, backup, file string) (Etcd, error) {
	if len(p.Recipients) == 0 {
		return Etcd{}, ErrUnencrypted
	}
	recipients, once, err := readable(p.Recipients)
	if err != nil {
		return Etcd{}, err
	}
	out := Etcd{Name: etcdName(backup)}
	w.Info("writing %s to %s", out.Name, p.Store)
	f, err := p.Store.Create(ctx, out.Name)
	if err != nil {
		return Etcd{}, err
	}
	defer f.Abort()
	counted, plain := &counter{w: f, sum: sha256.New()}, sha256.New()
	if err := packEtcd(ctx, counted, file, plain, recipients...); err != nil {
		return Etcd{}, err
	}
	if err := f.Commit(); err != nil {
		return Etcd{}, err
	}
	out.Size, out.SHA256 = counted.n, hex.EncodeToString(counted.sum.Sum(nil))
	back := sha256.New()
	err = ReadEtcd(ctx, w, p.Store, out.Name, func(string, int64) (io.Writer, error) { return back, nil }, once)
	if err == nil && !slices.Equal(back.Sum(nil), plain.Sum(nil)) {
		err = ErrDamaged
	}
	if err != nil {
		return Etcd{}, errors.Join(err, p.Store.Remove(context.WithoutCancel(ctx), out.Name))
	}
	return out, nil
}

func packEtcd(ctx context.Context, w io.Writer, file string, plain io.Writer, recipients ...age.Recipient) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("reading the snapshot: %w", err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return fmt.Errorf("reading the snapshot: %w", err)
	}
	layers, err := pack(w, recipients...)
	if err != nil {
		return err
	}
	h := &tar.Header{Name: filepath.Base(file), Mode: 0o600, Size: st.Size(), ModTime: st.ModTime().Truncate(time.Second), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
	if err := layers.tar.WriteHeader(h); err != nil {
		return fmt.Errorf("writing the snapshot: %w", err)
	}
	if _, err := io.Copy(io.MultiWriter(layers.tar, plain), fetch.Reader(ctx, f, nil)); err != nil {
		return fmt.Errorf("writing the snapshot: %w", err)
	}
	return layers.end()
}

// ReadEtcd reads to its end a snapshot that was stored beside a backup. into receives its name, which has no directory, and its size, and returns the
// writer for it. What is written is valid only if ReadEtcd returns no error. For a backup of a cloud it returns ErrCloud.
func ReadEtcd(ctx context.Context, w Watcher, s Store, name string, into func(name string, size int64) (io.Writer, error), ids ...age.Identity) error {
	f, err := s.Open(ctx, name)
	if err != nil {
		return err
	}
	defer f.Close()
	in := &watched{Reader: fetch.Reader(ctx, f, nil), watcher: w}
	err = unpackEtcd(in, into, ids)
	if in.failed != nil {
		err = in.failed
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return nil
}

func unpackEtcd(r io.Reader, into func(string, int64) (io.Writer, error), ids []age.Identity) error {
	layers, err := unpack(r, ids...)
	if err != nil {
		return err
	}
	defer layers.Close()
	h, err := layers.tar.Next()
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	case h.Name == headerName:
		return ErrCloud
	case !isEtcd(h.Name) || h.Name != filepath.Base(h.Name) || h.Typeflag != tar.TypeReg:
		return fmt.Errorf("%w: it begins with %q", ErrDamaged, h.Name)
	}
	to, err := into(h.Name, h.Size)
	if err != nil {
		return err
	}
	out := &target{Writer: to}
	if _, err = io.Copy(out, layers.tar); err == nil {
		err = layers.end()
	}
	if out.failed != nil {
		return out.failed
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return nil
}

// target wraps the destination: its write errors do not mean that the file is damaged.
type target struct {
	io.Writer
	failed error
}

func (t *target) Write(b []byte) (n int, err error) {
	n, err = t.Writer.Write(b)
	t.failed = err
	return n, err
}

// IsPacked reports whether a file begins like a backup, or like a snapshot stored beside one. Files written by etcd begin differently.
func IsPacked(beginning []byte) bool {
	const zstdMagic = "\x28\xb5\x2f\xfd"
	return strings.HasPrefix(string(beginning), ageIntro) || strings.HasPrefix(string(beginning), zstdMagic)
}
