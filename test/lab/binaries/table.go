// SPDX-License-Identifier: Apache-2.0

package binaries

import (
	"path"
	"strings"

	"golang.org/x/mod/semver"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/version"
)

// module is one directory below test/lab/modules: a set of upstream programs and their versions.
type module struct {
	Dir string
	// Upstream is the module that determines the programs' version. Version is the required version; empty accepts any.
	Upstream, Version string
	Programs          []program
	// LDFlags set the version; {version}, {major} and {minor} are replaced.
	LDFlags string
	Tags    string
	// Cgo links C code statically. Env holds environment variables of the build.
	Cgo bool
	Env []string
}

type program struct{ Name, Package string }

// Earlier is the lab's version of the Kubernetes minor release before that of go.mod. ocadm installs both.
const Earlier = "v1.35.8"

// kubernetesDir returns the directory of the module for a version of Kubernetes: one for the version in go.mod, which scripts/pin-k8s.sh keeps in
// step, and one for each other minor version.
func kubernetesDir(kubernetes string) string {
	if kubernetes == version.Kubernetes {
		return "kubernetes"
	}
	return "kubernetes-" + strings.TrimPrefix(semver.MajorMinor(kubernetes), "v")
}

// modules returns all modules that the lab builds programs from, with the given version of Kubernetes.
func modules(kubernetes string) []module {
	return []module{
		{
			Dir: kubernetesDir(kubernetes), Upstream: "k8s.io/kubernetes", Version: kubernetes,
			LDFlags: "-X k8s.io/component-base/version.gitVersion={version} -X k8s.io/component-base/version.gitMajor={major}" +
				" -X k8s.io/component-base/version.gitMinor={minor}",
			Programs: []program{
				{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
				{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"},
				{"kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"},
				{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"},
				{"kubelet", "k8s.io/kubernetes/cmd/kubelet"},
				{"kubectl", "k8s.io/kubernetes/cmd/kubectl"},
			},
		},
		{
			Dir: "etcd", Upstream: "go.etcd.io/etcd/server/v3",
			Programs: []program{{"etcd", "go.etcd.io/etcd/server/v3"}, {"etcdctl", "go.etcd.io/etcd/etcdctl/v3"}},
		},
		{
			Dir: "containerd", Upstream: "github.com/containerd/containerd/v2",
			LDFlags: "-X github.com/containerd/containerd/v2/version.Version={version}",
			Programs: []program{
				{"containerd", "github.com/containerd/containerd/v2/cmd/containerd"},
				{"containerd-shim-runc-v2", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2"},
				{"ctr", "github.com/containerd/containerd/v2/cmd/ctr"},
			},
		},
		{
			Dir: "coredns", Upstream: "github.com/coredns/coredns",
			Programs: []program{{"coredns", "github.com/coredns/coredns"}},
		},
		{
			// Its UDP back-end is C. The pure Go resolver avoids the C library's, which a static program cannot use.
			Dir: "flannel", Upstream: "github.com/flannel-io/flannel", Cgo: true, Tags: "netgo,osusergo",
			LDFlags:  "-X github.com/flannel-io/flannel/pkg/version.Version={version}",
			Programs: []program{{"flanneld", "github.com/flannel-io/flannel"}},
		},
		{
			// It joins namespaces in C code.
			Dir: "runc", Upstream: "github.com/opencontainers/runc", Cgo: true, Tags: "netgo,osusergo,seccomp",
			Env:      []string{"PKG_CONFIG=/bin/true", "CGO_LDFLAGS=-lseccomp"}, // Debian's library needs no pkg-config
			LDFlags:  "-X main.version={version}",
			Programs: []program{{"runc", "github.com/opencontainers/runc"}},
		},
		{
			Dir: cniPlugins, Upstream: "github.com/containernetworking/plugins",
			LDFlags:  "-X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion={version}",
			Programs: pluginPrograms(),
		},
		{
			Dir: "flannel-cni", Upstream: "github.com/containernetworking/plugins",
			Programs: []program{{"flannel", "github.com/containernetworking/plugins/plugins/meta/flannel"}},
		},
		{
			Dir: "local-path-provisioner", Upstream: "github.com/rancher/local-path-provisioner",
			LDFlags:  "-X main.VERSION={version}",
			Programs: []program{{"local-path-provisioner", "github.com/rancher/local-path-provisioner"}},
		},
		{
			Dir: "traefik", Upstream: "github.com/traefik/traefik/v3",
			LDFlags:  "-X github.com/traefik/traefik/v3/pkg/version.Version={version}",
			Programs: []program{{"traefik", "github.com/traefik/traefik/v3/cmd/traefik"}},
		},
		{
			// A real object store for the backup tests.
			Dir: "versitygw", Upstream: "github.com/versity/versitygw",
			Programs: []program{{"versitygw", "github.com/versity/versitygw/cmd/versitygw"}},
		},
	}
}

const cniPlugins = "cni-plugins"

// CNIPlugins returns the names of the plugins in upstream's archive.
func CNIPlugins() []string {
	return lists.Map(pluginPrograms(), func(p program) string { return p.Name })
}

func pluginPrograms() []program {
	return lists.Map([]string{
		"ipam/dhcp", "ipam/host-local", "ipam/static", "main/bridge", "main/dummy", "main/host-device", "main/ipvlan", "main/loopback", "main/macvlan",
		"main/ptp", "main/tap", "main/vlan", "meta/bandwidth", "meta/firewall", "meta/portmap", "meta/sbr", "meta/tuning", "meta/vrf",
	}, func(name string) program {
		return program{path.Base(name), "github.com/containernetworking/plugins/plugins/" + name}
	})
}
