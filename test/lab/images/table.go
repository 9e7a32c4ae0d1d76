// SPDX-License-Identifier: Apache-2.0

package images

import (
	"fmt"
	"io/fs"

	pinned "yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/version"
)

// Repository is where the cloud's own images are named.
const Repository = pinned.DefaultRepository

// CoreDNS, etcd and pause have the tags that kubeadm of this Kubernetes asks for.
const (
	corednsTag = "v1.14.2"
	etcdTag    = "3.6.8-0"
	pauseTag   = "3.10.2"
)

// notMade are the rows of templates/images.yaml that the lab does not make, with the reason. An archive of LAB_SERVICE_IMAGES may hold them.
var notMade = map[string]string{
	"traefik": "its go.mod replaces dependencies by forks, two of which could not be fetched as modules",
}

// image says what an image is made of, layers from the bottom up.
type image struct {
	Name string
	// Base are the names of Debian layers, or "busybox".
	Base []string
	// Programs are files from package binaries, program name to path in the image.
	Programs map[string]string
	Entries  []entry
	// Entrypoint, Cmd, User and Workdir are the image's configuration.
	Entrypoint, Cmd []string
	User            string
	Env             []string
}

// program puts a program under its own name into the image.
func program(name, path string) map[string]string { return map[string]string{name: path} }

// upstream are the images of Kubernetes and its add-ons.
func upstream() []image {
	list := []image{
		{Name: "registry.k8s.io/etcd:" + etcdTag, Programs: etcdPrograms()},
		{Name: "registry.k8s.io/coredns/coredns:" + corednsTag, Programs: program("coredns", "coredns"), Entrypoint: []string{"/coredns"}},
		{Name: "registry.k8s.io/pause:" + pauseTag, Programs: program("pause", "pause"), Entrypoint: []string{"/pause"}, User: "65535:65535"},
		{
			Name: "registry.k8s.io/kube-proxy:" + version.Kubernetes, Base: []string{"network"},
			Programs: program("kube-proxy", "usr/local/bin/kube-proxy"),
		},
		{
			// Its init container copies a file, so it has a shell's tools.
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
		{Name: "docker.io/library/busybox:1.37.0-glibc", Base: []string{"busybox"}, Cmd: []string{"sh"}},
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
		list = append(list, image{Name: "registry.k8s.io/" + name + ":" + version.Kubernetes, Programs: program(name, "usr/local/bin/"+name)})
	}
	return list
}

func etcdPrograms() map[string]string {
	return map[string]string{"etcd": "usr/local/bin/etcd", "etcdctl": "usr/local/bin/etcdctl"}
}

// service is a service of the cloud that the stand-in plays. An empty tag is the cloud's version; Programs are the paths under which it
// is called, /opt/yunion/bin/<Name> if there are none. The first is what runs when nobody says what.
type service struct {
	Name, Tag string
	Programs  []string
}

// services are all that a cloud of edition ce is made of. Those of the enterprise editions are left out: nobody could run them.
func services() []service {
	list := []service{
		{Name: "host-health", Tag: "v0.0.4"},
		{Name: "host-image", Tag: "v1.0.8"},
		{Name: "victoria-metrics", Tag: "v1.129.1-1", Programs: []string{"usr/bin/victoria-metrics"}},
		{Name: "telegraf", Tag: "release-1.36.4-6", Programs: []string{"usr/bin/telegraf"}},
		{Name: "telegraf-init", Tag: "release-1.36-1", Programs: []string{"bin/telegraf-init"}},
		{Name: "openvswitch", Tag: "2.12.4-20260415", Programs: []string{"start.sh"}},
		{Name: "guacd", Tag: "1.6.0", Programs: []string{"usr/bin/guacd"}},
		{Name: "cloudmux", Programs: []string{"usr/bin/tail"}},
		{Name: "onecloud-service-operator", Programs: []string{"manager", "usr/bin/kubectl"}},
	}
	for _, name := range []string{
		"keystone", "region", "scheduler", "glance", "logger", "yunionconf", "apigateway", "climc", "webconsole", "notify", "scheduledtask", "apimap",
		"region-dns", "kubeserver", "monitor", "cloudmon", "ansibleserver", "devtool", "cloudid", "cloudevent", "cloudproxy", "cloudnet", "s3gateway",
		"llm", "mcp-server", "aiproxy", "host", "host-deployer", "sdnagent", "vpcagent", "lbagent", "baremetal-agent", "esxi-agent",
	} {
		list = append(list, service{Name: name})
	}
	return list
}

const serviceDir = "opt/yunion/bin/"

// cloud are the images of the cloud. All services share the stand-in's layer; a link says which one it plays.
func cloud(cloudVersion, ocadmVersion, ocadm, standin string) []image {
	var list []image
	for _, s := range services() {
		tag := s.Tag
		if tag == "" {
			tag = cloudVersion
		}
		i := image{
			Name:    fmt.Sprintf("%s/%s:%s", Repository, s.Name, tag),
			Entries: []entry{{Path: serviceDir + "standin", Mode: executable, Source: standin}},
		}
		if len(s.Programs) == 0 {
			i.Entries = append(i.Entries, entry{Path: serviceDir + s.Name, Link: "standin"})
			i.Cmd = []string{"/" + serviceDir + s.Name}
		} else {
			i.Entrypoint = []string{"/" + s.Programs[0]}
		}
		for _, path := range s.Programs {
			i.Entries = append(i.Entries, entry{Path: path, Link: "/" + serviceDir + "standin"})
		}
		if s.Name == "climc" {
			i.Base = []string{"busybox"}
			i.Entries = append(i.Entries,
				entry{Path: "bin/bash", Mode: executable, Text: "#!/bin/sh\nexec /bin/sh \"$@\"\n"},
				entry{Path: "opt/climc-entrypoint.sh", Mode: executable, Text: "#!/bin/sh\nexec /" + serviceDir + "climc sleep\n"})
		}
		list = append(list, i)
	}
	return append(list,
		image{
			Name: pinned.OperatorRef(Repository, ocadmVersion), User: "65534:65534", Entrypoint: []string{"/ocadm"},
			Entries: []entry{{Path: "ocadm", Mode: executable, Source: ocadm}},
		},
		image{
			Name: fmt.Sprintf("%s/web:%s", Repository, cloudVersion), Base: []string{"nginx"},
			Cmd: []string{"nginx", "-g", "daemon off;"},
		},
		image{
			// The cloud names an older etcd. The lab has one etcd only, the control plane's, and its API is the same.
			Name: Repository + "/etcd:3.5.12", Base: []string{"busybox"}, Programs: etcdPrograms(),
		})
}

const executable fs.FileMode = 0o755
