// SPDX-License-Identifier: Apache-2.0

package assemble

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/test/lab/binaries"
	"yunion.io/x/ocadm/test/lab/cache"
)

// fakecloud builds the stand-in of this repository into the cache. It always calls the Go tool, which has its own cache.
func fakecloud(ctx context.Context, logf cache.Logf) (string, error) {
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
	path := filepath.Join(dir, "fakecloud-"+cache.Key(checkout))
	logf("building fakecloud")
	_, err = (exec.Machine{}).Run(ctx, exec.Command{
		Path: "go", Dir: checkout,
		Args: []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", path, "./test/fakecloud"},
		Env:  []string{"CGO_ENABLED=0", "GOFLAGS="},
	})
	if err != nil {
		return "", fmt.Errorf("building fakecloud: %w", err)
	}
	return path, nil
}
