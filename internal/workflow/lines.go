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

// AppendLine appends a line to a file (mode 0600) and syncs it to disk, including the directory entry of a new file. It cuts off a partial line left by
// a crash, and creates the file and its directory as needed.
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

// toDisk syncs a file or directory to disk; a variable for tests.
var toDisk = (*os.File).Sync

// ReadLines calls take for every line of a file. It ignores an unterminated last line, which a crash left. A missing file has no lines.
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
