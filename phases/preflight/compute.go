// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/compute"
	"yunion.io/x/ocadm/phases/config"
)

// leastImageSpace is the free space, in bytes, below which the host agent rejects a directory for disks (cloudpods, pkg/hostman/storageman).
const leastImageSpace = 128 * mib

// computeChecks check what only a node with virtual machines needs.
func computeChecks() []Check {
	onCompute := func(_ Kind, c *config.Config) bool { return c.Node.EnableHostAgent }
	return []Check{
		{Name: compute.CheckPrograms, Short: "programs that virtual machines need are installed (with --enable-host-agent)", Applies: onCompute,
			Codes: []string{compute.CodeProgram, compute.CodeOptionalProgram},
			run:   func(_ context.Context, m *machine) []finding.Finding { return compute.Programs(m.h) }},
		{Name: compute.CheckModules, Short: "the kernel has what virtual machines need (with --enable-host-agent)", Applies: onCompute,
			Codes: []string{compute.CodeModule, compute.CodeOptionalModule},
			run:   func(_ context.Context, m *machine) []finding.Finding { return compute.Modules(m.h) }},
		{Name: compute.CheckSwitch, Short: "no other Open vSwitch runs (with --enable-host-agent)", Applies: onCompute,
			Codes: []string{compute.CodeSwitchService},
			run:   func(ctx context.Context, m *machine) []finding.Finding { return compute.SwitchService(ctx, m.h) }},
		{Name: compute.CheckExecutor, Short: "an executor that is already installed does not end virtual machines when it restarts (with --enable-host-agent)", Applies: onCompute,
			Codes: []string{compute.CodeKillMode},
			run:   func(ctx context.Context, m *machine) []finding.Finding { return compute.ForeignExecutor(ctx, m.h) }},
		{Name: compute.CheckNetworks, Short: "the networks of host.conf fit the machine (with --enable-host-agent)", Applies: onCompute,
			Codes: []string{compute.CodeNetwork, compute.CodeNetworkRisk, compute.CodeListenInterface, compute.CodeHostName, compute.CodeRegistration},
			run: func(_ context.Context, m *machine) []finding.Finding {
				out := append(compute.HostNetworks(m.h), compute.HostName(m.h)...)
				if m.kind == Join { // init's cloud has no network yet; init ends with the commands for it
					out = append(out, compute.Registration(m.h)...)
				}
				return out
			}},
		{Name: compute.CheckStorage, Short: "directories of disks and huge pages exist (with --enable-host-agent)", Applies: onCompute,
			Codes: []string{compute.CodeImagePath, compute.CodeHugepages}, run: checkComputeStorage},
	}
}

func checkComputeStorage(_ context.Context, m *machine) []finding.Finding {
	var out []finding.Finding
	paths := m.h.Config.Node.HostLocalImagePath
	if len(paths) == 0 {
		paths = []string{compute.DefaultImagePath}
	}
	for _, p := range paths {
		if f := m.imagePath(p); f != nil {
			out = append(out, *f)
		}
	}
	const pages = "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages"
	if n := strings.TrimSpace(m.h.Files.Text(pages)); m.h.Config.Node.Hugepages == "native" && (n == "" || n == "0") {
		out = append(out, finding.New(compute.CodeHugepages, "No huge pages are reserved", "--hugepages native needs pages of 1 GiB, and "+pages+" is "+cmp.Or(n, "missing"),
			"add to the kernel command line: default_hugepagesz=1G hugepagesz=1G hugepages=NUMBER, and restart the machine; or omit --hugepages"))
	}
	return out
}

// imagePath checks a directory for disks. ocadm creates the default; any other must exist, because a disk that is not mounted would otherwise only be
// noticed when the root file system is full.
func (m *machine) imagePath(p string) *finding.Finding {
	fail := func(cause, remedy string) *finding.Finding {
		f := finding.New(compute.CodeImagePath, "Disks of virtual machines cannot be in "+p, cause, remedy)
		return &f
	}
	const flag = "--host-local-image-path"
	st, err := os.Stat(m.h.Files.Path(p))
	switch {
	case err == nil && !st.IsDir():
		return fail("it is not a directory", "name a directory in "+flag)
	case errors.Is(err, os.ErrNotExist) && p != compute.DefaultImagePath:
		return fail("it does not exist", "mount its disk, or: mkdir -p "+p)
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return fail(err.Error(), "name another directory in "+flag)
	}
	if err == nil {
		root := m.h.Files.Path("/")
		if real, err := filepath.EvalSymlinks(m.h.Files.Path(p)); err == nil && real != filepath.Clean(m.h.Files.Path(p)) && root == "/" {
			return fail("a part of it is a symbolic link to "+real+", which the agent's container does not see", "use a bind mount: mount --bind "+real+" "+p)
		}
	}
	_, free, err := m.disk(p)
	if err != nil {
		return fail(err.Error(), "df -h "+p)
	}
	if free < leastImageSpace {
		return fail(fmt.Sprintf("%s are free, and the host agent needs %s", bytesText(free), bytesText(leastImageSpace)),
			"free some space (df -h "+p+"), or name another directory in "+flag)
	}
	return nil
}
