// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"net/netip"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/config"
)

func flannel() Addon {
	return Addon{
		Name: "cni", Dir: "flannel", Short: "Install the pod network",
		Long:   "Installs flannel (VXLAN) as the pod network. With --cni none, you install a pod network yourself; nodes stay NotReady until one exists.",
		Skip:   unless(func(c *config.Config) string { return c.Addons.CNI }, "flannel", "--cni"),
		Images: []string{"flannel", "flannel-cni-plugin"},
		Data: func(c *config.Config, image map[string]string, _ Prepared) (any, error) {
			pods, err := config.CIDRs(c.Cluster.PodNetworkCIDR)
			network := lists.Index(pods, func(p netip.Prefix) (bool, string) { return p.Addr().Is4(), p.String() })
			return map[string]any{
				"Image": image["flannel"], "PluginImage": image["flannel-cni-plugin"],
				"IPv4": network[true], "IPv6": network[false], "NFTables": c.Cluster.ProxyMode != config.ProxyIPTables,
			}, err
		},
		Upgrade:  "Upgrade the pod network",
		Settings: map[string][]string{"kube-flannel-cfg": {"net-conf.json", "cni-conf.json"}},
		Waits:    []client.Object{&appsv1.DaemonSet{ObjectMeta: named("kube-flannel", "kube-flannel-ds")}},
	}
}

func localPath() Addon {
	return Addon{
		Name: "storage", Dir: "local-path", Short: "Install storage on the nodes' own disks",
		Long: "Installs the local-path provisioner and makes its StorageClass local-path the default. Volumes are directories below\n" +
			"--storage-path on the node where their pod runs first. With --storage none, you provide a default StorageClass yourself.",
		Skip:   unless(func(c *config.Config) string { return c.Addons.Storage }, "local-path", "--storage"),
		Images: []string{"local-path-provisioner", "busybox"},
		Data: func(c *config.Config, image map[string]string, _ Prepared) (any, error) {
			return map[string]any{
				"Image": image["local-path-provisioner"], "HelperImage": image["busybox"], "Path": c.Addons.StoragePath,
			}, nil
		},
		Upgrade:  "Upgrade the storage on the nodes' own disks",
		Settings: map[string][]string{"local-path-config": {"config.json"}},
		Flags:    []string{"addons.storagePath"},
		Waits:    []client.Object{&appsv1.Deployment{ObjectMeta: named("local-path-storage", "local-path-provisioner")}},
	}
}

func traefik() Addon {
	return Addon{
		Name: "ingress", Dir: "traefik", Short: "Install web access on ports 80 and 443 of controller nodes",
		Long:   "Installs Traefik as the default ingress controller. With --ingress none, the web console itself serves on these ports.",
		Skip:   unless(func(c *config.Config) string { return c.Addons.Ingress }, "traefik", "--ingress"),
		Images: []string{"traefik"},
		Data: func(_ *config.Config, image map[string]string, _ Prepared) (any, error) {
			return map[string]any{"Image": image["traefik"]}, nil
		},
		Upgrade: "Upgrade web access",
		Waits:   []client.Object{&appsv1.DaemonSet{ObjectMeta: named("traefik", "traefik")}},
	}
}

// unless returns a Skip that applies if the setting is not want.
func unless(setting func(*config.Config) string, want, flag string) func(*config.Config) string {
	return func(c *config.Config) string {
		if got := setting(c); got != want {
			return flag + " is " + got
		}
		return ""
	}
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}
