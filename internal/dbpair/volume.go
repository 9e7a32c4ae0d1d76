// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"yunion.io/x/ocadm/internal/disk"
)

// Files holds the paths of a server's files.
type Files struct {
	// Dir is the volume, which holds the data directory, and Socket the Unix socket of the server.
	Dir, Socket string
	// CA, Certificate and Key are written by the agent.
	CA, Certificate, Key string
}

// data is the data directory, complete a file that exists while data is a complete copy, and kept the former data directory of a server that was
// copied again. keeping exists in place of complete while data is being renamed to kept.
func (f Files) data() string     { return filepath.Join(f.Dir, "data") }
func (f Files) complete() string { return filepath.Join(f.Dir, "complete") }
func (f Files) kept() string     { return filepath.Join(f.Dir, "data.kept") }
func (f Files) keeping() string  { return filepath.Join(f.Dir, "keeping") }

// memory returns the file with the latest record that the server has seen.
func (f Files) memory() string { return filepath.Join(f.Dir, "primary.json") }

// confirm marks the volume as a complete copy.
func (f Files) confirm() error {
	err := os.WriteFile(f.complete(), nil, 0o600)
	if err == nil {
		err = disk.Sync(f.Dir)
	}
	if err != nil {
		return fmt.Errorf("marking the copy as complete: %w", err)
	}
	return nil
}

// empty creates a new data directory. It keeps a complete copy beside it until the next time.
func (f Files) empty(ctx context.Context, p Programs) error {
	if err := f.keep(); err != nil {
		return fmt.Errorf("keeping the server's earlier data: %w", err)
	}
	if err := os.RemoveAll(f.data()); err != nil {
		return fmt.Errorf("emptying the data directory: %w", err)
	}
	//nolint:gosec // the program is from the image
	cmd := exec.CommandContext(ctx, p.Install[0], append(append([]string{}, p.Install[1:]...), "--datadir="+f.data())...)
	if out, err := cmd.CombinedOutput(); err != nil {
		_, _ = p.Output.Write(out)
		return fmt.Errorf("creating a data directory: %w", err)
	}
	return nil
}

// keep moves a complete copy aside. It renames the mark first: the pod creates an empty data directory if there is none, and that must not pass for a copy.
func (f Files) keep() error {
	if exists(f.complete()) {
		if err := os.RemoveAll(f.kept()); err != nil {
			return err
		}
		if err := os.Rename(f.complete(), f.keeping()); err != nil {
			return err
		}
	}
	if !exists(f.keeping()) {
		return nil
	}
	if !exists(f.kept()) {
		if err := os.Rename(f.data(), f.kept()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return os.Remove(f.keeping())
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}
