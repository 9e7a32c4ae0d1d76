// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"
)

// For says which commands a setting belongs to.
type For uint8

// The commands that take settings.
const (
	ForInit For = 1 << iota
	ForJoin
	ForReset
)

// Setting is one setting: its key in the configuration file, its flag and what help says of it. The flag also names the variable of
// the environment: OCADM_ and the flag in capitals.
type Setting struct {
	Key, Flag string
	Usage     string
	For       For
	// Secret values are kept out of argv, logs, the journal and "config print".
	Secret bool
	// Advanced settings are left out of the short help.
	Advanced bool
}

// Env is the variable of the environment that holds the setting.
func (s Setting) Env() string {
	return "OCADM_" + strings.ToUpper(strings.ReplaceAll(s.Flag, "-", "_"))
}

// Settings are all settings, in the order of help. A new one is a field of Config and a line here.
func Settings() []Setting {
	const nodes = ForInit | ForJoin
	return []Setting{
		{Key: "database.host", Flag: "mysql-host", For: ForInit, Usage: "host of the cloud's MySQL or MariaDB server; empty: an embedded MariaDB is installed"},
		{Key: "database.port", Flag: "mysql-port", For: ForInit, Usage: "port of the database server"},
		{Key: "database.user", Flag: "mysql-user", For: ForInit, Usage: "account that may create databases, accounts and grants"},
		{Key: "database.password", Flag: "mysql-password", For: ForInit, Secret: true,
			Usage: "password of that account; other users can read it for a moment, --mysql-password-file keeps it to you"},
		{Key: "database.passwordFile", Flag: "mysql-password-file", For: ForInit, Usage: "file that holds the password; - is standard input"},
		{Key: "database.tls", Flag: "mysql-tls", For: ForInit,
			Usage: "encryption to that server: disabled, preferred (where it offers TLS), required, verify-ca or verify-identity"},
		{Key: "database.caFile", Flag: "mysql-ca-file", For: ForInit, Usage: "file with the certificates that verify-ca and verify-identity trust (default: those of the system)"},
		{Key: "database.storageSize", Flag: "mysql-storage-size", For: ForInit, Advanced: true, Usage: "size of the embedded database's volume"},

		{Key: "cloud.version", Flag: "onecloud-version", For: ForInit, Usage: "create a cloud of this version at the end; empty: none is created"},
		{Key: "cloud.operatorVersion", Flag: "operator-version", For: ForInit, Advanced: true, Usage: "version of the operator's image (default: that of this program)"},
		{Key: "cloud.operatorImage", Flag: "operator-image", For: ForInit, Advanced: true,
			Usage: "the operator's image, REPOSITORY:TAG; replaces --image-repository and --operator-version for it"},
		{Key: "cloud.region", Flag: "region", For: ForInit, Usage: "region of the cloud"},
		{Key: "cloud.zone", Flag: "zone", For: ForInit, Usage: "zone of the cloud"},
		{Key: "cloud.edition", Flag: "edition", For: ForInit, Advanced: true, Usage: "edition of the cloud: ce, ce/support or ee"},
		{Key: "cloud.productVersion", Flag: "product-version", For: ForInit, Advanced: true, Usage: "product of the cloud: FullStack, CMP, Edge, LightEdge or AI"},
		{Key: "cloud.name", Flag: "cluster-name", For: ForInit, Advanced: true, Usage: "name of the OnecloudCluster"},
		{Key: "cloud.namespace", Flag: "cluster-namespace", For: ForInit, Advanced: true, Usage: "namespace of the operator and the cloud"},
		{Key: "cloud.loadBalancerEndpoint", Flag: "load-balancer-endpoint", For: ForInit, Advanced: true,
			Usage: "address by which users reach the cloud (default: host of the control plane endpoint)"},
		{Key: "cloud.disableResourceManagement", Flag: "disable-resource-management", For: ForInit, Advanced: true, Usage: "give the services no resource requests and limits"},
		{Key: "cloud.useHyperImage", Flag: "use-hyper-image", For: ForInit, Advanced: true, Usage: "run the services from one combined image"},
		{Key: "cloud.wait", Flag: "wait", For: ForInit, Usage: "wait until every service of the new cloud is available"},

		{Key: "node.name", Flag: "node-name", For: nodes | ForReset, Usage: "name of this node (default: the host name up to the first dot)"},
		{Key: "node.ip", Flag: "node-ip", For: nodes, Usage: "address of this node, for kubelet, API server, etcd and cloud (default: that of the default route)"},
		{Key: "node.bundle", Flag: "bundle", For: nodes, Usage: "file with the node's software and images; without it they are fetched"},
		{Key: "node.mirror", Flag: "mirror", For: nodes, Advanced: true, Usage: "address that stands in for the projects' release pages when there is no bundle"},
		{Key: "node.labels", Flag: "node-labels", For: nodes, Usage: "more labels for this node, key=value"},
		{Key: "node.enableHostAgent", Flag: "enable-host-agent", For: nodes, Usage: "let this node run virtual machines"},
		{Key: "node.hostNetworks", Flag: "host-networks", For: nodes,
			Usage: "NIC/BRIDGE/ADDRESS: bridge that takes over an interface and its address, for virtual machines (default: the host agent picks the default route's)"},
		{Key: "node.listenInterface", Flag: "listen-interface", For: nodes, Advanced: true,
			Usage: "interface by which the cloud reaches the host agent (default: the first bridge of --host-networks)"},
		{Key: "node.hostLocalImagePath", Flag: "host-local-image-path", For: nodes, Usage: "directory for disks of virtual machines (default: /opt/cloud/workspace/disks)"},
		{Key: "node.hugepages", Flag: "hugepages", For: nodes, Advanced: true,
			Usage: "memory pages of virtual machines: transparent, disable or native (default: transparent)"},
		{Key: "node.asController", Flag: "as-onecloud-controller", For: nodes, Usage: "let this node run the cloud's services (init does so always)"},
		{Key: "node.baremetal", Flag: "baremetal-node", For: nodes, Advanced: true, Usage: "label this node for the bare metal agent"},
		{Key: "node.criSocket", Flag: "cri-socket", For: nodes | ForReset, Advanced: true, Usage: "socket of a container runtime that is there already"},
		{Key: "node.firewall", Flag: "firewall", For: nodes, Advanced: true,
			Usage: "where firewalld runs: auto opens the node's ports, manual only checks that they are open and prints the commands"},
		{Key: "node.allowCgroupV1", Flag: "allow-cgroup-v1", For: nodes, Advanced: true, Usage: "let the kubelet run on cgroup v1, which Kubernetes 1.36 otherwise refuses"},
		{Key: "node.restrictOOMScoreAdj", Flag: "restrict-oom-score-adj", For: nodes, Advanced: true, Usage: "set no OOM score below containerd's own, which takes CAP_SYS_RESOURCE"},
		{Key: "node.conntrackMaxPerCore", Flag: "conntrack-max-per-core", For: nodes, Advanced: true, Usage: "connections tracked per core; 0 leaves the kernel's value"},
		{Key: "node.advertiseAddress", Flag: "apiserver-advertise-address", For: nodes, Advanced: true, Usage: "address the API server tells others (default: --node-ip)"},
		{Key: "node.bindPort", Flag: "apiserver-bind-port", For: nodes, Advanced: true, Usage: "port of the API server"},

		{Key: "cluster.controlPlaneEndpoint", Flag: "control-plane-endpoint", For: ForInit, Usage: "HOST[:PORT] by which nodes reach the control plane (default: this node)"},
		{Key: "cluster.imageRepository", Flag: "image-repository", For: nodes, Usage: "registry and path that every image comes from"},
		{Key: "cluster.kubernetesImageRepository", Flag: "kubernetes-image-repository", For: nodes, Advanced: true,
			Usage: "where Kubernetes' own images come from (default: --image-repository, or registry.k8s.io)"},
		{Key: "cluster.podNetworkCIDR", Flag: "pod-network-cidr", For: ForInit, Usage: "addresses of pods"},
		{Key: "cluster.serviceCIDR", Flag: "service-cidr", For: ForInit, Usage: "addresses of services"},
		{Key: "cluster.serviceDNSDomain", Flag: "service-dns-domain", For: ForInit, Advanced: true, Usage: "domain of services"},
		{Key: "cluster.nodeCIDRMaskSize", Flag: "node-cidr-mask-size", For: ForInit, Advanced: true, Usage: "length of the prefix of each node's pod addresses"},
		{Key: "cluster.apiserverCertExtraSANs", Flag: "apiserver-cert-extra-sans", For: ForInit, Advanced: true, Usage: "more names and addresses for the API server's certificate"},
		{Key: "cluster.kubernetesVersion", Flag: "kubernetes-version", For: nodes, Advanced: true, Usage: "version of Kubernetes; only the one this program was made for is accepted"},
		{Key: "cluster.featureGates", Flag: "feature-gates", For: ForInit, Advanced: true, Usage: "kubeadm's feature gates, NAME=true with commas between"},
		{Key: "cluster.proxyMode", Flag: "proxy-mode", For: ForInit, Advanced: true,
			Usage: "how kube-proxy works: nftables, iptables, or auto: nftables where the kernel is 5.13 or later"},
		{Key: "cluster.tokenTTL", Flag: "token-ttl", For: ForInit, Advanced: true, Usage: "how long the token of init lets nodes join"},
		{Key: "cluster.token", Flag: "token", For: ForInit, Secret: true, Advanced: true, Usage: "token by which nodes join (default: a random one)"},

		{Key: "addons.cni", Flag: "cni", For: ForInit, Usage: "pod network: flannel, or none to install your own"},
		{Key: "addons.storage", Flag: "storage", For: ForInit, Usage: "storage class: local-path or none"},
		{Key: "addons.storagePath", Flag: "storage-path", For: ForInit, Advanced: true, Usage: "directory of local-path volumes"},
		{Key: "addons.ingress", Flag: "ingress", For: ForInit, Usage: "web access on ports 80 and 443: traefik or none"},

		{Key: "join.token", Flag: "token", For: ForJoin, Secret: true, Usage: "token by which this node joins"},
		{Key: "join.caCertHashes", Flag: "discovery-token-ca-cert-hash", For: ForJoin, Usage: "hash of the cluster's certificate authority, sha256: and 64 digits"},
		{Key: "join.unsafeSkipCAVerification", Flag: "discovery-token-unsafe-skip-ca-verification", For: ForJoin, Advanced: true, Usage: "trust whoever answers at the endpoint"},
		{Key: "join.discoveryFile", Flag: "discovery-file", For: ForJoin, Advanced: true, Usage: "kubeconfig file, or its URL, instead of a token"},
		{Key: "join.timeout", Flag: "timeout", For: ForJoin, Advanced: true, Usage: "how long to look for the control plane, and to wait for the kubelet's certificate"},
		{Key: "join.endpoint", For: ForJoin, Usage: "HOST[:PORT] of the control plane: the argument of join"},
	}
}

// Field returns a pointer to the field of c that holds the setting with the given key. It panics if there is none: the table and the
// type are compared by a test.
func Field(c *Config, key string) any {
	v := reflect.ValueOf(c).Elem()
	for part := range strings.SplitSeq(key, ".") {
		i := fieldIndex(v.Type(), part)
		if i < 0 {
			panic("config has no key " + key)
		}
		v = v.Field(i)
	}
	return v.Addr().Interface()
}

func fieldIndex(t reflect.Type, name string) int {
	for i := range t.NumField() {
		if jsonName(t.Field(i)) == name {
			return i
		}
	}
	return -1
}

func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	if name == "-" {
		return ""
	}
	return name
}

// Text is the value of a setting as a flag takes it.
func Text(c *Config, key string) string {
	switch v := Field(c, key).(type) {
	case *string:
		return *v
	case *[]string:
		return strings.Join(*v, ",")
	case **int32:
		if *v == nil {
			return ""
		}
		return fmt.Sprint(**v)
	case *time.Duration:
		return v.String()
	default:
		return fmt.Sprint(reflect.ValueOf(v).Elem().Interface())
	}
}

// Inputs are the settings of a command that differ from the defaults, by flag, for the journal. Of a secret they only tell that it
// was set.
func Inputs(c *Config, command For) map[string]string {
	defaults := Default()
	out := map[string]string{}
	for _, s := range Settings() {
		if s.For&command == 0 {
			continue
		}
		text := Text(c, s.Key)
		if text == Text(&defaults, s.Key) {
			continue
		}
		if s.Secret {
			text = "(secret)"
		}
		name := "--" + s.Flag
		if s.Flag == "" {
			name = s.Key
		}
		out[name] = text
	}
	return out
}
