// SPDX-License-Identifier: Apache-2.0

package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/test/lab/cache"
)

// hostPrograms are the programs that the lab and the tests run on this machine, with their packages. An existing program is enough.
var hostPrograms = []struct{ program, pkg string }{
	{"runc", "runc"},
	{"mmdebstrap", "mmdebstrap"},
	{"gcc", "gcc"},
	{"gpgv", "gpgv"},
	{"iptables", "iptables"},
	{"ip", "iproute2"},
	{"mariadbd", "mariadb-server"},
	{"chromium-headless-shell", "chromium-headless-shell"}, // the browser of TestPage
}

var hostFiles = []struct{ file, pkg string }{
	{keyring, "debian-archive-keyring"},
	{"/usr/include/stdlib.h", "libc6-dev"},
	{"/usr/include/seccomp.h", "libseccomp-dev"}, // runc links it
}

const (
	policyFile = "/usr/sbin/policy-rc.d"
	policyText = "#!/bin/sh\n# ocadm lab: nothing is started while the lab installs packages; it removes this file afterwards.\nexit 101\n"
)

// Prepare installs the Debian packages that the lab needs on this machine, without starting their services. It does nothing if all are installed.
func Prepare(ctx context.Context, logf cache.Logf) error {
	if _, err := os.Stat("/usr/bin/apt-get"); err != nil {
		return errors.New("the lab installs what it needs by apt, which is not on this machine: it needs Debian 12")
	}
	missing := missingPackages()
	if len(missing) == 0 {
		return nil
	}
	if os.Geteuid() != 0 {
		return fmt.Errorf("the lab needs the packages %s: run it as root, or install them", strings.Join(missing, ", "))
	}
	lock, err := cache.Lock(ctx, filepath.Join(os.TempDir(), "ocadm-lab-apt.lock"), func() {
		logf("waiting for another run that installs packages")
	})
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if missing = missingPackages(); len(missing) == 0 {
		return nil
	}
	logf("installing on this machine, without starting anything: %s", strings.Join(missing, " "))
	release, err := holdServices()
	if err != nil {
		return err
	}
	err = install(ctx, missing)
	return errors.Join(err, release())
}

func missingPackages() []string {
	missing := lists.Pick(hostPrograms, func(p struct{ program, pkg string }) (string, bool) { return p.pkg, !inPath(p.program) })
	return append(missing, lists.Pick(hostFiles, func(f struct{ file, pkg string }) (string, bool) {
		_, err := os.Stat(f.file)
		return f.pkg, err != nil
	})...)
}

// inPath searches PATH and the directories of root's programs.
func inPath(program string) bool {
	dirs := append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/sbin", "/usr/bin", "/bin")
	return slices.ContainsFunc(dirs, func(dir string) bool {
		info, err := os.Stat(filepath.Join(dir, program))
		return err == nil && info.Mode().IsRegular()
	})
}

// holdServices keeps package scripts from starting daemons. It leaves an existing policy unchanged.
func holdServices() (func() error, error) {
	old, err := os.ReadFile(policyFile)
	switch {
	case err == nil && string(old) != policyText:
		return func() error { return nil }, nil
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("reading %s: %w", policyFile, err)
	}
	if err := os.WriteFile(policyFile, []byte(policyText), 0o755); err != nil { //nolint:gosec // package scripts execute it
		return nil, fmt.Errorf("holding back services: %w", err)
	}
	return func() error { return os.Remove(policyFile) }, nil
}

func install(ctx context.Context, packages []string) error {
	if err := update(ctx); err != nil {
		return err
	}
	args := append([]string{"install", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"}, packages...)
	if _, err := (exec.Machine{}).Run(ctx, exec.Command{Path: "apt-get", Args: args, Env: []string{"DEBIAN_FRONTEND=noninteractive"}}); err != nil {
		return fmt.Errorf("installing %s: %w", strings.Join(packages, ", "), err)
	}
	return nil
}

func update(ctx context.Context) error {
	if _, err := (exec.Machine{}).Run(ctx, exec.Command{Path: "apt-get", Args: []string{"update", "--quiet"}}); err != nil {
		return fmt.Errorf("updating apt's package lists: %w", err)
	}
	return nil
}
