// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/version"
)

// DefaultKubernetesImageRepository is the source of the Kubernetes images if no registry is set.
const DefaultKubernetesImageRepository = "registry.k8s.io"

// The modes of kube-proxy. Complete replaces ProxyAuto with one of the others.
const (
	ProxyAuto     = "auto"
	ProxyNFTables = "nftables"
	ProxyIPTables = "iptables"
)

// The values of Firewall: open the node's ports in firewalld, or only check that they are open.
const (
	FirewallAuto   = "auto"
	FirewallManual = "manual"
)

// None disables an addon.
const None = "none"

// DefaultStorageClass is the default class of volumes: that of the storage addon.
const DefaultStorageClass = "local-path"

// DefaultPort is the port of the API server.
const DefaultPort = 6443

// KubeletPort is the port of the kubelet on every address of a node, from which the API server reads logs.
const KubeletPort = 10250

// DepotPort is the port on which control-plane nodes serve images and programs to other nodes.
const DepotPort = 6444

// DefaultCRISocket is the socket of containerd.
const DefaultCRISocket = "unix:///run/containerd/containerd.sock"

// Default returns the configuration if nothing is set.
func Default() Config {
	return Config{
		APIVersion: APIVersion,
		Kind:       Kind,
		Cluster: Cluster{
			KubernetesVersion: version.Kubernetes,
			PodNetworkCIDR:    "10.40.0.0/16",
			ServiceCIDR:       "10.96.0.0/12",
			ServiceDNSDomain:  "cluster.local",
			NodeCIDRMaskSize:  24,
			ProxyMode:         ProxyAuto,
			TokenTTL:          24 * time.Hour,
		},
		Node: Node{Firewall: FirewallAuto, BindPort: DefaultPort, CRISocket: DefaultCRISocket},
		Database: Database{
			Port: 3306, User: "root", StorageSize: "20Gi", TLS: string(mysql.TLSPreferred),
		},
		Cloud: Cloud{
			Name: "default", Namespace: "onecloud", OperatorVersion: version.Version,
			Region: "region0", Zone: "zone0", Edition: "ce", ProductVersion: "FullStack", Profile: "small", Wait: true,
		},
		Addons:   Addons{CNI: "flannel", Storage: "local-path", StoragePath: "/opt/local-path-provisioner", Ingress: "traefik"},
		Join:     Join{Timeout: 5 * time.Minute},
		Operator: Operator{MetricsAddress: ":8080", HealthAddress: ":8081", ProfileAddress: "0", AuditInterval: 10 * time.Minute},
		Run:      Run{OnFailure: "keep"},
	}
}

// Machine holds the defaults that the configuration takes from the machine.
type Machine struct {
	Hostname string
	// Address is the source address of the default route.
	Address string
	// Network is the network of the default route; other nodes may be in it.
	Network string
	// ProxyMode is the kube-proxy mode that suits the kernel; empty means nftables.
	ProxyMode string
}

// Complete fills in values that follow from the machine and other settings, and normalizes addresses. It is called once, before Validate.
func Complete(c *Config, m Machine) {
	if c.Node.Name == "" {
		c.Node.Name, _, _ = strings.Cut(strings.ToLower(m.Hostname), ".")
	}
	c.Node.IP = cmp.Or(c.Node.IP, c.Node.AdvertiseAddress, m.Address)
	c.Node.AdvertiseAddress = cmp.Or(c.Node.AdvertiseAddress, c.Node.IP)
	c.Cluster.KubernetesImageRepository = cmp.Or(c.Cluster.KubernetesImageRepository, c.Cluster.ImageRepository, DefaultKubernetesImageRepository)
	if c.Cluster.ProxyMode == ProxyAuto {
		c.Cluster.ProxyMode = cmp.Or(m.ProxyMode, ProxyNFTables)
	}
	c.Cluster.ImageRepository = strings.TrimSuffix(c.Cluster.ImageRepository, "/")
	c.Cluster.KubernetesImageRepository = strings.TrimSuffix(c.Cluster.KubernetesImageRepository, "/")
	if c.Cluster.ControlPlaneEndpoint == "" && c.Cluster.VirtualAddress != "" {
		c.Cluster.ControlPlaneEndpoint = c.Cluster.VirtualAddress
	}
	if host, port, err := SplitEndpoint(c.Cluster.ControlPlaneEndpoint, c.Node.BindPort); err == nil && host != "" {
		c.Cluster.ControlPlaneEndpoint = net.JoinHostPort(host, strconv.Itoa(port))
	} else if c.Cluster.ControlPlaneEndpoint == "" && address(c.Node.AdvertiseAddress) == nil {
		c.Cluster.ControlPlaneEndpoint = net.JoinHostPort(c.Node.AdvertiseAddress, strconv.Itoa(c.Node.BindPort))
	}
	if c.Cloud.LoadBalancerEndpoint == "" {
		if host, _, err := SplitEndpoint(c.Cluster.ControlPlaneEndpoint, DefaultPort); err == nil {
			c.Cloud.LoadBalancerEndpoint = host
		}
	}
	if host, port, err := SplitEndpoint(c.Join.Endpoint, DefaultPort); err == nil && host != "" {
		c.Join.Endpoint = net.JoinHostPort(host, strconv.Itoa(port))
	}
	if host, port, err := SplitEndpoint(c.Node.Depot, DepotPort); err == nil && host != "" && c.Node.Depot != None {
		c.Node.Depot = net.JoinHostPort(host, strconv.Itoa(port))
	}
	if c.Node.HTTPProxy != "" || c.Node.HTTPSProxy != "" {
		c.Node.NoProxy = withoutProxy(c, m.Network)
		if c.Join.Endpoint == "" {
			exceptNetworks(c)
		}
	}
	if c.Node.CRISocket != "" && strings.HasPrefix(c.Node.CRISocket, "/") {
		c.Node.CRISocket = "unix://" + c.Node.CRISocket
	}
}

// withoutProxy returns the NoProxy list with the cluster's addresses added.
func withoutProxy(c *Config, network string) []string {
	all := append(slices.Clone(c.Node.NoProxy), "localhost", "127.0.0.1", "::1", c.Node.IP, network)
	hosts := lists.Pick([]string{c.Cluster.ControlPlaneEndpoint, c.Join.Endpoint}, func(endpoint string) (string, bool) {
		host, _, err := SplitEndpoint(endpoint, DefaultPort)
		return host, err == nil
	})
	return distinct(append(append(all, hosts...), ".svc"))
}

// OfCluster sets the networks of the cluster that a machine joins. Empty values are unknown and change nothing.
func OfCluster(c *Config, pods, services, domain string) {
	c.Cluster.PodNetworkCIDR = cmp.Or(pods, c.Cluster.PodNetworkCIDR)
	c.Cluster.ServiceCIDR = cmp.Or(services, c.Cluster.ServiceCIDR)
	c.Cluster.ServiceDNSDomain = cmp.Or(domain, c.Cluster.ServiceDNSDomain)
	if c.Node.HTTPProxy != "" || c.Node.HTTPSProxy != "" {
		exceptNetworks(c)
	}
}

// exceptNetworks adds the cluster's own networks to NoProxy.
func exceptNetworks(c *Config) {
	all := append(slices.Clone(c.Node.NoProxy), "."+cmp.Or(c.Cluster.ServiceDNSDomain, "cluster.local"))
	c.Node.NoProxy = distinct(append(all, strings.Split(c.Cluster.PodNetworkCIDR+","+c.Cluster.ServiceCIDR, ",")...))
}

func distinct(all []string) []string {
	return lists.Unique(lists.Filter(lists.Map(all, strings.TrimSpace), func(e string) bool { return e != "" }))
}
