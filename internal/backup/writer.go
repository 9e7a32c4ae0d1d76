// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"yunion.io/x/ocadm/internal/mysql/dump"
)

// packer holds the layers of a file: an archive that is compressed, and may be encrypted.
type packer struct {
	tar     *tar.Writer
	closers []io.Closer
}

// pack starts a file. Without recipients it is not encrypted.
func pack(w io.Writer, recipients ...age.Recipient) (packer, error) {
	var out packer
	if len(recipients) > 0 {
		sealed, err := age.Encrypt(w, recipients...)
		if err != nil {
			return out, fmt.Errorf("encrypting: %w", err)
		}
		out.closers = append(out.closers, sealed)
		w = sealed
	}
	packed, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		return out, fmt.Errorf("compressing: %w", err)
	}
	out.closers = append(out.closers, packed)
	out.tar = tar.NewWriter(packed)
	return out, nil
}

// end closes the layers, which writes what they still hold.
func (p packer) end() error {
	err := p.tar.Close()
	for i := len(p.closers) - 1; i >= 0; i-- {
		err = errors.Join(err, p.closers[i].Close())
	}
	if err != nil {
		return fmt.Errorf("finishing the file: %w", err)
	}
	return nil
}

// Writer writes a backup, from its header to its manifest.
type Writer struct {
	packer
	time    time.Time
	entries []Entry
	// table is the current table, and rows the number of its current piece.
	table string
	rows  int
}

// NewWriter starts a backup. Without recipients it is not encrypted.
func NewWriter(w io.Writer, h Header, recipients ...age.Recipient) (*Writer, error) {
	layers, err := pack(w, recipients...)
	if err != nil {
		return nil, err
	}
	out := &Writer{packer: layers, time: h.Time.Truncate(time.Second)}
	h.Format = Format
	text, err := json.MarshalIndent(h, "", "  ")
	if err != nil {
		return nil, err
	}
	return out, out.add(headerName, text, "")
}

func (w *Writer) Object(o Object) error {
	return w.add(path.Join(objectsDir, escape(o.Kind), escape(o.Name)+".json"), o.JSON, "")
}

func (w *Writer) Piece(p dump.Piece) error {
	if key := p.Database + "\x00" + p.Name; p.Kind == dump.Rows && key == w.table {
		w.rows++
	} else {
		w.table, w.rows = key, 0
	}
	if p.Kind == dump.Rows {
		return w.add(pieceName(p, w.rows), p.SQL, "")
	}
	var setup strings.Builder
	for _, s := range p.Setup {
		setup.WriteString(s + ";\n")
	}
	text := setup.String() + string(p.SQL) + ";\n"
	return w.add(pieceName(p, 0), []byte(text), strconv.Itoa(setup.Len()))
}

// Close finishes the backup with its manifest.
func (w *Writer) Close(m Manifest) error {
	m.Entries = w.entries
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := w.add(manifestName, text, ""); err != nil {
		return err
	}
	return w.end()
}

func (w *Writer) add(name string, content []byte, setup string) error {
	h := &tar.Header{Name: name, Mode: 0o600, Size: int64(len(content)), ModTime: w.time, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
	if setup != "" {
		h.PAXRecords = map[string]string{setupRecord: setup}
	}
	err := w.tar.WriteHeader(h)
	if err == nil {
		_, err = w.tar.Write(content)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	w.entries = append(w.entries, Entry{Name: name, Size: h.Size, SHA256: digest(content)})
	return nil
}
