// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"archive/tar"
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"yunion.io/x/ocadm/internal/mysql/dump"
)

// ErrDamaged is returned for a file that was cut off or changed.
var ErrDamaged = errors.New("the file is damaged or incomplete")

// ErrEncrypted is returned for an encrypted file without a matching key.
var ErrEncrypted = errors.New("the file is encrypted, and no given key decrypts it")

// maxEntry limits what is held in memory: a row of a table has 1 GiB at most.
const maxEntry = 5 << 28

// Reader reads a backup once, from beginning to end.
type Reader struct {
	Header Header
	// Manifest is set once Next has returned io.EOF.
	Manifest Manifest

	unpacker
	entries []Entry
}

// unpacker holds the layers of a file: an archive that is compressed, and may be encrypted.
type unpacker struct {
	all  io.Reader
	tar  *tar.Reader
	zstd *zstd.Decoder
}

// Item is an object or a piece of a dump.
type Item struct {
	Object *Object
	Piece  *dump.Piece
}

const ageIntro = "age-encryption.org/"

// unpack opens the layers of a file.
func unpack(r io.Reader, ids ...age.Identity) (unpacker, error) {
	buffered := bufio.NewReaderSize(r, 1<<20)
	r = buffered
	if intro, _ := buffered.Peek(len(ageIntro)); string(intro) == ageIntro {
		if len(ids) == 0 {
			return unpacker{}, ErrEncrypted
		}
		plain, err := age.Decrypt(r, ids...)
		if none := (*age.NoIdentityMatchError)(nil); errors.As(err, &none) {
			return unpacker{}, ErrEncrypted
		}
		if err != nil {
			return unpacker{}, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		r = plain
	}
	z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		return unpacker{}, err
	}
	return unpacker{all: r, zstd: z, tar: tar.NewReader(z)}, nil
}

// Close frees the resources of the layers; the underlying file stays open.
func (u unpacker) Close() { u.zstd.Close() }

// end reads to the last byte, where the encryption proves that nothing is missing. It returns an error if another entry follows.
func (u unpacker) end() error {
	if h, err := u.tar.Next(); err == nil {
		return fmt.Errorf("entry %q follows the last one", h.Name)
	} else if !errors.Is(err, io.EOF) {
		return err
	}
	for _, rest := range []io.Reader{u.zstd, u.all} {
		if n, err := io.Copy(io.Discard, rest); err != nil {
			return err
		} else if n > 0 && rest == u.all {
			return fmt.Errorf("%d bytes follow the end", n)
		}
	}
	return nil
}

// Open reads the header. It returns ErrEtcd for a snapshot of etcd.
func Open(r io.Reader, ids ...age.Identity) (*Reader, error) {
	layers, err := unpack(r, ids...)
	if err != nil {
		return nil, err
	}
	out := &Reader{unpacker: layers}
	name, content, _, err := out.entry()
	if errors.Is(err, ErrEtcd) {
		out.Close()
		return nil, err
	}
	if err == nil && name != headerName {
		err = fmt.Errorf("it begins with %q", name)
	}
	if err == nil {
		err = json.Unmarshal(content, &out.Header)
	}
	if err != nil {
		out.Close()
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if out.Header.Format != Format {
		out.Close()
		return nil, fmt.Errorf("the file has format %d, this program reads %d: use the ocadm that wrote it (%s), or a later one", out.Header.Format, Format, out.Header.Ocadm)
	}
	return out, nil
}

// Next returns the next object or piece. At the end it checks the manifest and returns io.EOF.
func (r *Reader) Next() (Item, error) {
	name, content, setup, err := r.entry()
	if err != nil {
		return Item{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	switch {
	case name == manifestName:
		if err := r.compare(content); err != nil {
			return Item{}, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return Item{}, io.EOF
	case strings.HasPrefix(name, objectsDir+"/"):
		parts := strings.Split(strings.TrimSuffix(name, ".json"), "/")
		if len(parts) != 3 {
			return Item{}, fmt.Errorf("%w: entry %q", ErrDamaged, name)
		}
		kind, err := url.PathUnescape(parts[1])
		object, err2 := url.PathUnescape(parts[2])
		if err := errors.Join(err, err2); err != nil {
			return Item{}, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return Item{Object: &Object{Kind: kind, Name: object, JSON: content}}, nil
	}
	p, err := parsePiece(name)
	if err != nil {
		return Item{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	p.SQL = content
	if p.Kind != dump.Rows {
		if setup < 0 || setup > len(content) {
			return Item{}, fmt.Errorf("%w: entry %q", ErrDamaged, name)
		}
		for line := range bytes.Lines(content[:setup]) {
			p.Setup = append(p.Setup, string(bytes.TrimSuffix(line, []byte(";\n"))))
		}
		p.SQL = bytes.TrimSuffix(content[setup:], []byte(";\n"))
	}
	return Item{Piece: &p}, nil
}

// entry reads one whole entry. The end of the archive is an error, because the manifest comes before it.
func (r *Reader) entry() (name string, content []byte, setup int, err error) {
	h, err := r.tar.Next()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return "", nil, 0, err
	}
	if isEtcd(h.Name) {
		return "", nil, 0, ErrEtcd
	}
	if h.Size > maxEntry {
		return "", nil, 0, fmt.Errorf("entry %q has %d bytes", h.Name, h.Size)
	}
	content = make([]byte, h.Size)
	if _, err := io.ReadFull(r.tar, content); err != nil {
		return "", nil, 0, err
	}
	if n := h.PAXRecords[setupRecord]; n != "" {
		if setup, err = strconv.Atoi(n); err != nil {
			return "", nil, 0, err
		}
	}
	if h.Name != manifestName {
		r.entries = append(r.entries, Entry{Name: h.Name, Size: h.Size, SHA256: digest(content)})
	}
	return h.Name, content, setup, nil
}

// compare reads to the end, and compares the entries with those of the manifest.
func (r *Reader) compare(manifest []byte) error {
	if err := json.Unmarshal(manifest, &r.Manifest); err != nil {
		return err
	}
	if err := r.end(); err != nil {
		return err
	}
	if !slices.Equal(r.entries, r.Manifest.Entries) {
		return errors.New("its entries do not match its manifest")
	}
	return nil
}
