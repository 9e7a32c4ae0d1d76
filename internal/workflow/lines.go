// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// AppendLine adds a line to a file (mode 0600) and waits until it is on the disk; so is the name of a new file. What a crash left of an
// earlier line is cut off. The file and its directory are made as needed.
func AppendLine(path string, line []byte) (err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	_, absent := os.Lstat(path)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	raw, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	end := int64(bytes.LastIndexByte(raw, '\n') + 1)
	if err := f.Truncate(end); err != nil {
		return err
	}
	if _, err := f.WriteAt(append(line, '\n'), end); err != nil {
		return err
	}
	if err := toDisk(f); err != nil || absent == nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(toDisk(dir), dir.Close())
}

// toDisk waits until a file or directory is on the disk; a variable for tests.
var toDisk = (*os.File).Sync

// ReadLines gives every line of a file to take. What has no end is no line: a crash cut it off, and AppendLine will. No file has no lines.
func ReadLines(path string, take func(line []byte) error) error {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	n := 0
	for line := range bytes.Lines(raw) {
		if n++; !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		if err := take(line); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return nil
}
