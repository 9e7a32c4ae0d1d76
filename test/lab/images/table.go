// SPDX-License-Identifier: Apache-2.0

package images

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"yunion.io/x/ocadm/api/v1alpha1"
	pinned "yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/test/fakecloud/servicespec"
)

// Repository is the repository of the cloud's own images.
const Repository = pinned.DefaultRepository

// The tags of CoreDNS, etcd and pause are those that kubeadm of this Kubernetes version requires.
const (
	corednsTag = "v1.14.2"
	etcdTag    = "3.6.8-0"
	pauseTag   = "3.10.2"
)

// image describes the contents of an image, layers from the bottom up.
type image struct {
	Name string
	// Base holds names of Debian layers, or "busybox".
	Base []string
	// Programs maps programs of package binaries to their paths in the image.
	Programs map[string]string
	Entries  []entry
	// Entrypoint, Cmd, User and Workdir go into the image's configuration.
	Entrypoint, Cmd []string
	User            string
	Env             []string
}

// program puts a program into the image under its own name.
func program(name, path string) map[string]string { return map[string]string{name: path} }

// upstream returns the images of a version of Kubernetes and of its add-ons.
func upstream(kubernetes string) []image {
	list := []image{
		{Name: "registry.k8s.io/etcd:" + etcdTag, Programs: etcdPrograms()},
		{Name: "registry.k8s.io/coredns/coredns:" + corednsTag, Programs: program("coredns", "coredns"), Entrypoint: []string{"/coredns"}},
		{Name: "registry.k8s.io/pause:" + pauseTag, Programs: program("pause", "pause"), Entrypoint: []string{"/pause"}, User: "65535:65535"},
		{
			Name: "registry.k8s.io/kube-proxy:" + kubernetes, Base: []string{"network"},
			Programs: program("kube-proxy", "usr/local/bin/kube-proxy"),
		},
		{
			// Its init container copies a file and needs a shell and its tools.
			Name: "ghcr.io/flannel-io/flannel:v0.28.4", Base: []string{"busybox", "network"},
			Programs: program("flanneld", "opt/bin/flanneld"), Entrypoint: []string{"/opt/bin/flanneld"},
		},
		{
			Name: "ghcr.io/flannel-io/flannel-cni-plugin:v1.9.1-flannel1", Base: []string{"busybox"},
			Programs: program("flannel", "flannel"),
		},
		{
			Name:       "docker.io/rancher/local-path-provisioner:v0.0.30",
			Programs:   program("local-path-provisioner", "usr/bin/local-path-provisioner"),
			Entrypoint: []string{"local-path-provisioner"},
		},
		{Name: Repository + "/keepalived:v2.0.25", Base: []string{"keepalived"}, Cmd: []string{"keepalived", "--dont-fork", "--log-console"}},
		{Name: "docker.io/library/busybox:1.37.0-glibc", Base: []string{"busybox"}, Cmd: []string{"sh"}},
		{
			Name:       "docker.io/library/traefik:v3.6.12",
			Programs:   program("traefik", "usr/local/bin/traefik"),
			Entrypoint: []string{"/usr/local/bin/traefik"},
		},
		{
			Name: "docker.io/library/mariadb:10.11", Base: []string{"mariadb"}, Cmd: []string{"mariadbd"},
			Entries: []entry{
				{Path: "run/mysqld", Mode: 0o755, UID: 999},
				{Path: "var/lib/mysql", Mode: 0o750, UID: 999},
				{Path: "var/log/mysql", Mode: 0o750, UID: 999},
			},
		},
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		list = append(list, image{Name: "registry.k8s.io/" + name + ":" + kubernetes, Programs: program(name, "usr/local/bin/"+name)})
	}
	return list
}

func etcdPrograms() map[string]string {
	return map[string]string{"etcd": "usr/local/bin/etcd", "etcdctl": "usr/local/bin/etcdctl"}
}

// programs holds the paths of the stand-in in images where it is not /opt/yunion/bin/NAME. The first path is the default command.
var programs = map[string][]string{
	"victoria-metrics":          {"usr/bin/victoria-metrics"},
	"telegraf":                  {"usr/bin/telegraf"},
	"telegraf-init":             {"bin/telegraf-init"},
	"openvswitch":               {"start.sh", "usr/bin/sleep"},
	"guacd":                     {"usr/bin/guacd"},
	"cloudmux":                  {"usr/bin/tail"},
	"onecloud-service-operator": {"manager", "usr/bin/kubectl"},
}

// services returns the references of the images that a cloud of edition ce runs, as the operator resolves them, including disabled components. It
// omits images of the enterprise editions, which could not be run.
func services(cloudVersion string) ([]string, error) {
	table, err := pinned.Load()
	if err != nil {
		return nil, err
	}
	cr := &v1alpha1.OnecloudCluster{}
	cr.Spec.MySQL.Host, cr.Spec.Version, cr.Spec.EnableCloudNet, cr.Spec.EnableS3Gateway = "db", cloudVersion, true, true
	cluster, err := resolve.Cluster(cr, resolve.Facts{Components: catalog.All(), Images: table.Refs()})
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, c := range cluster.Components {
		for _, ref := range append(slices.Collect(maps.Values(c.ContainerImages)), c.FullImage) {
			seen[ref] = seen[ref] || c.Visible && strings.HasPrefix(ref, Repository+"/")
		}
	}
	maps.DeleteFunc(seen, func(_ string, runs bool) bool { return !runs })
	return slices.Sorted(maps.Keys(seen)), nil
}

const serviceDir = "opt/yunion/bin/"

// cloud returns the images of the cloud, except the operator's, which ocadm packs itself. All services share the stand-in's layer; a link selects its role.
func cloud(cloudVersion, fakecloud string) ([]image, error) {
	refs, err := services(cloudVersion)
	if err != nil {
		return nil, fmt.Errorf("listing the images of the cloud: %w", err)
	}
	var list []image
	for _, ref := range refs {
		name, _, _ := strings.Cut(strings.TrimPrefix(ref, Repository+"/"), ":")
		i := image{Name: ref, Env: []string{servicespec.VersionVariable + "=" + servicespec.Version(ref)}}
		switch name {
		case "web":
			i.Base, i.Cmd = []string{"nginx"}, []string{"nginx", "-g", "daemon off;"}
		case "etcd": // the cloud's etcd is older; the lab has only the control plane's, with the same API
			i.Base, i.Programs = []string{"busybox"}, etcdPrograms()
		default:
			i.play(name, fakecloud)
		}
		list = append(list, i)
	}
	return list, nil
}

// play builds the image of a service that the stand-in plays.
func (i *image) play(name, fakecloud string) {
	i.Entries = []entry{{Path: serviceDir + "fakecloud", Mode: executable, Source: fakecloud}}
	paths := programs[name]
	if len(paths) == 0 {
		i.Entries = append(i.Entries, entry{Path: serviceDir + name, Link: "fakecloud"})
		i.Cmd = []string{"/" + serviceDir + name}
	} else {
		i.Entrypoint = []string{"/" + paths[0]}
	}
	i.Entries = append(i.Entries, lists.Map(paths, func(path string) entry { return entry{Path: path, Link: "/" + serviceDir + "fakecloud"} })...)
	if name == "climc" {
		i.Base = []string{"busybox"}
		i.Entries = append(i.Entries,
			entry{Path: "bin/bash", Mode: executable, Text: "#!/bin/sh\nexec /bin/sh \"$@\"\n"},
			entry{Path: "opt/climc-entrypoint.sh", Mode: executable, Text: "#!/bin/sh\nexec /" + serviceDir + "climc sleep\n"})
	}
}

const executable fs.FileMode = 0o755
