// SPDX-License-Identifier: Apache-2.0

// Package support writes and reads support bundles: snapshots in a file that users can also inspect.
package support

import (
	"archive/tar"
	"bufio"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"filippo.io/age"

	"yunion.io/x/ocadm/cluster/why"
)

const (
	snapshotFile = "snapshot.json"
	reportFile   = "why.json"
	logDir       = "logs/"
	// sizeLimit bounds the unpacked size of a file, because bundles come from elsewhere.
	sizeLimit = 1 << 30
)

// ErrEncrypted is returned for a bundle that needs a key.
var ErrEncrypted = errors.New("the support bundle is encrypted")

// Write writes a snapshot and the report on it as a gzip-compressed archive: snapshot.json, why.json and logs/NAMESPACE/POD/CONTAINER.log. With
// recipients, the archive is encrypted with age.
func Write(w io.Writer, s *why.Snapshot, r why.Report, recipients ...age.Recipient) (err error) {
	if len(recipients) > 0 {
		sealed, err := age.Encrypt(w, recipients...)
		if err != nil {
			return fmt.Errorf("encrypting the support bundle: %w", err)
		}
		return cmp.Or(Write(sealed, s, r), sealed.Close()) // they return the same error
	}
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	defer func() { err = cmp.Or(err, t.Close(), z.Close()) }() // they return the same error
	add := func(name string, data []byte) error {
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(data)), ModTime: s.Time, Format: tar.FormatPAX}); err != nil {
			return fmt.Errorf("writing %s of the support bundle: %w", name, err)
		}
		_, err := t.Write(data)
		return err
	}
	for _, l := range s.Logs {
		if err := add(logFile(l), []byte(strings.Join(l.Lines, "\n")+"\n")); err != nil {
			return err
		}
	}
	without := *s
	without.Logs = nil
	for name, v := range map[string]any{snapshotFile: without, reportFile: r} {
		raw, err := json.MarshalIndent(v, "", " ")
		if err == nil {
			err = add(name, append(raw, '\n'))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func logFile(l why.Log) string {
	name := l.Container + ".log"
	if l.Previous {
		name = l.Container + ".previous.log"
	}
	return logDir + path.Join(l.Namespace, l.Pod, name)
}

// Read reads the snapshot in a support bundle. An encrypted one needs an identity.
func Read(r io.Reader, identities ...age.Identity) (*why.Snapshot, error) {
	return read(r, sizeLimit, identities...)
}

func read(r io.Reader, limit int64, identities ...age.Identity) (*why.Snapshot, error) {
	in := bufio.NewReader(r)
	head, _ := in.Peek(len(ageHead)) // a short file is no bundle
	if string(head) == ageHead {
		if len(identities) == 0 {
			return nil, ErrEncrypted
		}
		open, err := age.Decrypt(in, identities...)
		if err != nil {
			return nil, fmt.Errorf("decrypting the support bundle: %w", err)
		}
		in = bufio.NewReader(open)
	}
	z, err := gzip.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("reading the support bundle: %w", err)
	}
	unpacked := &io.LimitedReader{R: z, N: limit}
	t := tar.NewReader(unpacked)
	var s *why.Snapshot
	var logs []why.Log
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) && unpacked.N > 0 {
			break
		}
		raw, failed := io.ReadAll(t)
		if err = cmp.Or(err, failed); unpacked.N == 0 {
			err = fmt.Errorf("it is larger than %d bytes", limit)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the support bundle: %w", err)
		}
		if l, ok := logOf(h.Name, string(raw)); ok {
			logs = append(logs, l)
		}
		if h.Name == snapshotFile {
			s = &why.Snapshot{}
			if err := json.Unmarshal(raw, s); err != nil {
				return nil, fmt.Errorf("reading %s of the support bundle: %w", h.Name, err)
			}
		}
	}
	switch {
	case s == nil:
		return nil, fmt.Errorf("reading the support bundle: it has no %s", snapshotFile)
	case s.Format != why.Format:
		return nil, fmt.Errorf("reading the support bundle: it has format %d, and this ocadm reads format %d", s.Format, why.Format)
	}
	s.Logs = logs
	return s, nil
}

// ageHead begins every age file (age-encryption.org/v1).
const ageHead = "age-encryption.org/"

func logOf(name, text string) (l why.Log, ok bool) {
	rest, ok := strings.CutPrefix(name, logDir)
	parts := strings.Split(rest, "/")
	if !ok || len(parts) != 3 {
		return l, false
	}
	container := strings.TrimSuffix(parts[2], ".log")
	container, previous := strings.CutSuffix(container, ".previous")
	return why.Log{Namespace: parts[0], Pod: parts[1], Container: container, Previous: previous, Lines: strings.Split(strings.TrimSuffix(text, "\n"), "\n")}, true
}

// Name returns the default file name of a bundle.
func Name(s *why.Snapshot, encrypted bool) string {
	name := fmt.Sprintf("ocadm-support-%s-%s.tar.gz", s.Name, s.Time.UTC().Format(time.RFC3339))
	if encrypted {
		name += ".age"
	}
	return strings.ReplaceAll(name, ":", "")
}
