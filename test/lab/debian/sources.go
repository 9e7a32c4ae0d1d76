// SPDX-License-Identifier: Apache-2.0

// Package debian makes file systems from the Debian packages that this machine's apt is configured for: the root of machines, image layers, and
// single programs. On this machine it installs only programs that the lab itself runs (Prepare).
package debian

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"yunion.io/x/ocadm/internal/exec"
)

// Release is the Debian release of the images, and the default for machines.
const Release = "bookworm"

// Releases returns the releases that a machine can run: Debian 11, 12 and 13.
func Releases() []string { return []string{"bullseye", Release, "trixie"} }

// keyring is where Debian's own package installs it.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

var errNoSources = errors.New("this machine's apt has no source for Debian " + Release +
	": the lab needs Debian 12, or its \"main\" component in /etc/apt")

// sources returns the apt sources of a release, one line each as in sources.list: this machine's own, with their release replaced.
func sources(ctx context.Context, run exec.Runner, release string) ([]string, error) {
	r, err := run.Run(ctx, exec.Command{
		Path: "apt-get", Args: []string{"indextargets", "--format", "$(CREATED_BY) $(SITE) $(RELEASE) $(COMPONENT)"},
	})
	if err != nil {
		return nil, fmt.Errorf("reading this machine's apt sources: %w", err)
	}
	lines := parseTargets(r.Stdout)
	if len(lines) == 0 {
		return nil, errNoSources
	}
	for i, line := range lines {
		lines[i] = strings.Replace(line, " "+Release, " "+release, 1)
	}
	return lines, nil
}

// parseTargets returns the package indexes of the release's main component.
func parseTargets(out string) []string {
	var lines []string
	seen := map[string]bool{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) != 4 || f[0] != "Packages" || f[3] != "main" || seen[line] {
			continue
		}
		if f[2] != Release && !strings.HasPrefix(f[2], Release+"-") {
			continue
		}
		seen[line] = true
		lines = append(lines, fmt.Sprintf("deb [signed-by=%s] %s %s %s", keyring, f[1], f[2], f[3]))
	}
	return lines
}

// acquireOptions returns the options with which this machine's apt reaches its sources: proxies, certificates, tolerance for dates.
func acquireOptions(ctx context.Context, run exec.Runner) (string, error) {
	r, err := run.Run(ctx, exec.Command{Path: "apt-config", Args: []string{"dump", "--no-empty"}})
	if err != nil {
		return "", fmt.Errorf("reading apt's configuration: %w", err)
	}
	return filterAcquire(r.Stdout), nil
}

func filterAcquire(dump string) string {
	var b strings.Builder
	for line := range strings.Lines(dump) {
		if strings.HasPrefix(line, "Acquire::") && !strings.HasPrefix(line, "Acquire::IndexTargets") &&
			!strings.HasPrefix(line, "Acquire::Gzip") && !strings.HasPrefix(line, "Acquire::CompressionTypes") {
			b.WriteString(line)
		}
	}
	b.WriteString("Acquire::Languages \"none\";\n")
	return b.String()
}

// optionsFile writes the apt options to a temporary file for mmdebstrap. They may contain a proxy's password.
func optionsFile(ctx context.Context, run exec.Runner) (string, error) {
	options, err := acquireOptions(ctx, run)
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp("", "ocadm-lab-apt-*.conf")
	if err != nil {
		return "", fmt.Errorf("creating a file for apt's options: %w", err)
	}
	_, err = f.WriteString(options)
	return f.Name(), errors.Join(err, f.Close())
}
