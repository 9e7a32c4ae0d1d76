// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/test/lab/cache"
)

// Unpack returns a directory with the files of single packages, without their dependencies and without installing them.
func Unpack(ctx context.Context, logf cache.Logf, packages ...string) (string, error) {
	key := strings.Join(packages, "+") + "-" + cache.Key(Release, runtime.GOARCH)
	return cache.Entry(ctx, "unpacked", key, logf, func(ctx context.Context, dir string) error {
		logf("unpacking the Debian packages %s", strings.Join(packages, ", "))
		download := exec.Command{
			Path: "apt-get", Dir: dir,
			Args: append([]string{"download", "--quiet", "-o", "APT::Sandbox::User=root"}, packages...),
		}
		machine := exec.Machine{}
		if _, err := machine.Run(ctx, download); err != nil {
			// A new machine has no package lists, an old one outdated ones.
			if err := update(ctx); err != nil {
				return err
			}
			if _, err := machine.Run(ctx, download); err != nil {
				return fmt.Errorf("downloading %s: %w", strings.Join(packages, ", "), err)
			}
		}
		archives, err := filepath.Glob(filepath.Join(dir, "*.deb"))
		if err != nil {
			return fmt.Errorf("listing the downloaded packages: %w", err)
		}
		for _, deb := range archives {
			if _, err := machine.Run(ctx, exec.Command{Path: "dpkg-deb", Args: []string{"--extract", deb, dir}}); err != nil {
				return fmt.Errorf("unpacking %s: %w", filepath.Base(deb), err)
			}
		}
		return nil
	})
}
