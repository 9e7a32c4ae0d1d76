// SPDX-License-Identifier: Apache-2.0

// Package node turns a machine with a bare operating system into one that can start a kubelet, and back: programs, units, kernel settings, container images.
// It knows nothing about clusters; kubeadm's part is in package kubernetes.
//
// It uses programs of a suitable version that are already on the machine, and leaves them alone, also on reset. It records everything else in the ledger
// before making it, and reset undoes what the ledger lists.
package node

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	"golang.org/x/mod/semver"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/phases/host"
)

// The findings of this package.
const (
	CodeIncompleteBundle = "OCA-2401"
	CodeDownload         = "OCA-2402"
	CodeChecksum         = "OCA-2403"
	CodeProgramBroken    = "OCA-2404"
	CodeKernelFeature    = "OCA-2405"
	CodeKernelParameter  = "OCA-2406"
	CodeRuntimeDown      = "OCA-2407"
	CodeRuntimeUnusable  = "OCA-2408"
	CodeImport           = "OCA-2409"
	CodeResidue          = "OCA-2410"
	CodeFirewall         = "OCA-2411"
	CodePull             = "OCA-2412"
	CodePauseImage       = "OCA-2413"
	CodeNoMirrors        = "OCA-2414"
)

// BundleCheck is the preflight check of the bundle. Ignoring it also accepts images that the bundle lacks: the kubelet pulls them.
const BundleCheck = "Bundle"

// Where node software goes.
const (
	binDir       = "/usr/local/bin"
	cniDir       = "/opt/cni/bin"
	programMode  = 0o755
	containerd   = "containerd"
	shim         = "containerd-shim-runc-v2"
	ctr          = "ctr"
	runc         = "runc"
	kubelet      = "kubelet"
	kubectl      = "kubectl"
	cniPlugins   = "cni-plugins"
	socket       = "/run/containerd/containerd.sock"
	k8sNamespace = "k8s.io"
)

// program is a program that a node needs, apart from the CNI plugins.
type program struct {
	name string
	// with is the program that it belongs to: both are used as found, or both are installed.
	with string
	// good reports whether a version installed by others works with a version of Kubernetes.
	good func(v, kubernetes string) bool
}

func programs() []program {
	return []program{
		{name: containerd, good: func(v, k string) bool { return atLeast("v2.1.0")(v, k) && semver.Major(v) == "v2" }},
		{name: shim, with: containerd},
		{name: ctr, with: containerd},
		{name: runc, good: atLeast("v1.1.5")},
		{name: kubelet, good: func(v, k string) bool {
			return semver.MajorMinor(v) == semver.MajorMinor(k) && semver.Compare(v, k) <= 0
		}},
		{name: kubectl, good: atLeast("v1.35.0")},
	}
}

func atLeast(low string) func(v, kubernetes string) bool {
	return func(v, _ string) bool { return semver.Compare(v, low) >= 0 }
}

// theirs returns the program if it was on the machine before ocadm and is suitable.
func theirs(h *host.Host, name string) (host.Program, bool) {
	i := slices.IndexFunc(programs(), func(p program) bool { return p.name == name })
	if i < 0 {
		return host.Program{}, false
	}
	p := programs()[i]
	lead := cmp.Or(p.with, p.name)
	found, ok := h.Facts.Programs[lead]
	if !ok || h.Ledger.Has(host.KindFile, found.Path) || !h.Files.Exists(found.Path) {
		return host.Program{}, false
	}
	for _, q := range programs() {
		switch {
		case q.name == lead && !q.good(found.Version, kubernetesVersion(h)):
			return host.Program{}, false
		case q.with == lead && !h.Files.Exists(path.Join(path.Dir(found.Path), q.name)):
			return host.Program{}, false
		}
	}
	return host.Program{Path: path.Join(path.Dir(found.Path), p.name), Version: found.Version}, true
}

// kubernetesVersion returns the version that this machine installs.
func kubernetesVersion(h *host.Host) string {
	return cmp.Or(h.Config.Cluster.KubernetesVersion, version.Kubernetes)
}

// programPath returns the path where a program of the node is, or will be.
func programPath(h *host.Host, name string) string {
	if p, ok := theirs(h, name); ok {
		return p.Path
	}
	return path.Join(binDir, name)
}

// containerdRuns reports whether the node's container runtime is containerd, which ocadm manages. The user manages any other.
func containerdRuns(h *host.Host) bool {
	s := strings.TrimPrefix(h.Config.Node.CRISocket, "unix://")
	return s == "" || path.Base(s) == path.Base(socket)
}

func otherRuntime(h *host.Host) string {
	if containerdRuns(h) {
		return ""
	}
	return "the container runtime at " + h.Config.Node.CRISocket + " is not ocadm's"
}

// target returns the path of a bundle's file on the node; "" for a file that this package does not know and does not install.
func target(file string) string {
	if path.Dir(file) == cniDir {
		return file
	}
	if name := path.Base(file); slices.ContainsFunc(programs(), func(p program) bool { return p.name == name }) {
		return path.Join(binDir, name)
	}
	return ""
}

// lacking returns findings for everything that prevents an installation of the programs from the machine's source: a bundle of another platform or
// version, and missing programs. It reads only the index.
func lacking(h *host.Host) finding.List {
	if !h.Bundled() {
		return lackingPrograms(h, "give --bundle FILE, or download them from the internet: --depot none")
	}
	return slices.Concat(finding.Of(h.Source().CheckPlatform(h.Facts.Arch, kubernetesVersion(h))),
		lackingPrograms(h, "use a complete bundle; this shows the content of a bundle: ocadm bundle list FILE"))
}

func lackingPrograms(h *host.Host, remedy string) finding.List {
	missing := missingPrograms(h)
	if len(missing) == 0 {
		return nil
	}
	what := h.Source().Name() + " lacks programs that this machine needs"
	return finding.List{finding.New(CodeIncompleteBundle, what, strings.Join(missing, ", "), remedy).With(missing...)}
}

func missingPrograms(h *host.Host) []string {
	has := lists.Set(h.Source().Contents().Files, func(f bundle.FileInfo) string { return target(f.Path) })
	missing := lists.Pick(programs(), func(p program) (string, bool) {
		_, ok := theirs(h, p.name)
		return p.name, !ok && needed(h, p.name) && !has[path.Join(binDir, p.name)]
	})
	return append(missing, lists.Pick(neededPlugins(), func(plugin string) (string, bool) {
		file := path.Join(cniDir, plugin)
		return file, !has[file] && !h.Files.Exists(file)
	})...)
}

// needed reports whether a run installs or uses the program.
func needed(h *host.Host, name string) bool {
	return containerdRuns(h) || name == kubelet || name == kubectl
}

// neededPlugins returns the CNI plugins that every pod network calls.
func neededPlugins() []string { return []string{"bridge", "host-local", "loopback", "portmap"} }

// canceled reports whether ctx caused a failure, which is then not a finding.
func canceled(ctx context.Context) bool { return ctx.Err() != nil }
