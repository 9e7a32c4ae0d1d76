// SPDX-License-Identifier: Apache-2.0

//go:build linux

package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
)

// CopyIn copies a file of this host to the machine.
func (n *Node) CopyIn(ctx context.Context, hostPath, path string) error {
	f, err := os.Open(hostPath)
	if err != nil {
		return fmt.Errorf("copying to %s: %w", n.Name, err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("copying to %s: %w", n.Name, err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("copying %s to %s: not a regular file", hostPath, n.Name)
	}
	return n.Write(ctx, path, info.Mode().Perm(), f)
}

// Write atomically creates a file on the machine.
func (n *Node) Write(ctx context.Context, path string, mode os.FileMode, content io.Reader) error {
	const script = `umask 077 && mkdir -p "$(dirname "$1")" && cat >"$1.new" && chmod "$2" "$1.new" && mv -f "$1.new" "$1"`
	if err := n.Run(ctx, Streams{In: content, Err: os.Stderr}, "sh", "-c", script, "sh", path, fmt.Sprintf("%o", mode)); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

// CopyOut copies a file of the machine to this host.
func (n *Node) CopyOut(ctx context.Context, path, hostPath string) (err error) {
	f, err := os.OpenFile(hostPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("copying from %s: %w", n.Name, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := n.Run(ctx, Streams{Out: f, Err: os.Stderr}, "cat", path); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}
