// SPDX-License-Identifier: Apache-2.0

package images

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/test/lab/cache"
)

// epoch is the modification time of everything in an image.
var epoch = time.Unix(1577836800, 0).UTC()

// entry is one path of a layer: a directory, a link, a text or a copy of a file of this host.
type entry struct {
	Path string
	Mode fs.FileMode
	UID  int
	// At most one of these is set; none means a directory.
	Text, Link, Source string
}

// entriesLayer makes a layer of these entries and their parent directories.
func entriesLayer(ctx context.Context, name string, logf cache.Logf, entries []entry) (v1.Layer, error) {
	write := func(to io.Writer) error {
		t := tar.NewWriter(to)
		return errors.Join(writeEntries(t, entries), t.Close())
	}
	h := sha256.New()
	if err := write(h); err != nil {
		return nil, fmt.Errorf("reading the files of the layer %q: %w", name, err)
	}
	return newLayer(ctx, name, hex.EncodeToString(h.Sum(nil))[:16], logf, write)
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

// treeLayer makes a layer of a whole directory, with owners and modes, sorted by name. Additional names of a file become hard links. The key
// identifies the directory's content.
func treeLayer(ctx context.Context, name, key string, logf cache.Logf, root string) (v1.Layer, error) {
	return newLayer(ctx, name, key, logf, func(to io.Writer) error {
		var complaints bytes.Buffer
		pack := exec.CommandContext(ctx, "tar", "--create", "--directory="+root, "--sort=name", "--numeric-owner",
			fmt.Sprintf("--mtime=@%d", epoch.Unix()), "--format=pax", "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime", ".")
		pack.Stdout, pack.Stderr = to, &complaints
		if err := pack.Run(); err != nil {
			return fmt.Errorf("packing %s: %w: %s", root, err, complaints.String())
		}
		return nil
	})
}
