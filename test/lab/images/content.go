// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/test/lab/cache"
)

// epoch is the time of everything in an image.
var epoch = time.Unix(1577836800, 0).UTC()

// entry is one path of a layer: a directory, a link, a text or a file of this host.
type entry struct {
	Path string
	Mode fs.FileMode
	UID  int
	// Exactly one of these; none means a directory.
	Text, Link, Source string
}

// entriesLayer makes a layer of these entries. Parent directories are added.
func entriesLayer(ctx context.Context, name string, logf cache.Logf, entries []entry) (v1.Layer, error) {
	h := sha256.New()
	for _, e := range entries {
		_, _ = h.Write(fmt.Appendf(nil, "%q %o %d %q %q\n", e.Path, e.Mode, e.UID, e.Text, e.Link))
		if e.Source == "" {
			continue
		}
		f, err := os.Open(e.Source)
		if err != nil {
			return nil, fmt.Errorf("reading a file of the layer %q: %w", name, err)
		}
		_, err = io.Copy(h, f)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("reading a file of the layer %q: %w", name, err)
		}
	}
	key := hex.EncodeToString(h.Sum(nil))[:16]
	return newLayer(ctx, name, key, logf, func(t *tar.Writer) error { return writeEntries(t, entries) })
}

func writeEntries(t *tar.Writer, entries []entry) error {
	written := map[string]bool{".": true}
	for _, e := range entries {
		if err := writeParents(t, path.Dir(e.Path), written); err != nil {
			return err
		}
		if err := writeEntry(t, e); err != nil {
			return fmt.Errorf("writing %s: %w", e.Path, err)
		}
		written[e.Path] = true
	}
	return nil
}

func writeParents(t *tar.Writer, dir string, written map[string]bool) error {
	if written[dir] {
		return nil
	}
	if err := writeParents(t, path.Dir(dir), written); err != nil {
		return err
	}
	written[dir] = true
	return writeEntry(t, entry{Path: dir, Mode: 0o755})
}

func writeEntry(t *tar.Writer, e entry) error {
	header := &tar.Header{Name: e.Path, Mode: int64(e.Mode), Uid: e.UID, Gid: e.UID, ModTime: epoch, Format: tar.FormatPAX}
	var content io.Reader
	switch {
	case e.Link != "":
		header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, e.Link, 0o777
	case e.Text != "":
		header.Typeflag, header.Size, content = tar.TypeReg, int64(len(e.Text)), strings.NewReader(e.Text)
	case e.Source != "":
		f, err := os.Open(e.Source)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		header.Typeflag, header.Size, content = tar.TypeReg, info.Size(), f
	default:
		header.Typeflag, header.Name = tar.TypeDir, e.Path+"/"
	}
	if err := t.WriteHeader(header); err != nil || content == nil {
		return err
	}
	_, err := io.Copy(t, content)
	return err
}

// treeLayer makes a layer of a whole directory, with owners and modes, in the order of the names. The key stands for the
// directory's content.
func treeLayer(ctx context.Context, name, key string, logf cache.Logf, root string) (v1.Layer, error) {
	return newLayer(ctx, name, key, logf, func(t *tar.Writer) error {
		var paths []string
		err := filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
			if p != root {
				paths = append(paths, p)
			}
			return err
		})
		if err != nil {
			return err
		}
		sort.Strings(paths)
		seen := map[uint64]string{}
		for _, p := range paths {
			if err := writeFileOf(t, root, p, seen); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeFileOf writes one path of a tree. Further names of a file that was written already become hard links.
func writeFileOf(t *tar.Writer, root, p string, seen map[uint64]string) error {
	info, err := os.Lstat(p)
	if err != nil {
		return err
	}
	if !info.IsDir() && !info.Mode().IsRegular() && info.Mode()&fs.ModeSymlink == 0 {
		return nil // devices and sockets are no content
	}
	target := ""
	if info.Mode()&fs.ModeSymlink != 0 {
		if target, err = os.Readlink(p); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	rel, err := filepath.Rel(root, p)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("reading the owner of %s: not there", rel)
	}
	header = &tar.Header{
		Typeflag: header.Typeflag, Name: rel, Linkname: target, Mode: header.Mode, Size: header.Size,
		Uid: int(stat.Uid), Gid: int(stat.Gid), ModTime: epoch, Format: tar.FormatPAX,
	}
	if info.IsDir() {
		header.Name += "/"
	}
	if first, linked := seen[stat.Ino]; linked && info.Mode().IsRegular() {
		header.Typeflag, header.Linkname, header.Size = tar.TypeLink, first, 0
		return t.WriteHeader(header)
	}
	if err := t.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
		return err
	}
	seen[stat.Ino] = rel
	f, err := os.Open(p)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = io.Copy(t, f)
	return err
}
