// SPDX-License-Identifier: Apache-2.0

package assemble

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/test/lab/binaries"
	"yunion.io/x/ocadm/test/lab/cache"
)

// own builds a program of this repository into the cache, always: the Go tool knows best what has changed.
func own(ctx context.Context, name, pkg, ldflags string, logf cache.Logf) (string, error) {
	checkout, err := binaries.Checkout()
	if err != nil {
		return "", err
	}
	base, err := cache.Dir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(base, "own")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("creating the cache: %w", err)
	}
	path := filepath.Join(dir, name+"-"+cache.Key(checkout))
	logf("building %s", name)
	_, err = (exec.Machine{}).Run(ctx, exec.Command{
		Path: "go", Dir: checkout,
		Args: []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", strings.TrimSpace("-s -w " + ldflags), "-o", path, pkg},
		Env:  []string{"CGO_ENABLED=0", "GOFLAGS="},
	})
	if err != nil {
		return "", fmt.Errorf("building %s: %w", name, err)
	}
	return path, nil
}
