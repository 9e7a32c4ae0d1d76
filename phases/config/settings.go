// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/mysql"
)

// For is a set of commands that a setting belongs to.
type For uint8

// The commands that take settings.
const (
	ForInit For = 1 << iota
	ForJoin
	ForReset
	// ForCloud stands for the commands that work on an existing cloud: cluster, component, node.
	ForCloud
	// ForOperator is "operator run".
	ForOperator
	// ForInstall is "operator install", on an existing cluster.
	ForInstall
)

// Setting describes one setting: its key in the configuration file, its flag and its help text. Its environment variable is OCADM_ and the flag in capitals.
type Setting struct {
	Key, Flag string
	// Was is the former name of the flag, which is still accepted.
	Was   string
	Usage string
	For   For
	// Choices lists the accepted values; an empty list accepts any value.
	Choices []string
	// Secret values are kept out of argv, logs, the journal and "config print".
	Secret bool
	// Advanced settings are listed last in help.
	Advanced bool
}

// Env returns the name of the setting's environment variable.
func (s Setting) Env() string { return env(s.Flag) }

// Envs returns the environment variables of the setting; the first that is set counts.
func (s Setting) Envs() []string {
	if s.Was == "" {
		return []string{s.Env()}
	}
	return []string{s.Env(), env(s.Was)}
}

func env(flag string) string {
	return "OCADM_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Find returns the setting with the given key. It panics if there is no such setting.
func Find(key string) Setting {
	for _, s := range Settings() {
		if s.Key == key {
			return s
		}
	}
	panic("config has no setting " + key)
}

// Settings returns all settings, in the order of help. A new setting needs a field in Config and a line here.
func Settings() []Setting {
	return slices.Concat(databaseSettings(), cloudSettings(), nodeSettings(), clusterSettings(), joinSettings(), operatorSettings())
}

// nodes are the commands that install a node.
const nodes = ForInit | ForJoin

func databaseSettings() []Setting {
	return []Setting{
		{Key: "database.host", Flag: "mysql-host", For: ForInit | ForInstall, Usage: "host of the MySQL or MariaDB server for the cloud; empty installs an embedded MariaDB"},
		{Key: "database.port", Flag: "mysql-port", For: ForInit | ForInstall, Usage: "port of the database server"},
		{Key: "database.user", Flag: "mysql-user", For: ForInit | ForInstall, Usage: "administrator account of the database server; it needs all privileges WITH GRANT OPTION"},
		{Key: "database.password", Flag: "mysql-password", For: ForInit | ForInstall, Secret: true,
			Usage: "password of the administrator account; briefly visible in the process list, prefer --mysql-password-file"},
		{Key: "database.passwordFile", Flag: "mysql-password-file", For: ForInit | ForInstall, Usage: "file that contains the password; - reads standard input"},
		{Key: "database.tls", Flag: "mysql-tls", For: ForInit | ForInstall, Choices: mysql.TLSModes(),
			Usage: "TLS to the database server: disabled, preferred (if the server offers it), required, verify-ca or verify-identity"},
		{Key: "database.caFile", Flag: "mysql-ca-file", For: ForInit | ForInstall, Usage: "CA certificates for verify-ca and verify-identity (default: the system's)"},
		{Key: "database.storageSize", Flag: "mysql-storage-size", For: ForInit | ForInstall, Advanced: true, Usage: "volume size of the embedded database"},
	}
}

func cloudSettings() []Setting {
	const all = ForInit | ForInstall | ForCloud
	return []Setting{
		{Key: "cloud.version", Flag: "onecloud-version", For: all, Usage: "create a cloud of this version at the end; empty creates none"},
		{Key: "cloud.operatorVersion", Flag: "operator-version", For: all, Advanced: true, Usage: "version of the operator image (default: the version of this program)"},
		{Key: "cloud.operatorImage", Flag: "operator-image", For: all, Advanced: true,
			Usage: "operator image, REPOSITORY:TAG; overrides --image-repository and --operator-version"},
		{Key: "cloud.region", Flag: "region", For: all, Usage: "name of the cloud's region"},
		{Key: "cloud.zone", Flag: "zone", For: all, Usage: "name of the cloud's first zone"},
		{Key: "cloud.edition", Flag: "edition", For: all, Choices: []string{"ce", "ce/support", "ee"}, Advanced: true, Usage: "edition of the cloud"},
		{Key: "cloud.productVersion", Flag: "product-version", For: all, Choices: []string{"FullStack", "CMP", "Edge", "LightEdge", "AI"}, Advanced: true,
			Usage: "product of the cloud, which decides its set of components: FullStack, CMP, Edge, LightEdge or AI"},
		{Key: "cloud.profile", Flag: "profile", For: all, Choices: []string{"small", "ha"}, Advanced: true,
			Usage: "copies of the cloud's services: small runs one of each, ha runs two of each that supports it, on different nodes"},
		{Key: "cloud.name", Flag: "cloud-name", Was: "cluster-name", For: all, Advanced: true, Usage: "name of the OnecloudCluster"},
		{Key: "cloud.namespace", Flag: "cloud-namespace", Was: "cluster-namespace", For: all | ForOperator, Advanced: true, Usage: "namespace of the operator and the cloud"},
		{Key: "cloud.loadBalancerEndpoint", Flag: "load-balancer-endpoint", For: all, Advanced: true,
			Usage: "address at which users reach the cloud (default: host of the control-plane endpoint; operator install: address of a controller node)"},
		{Key: "cloud.disableResourceManagement", Flag: "disable-resource-management", For: all, Advanced: true, Usage: "set no resource requests and limits on the components"},
		{Key: "cloud.useHyperImage", Flag: "use-hyper-image", For: all, Advanced: true, Usage: "run most components from one combined image"},
		{Key: "cloud.storageClass", Flag: "storage-class", For: ForInit | ForInstall, Advanced: true,
			Usage: "storage class of the cloud's volumes (default: local-path; operator install: the cluster's default or only class)"},
		{Key: "cloud.ingressClass", Flag: "ingress-class", For: ForInit | ForInstall, Advanced: true,
			Usage: "ingress class of the web console; none opens ports 80 and 443 of controller nodes instead (default: the cluster's default or only class)"},
		{Key: "cloud.controllerNodes", Flag: "controller-nodes", For: ForInstall,
			Usage: "nodes that run the cloud's services (default: the nodes that have the role, or the only node)"},
		{Key: "cloud.wait", Flag: "wait", For: ForInit | ForInstall, Usage: "wait until every component of the new cloud is available"},
	}
}

func nodeSettings() []Setting {
	return []Setting{
		{Key: "node.name", Flag: "node-name", For: nodes | ForReset, Usage: "name of this node (default: the host name up to the first dot)"},
		{Key: "node.ip", Flag: "node-ip", For: nodes, Usage: "address of this node for kubelet, API server, etcd and the cloud (default: source address of the default route)"},
		{Key: "node.bundle", Flag: "bundle", For: nodes,
			Usage: "bundle with the node's software and images, a file or https://HOST:PORT of \"bundle serve\"; without it, init downloads them and join gets them from the depot"},
		{Key: "node.bundleCAHash", Flag: "bundle-ca-hash", For: nodes, Advanced: true,
			Usage: "hash of the certificate authority of the server that --bundle names, as \"bundle serve\" prints it"},
		{Key: "node.bundleToken", Flag: "bundle-token", For: nodes, Secret: true, Advanced: true, Usage: "token that the server of --bundle requires"},
		{Key: "node.bundleKey", Flag: "bundle-key", For: nodes, Advanced: true, Usage: "public key, in PEM, with which the bundle must be signed"},
		{Key: "node.mirror", Flag: "mirror", For: nodes, Advanced: true, Usage: "mirror of the projects' release pages, used when there is no bundle"},
		{Key: "node.depot", Flag: "depot", For: nodes, Advanced: true,
			Usage: "HOST:PORT of the depot to install from and to pull images from first; none uses the internet (default: port 6444 of the control plane)"},
		{Key: "node.offline", Flag: "offline", For: nodes, Usage: "pull images only from the depot, never from a registry"},
		{Key: "node.registryMirrors", Flag: "registry-mirror", For: nodes,
			Usage: "REGISTRY=URL: server that is tried for the images of a registry before the registry itself, such as docker.io=https://mirror.example.org"},
		{Key: "node.registryConfig", Flag: "registry-config", For: nodes | ForInstall,
			Usage: "docker config.json with credentials for registries: for Kubernetes, the addons, the operator and the cloud"},
		{Key: "node.httpProxy", Flag: "http-proxy", For: nodes, Secret: true, Advanced: true, Usage: "proxy for http of ocadm and containerd (default: $HTTP_PROXY)"},
		{Key: "node.httpsProxy", Flag: "https-proxy", For: nodes, Secret: true, Advanced: true, Usage: "proxy for https of ocadm and containerd (default: $HTTPS_PROXY)"},
		{Key: "node.noProxy", Flag: "no-proxy", For: nodes, Advanced: true,
			Usage: "addresses, networks and domains that need no proxy, in addition to those of the cluster (default: $NO_PROXY)"},
		{Key: "node.labels", Flag: "node-labels", For: nodes, Usage: "additional labels for this node, key=value"},
		{Key: "node.enableHostAgent", Flag: "enable-host-agent", For: nodes, Usage: "run virtual machines on this node"},
		{Key: "node.hostNetworks", Flag: "host-networks", For: nodes,
			Usage: "NIC/BRIDGE/ADDRESS: bridge for virtual machines that takes over an interface and its address (default: the host agent uses the default route's interface)"},
		{Key: "node.listenInterface", Flag: "listen-interface", For: nodes, Advanced: true,
			Usage: "interface on which the cloud reaches the host agent (default: the first bridge of --host-networks)"},
		{Key: "node.hostLocalImagePath", Flag: "host-local-image-path", For: nodes, Usage: "directory for the disks of virtual machines (default: /opt/cloud/workspace/disks)"},
		{Key: "node.hugepages", Flag: "hugepages", For: nodes, Choices: []string{"transparent", "disable", "native"}, Advanced: true,
			Usage: "huge pages for virtual machines: transparent, disable or native (default: transparent)"},
		{Key: "node.asController", Flag: "as-onecloud-controller", For: nodes, Usage: "run the cloud's services on this node (init always does)"},
		{Key: "node.baremetal", Flag: "baremetal-node", For: nodes, Advanced: true, Usage: "label this node for the bare metal agent"},
		{Key: "node.criSocket", Flag: "cri-socket", For: nodes | ForReset, Advanced: true, Usage: "socket of an existing container runtime"},
		{Key: "node.firewall", Flag: "firewall", For: nodes, Choices: []string{FirewallAuto, FirewallManual}, Advanced: true,
			Usage: "with firewalld: auto opens the node's ports; manual only checks them and prints the commands"},
		{Key: "node.allowCgroupV1", Flag: "allow-cgroup-v1", For: nodes, Advanced: true, Usage: "let the kubelet run on cgroup v1, which Kubernetes 1.36 refuses by default"},
		{Key: "node.restrictOOMScoreAdj", Flag: "restrict-oom-score-adj", For: nodes, Advanced: true,
			Usage: "set no OOM score below containerd's own, for machines without CAP_SYS_RESOURCE"},
		{Key: "node.conntrackMaxPerCore", Flag: "conntrack-max-per-core", For: nodes, Advanced: true, Usage: "tracked connections per core; 0 keeps the kernel's value"},
		{Key: "node.advertiseAddress", Flag: "apiserver-advertise-address", For: nodes, Advanced: true, Usage: "address that the API server advertises (default: --node-ip)"},
		{Key: "node.bindPort", Flag: "apiserver-bind-port", For: nodes, Advanced: true, Usage: "port of the API server"},
	}
}

func clusterSettings() []Setting {
	return []Setting{
		{Key: "cluster.controlPlaneEndpoint", Flag: "control-plane-endpoint", For: ForInit, Usage: "HOST[:PORT] at which nodes reach the control plane (default: this node)"},
		{Key: "cluster.highAvailabilityVIP", Flag: "high-availability-vip", For: ForInit,
			Usage: "free IPv4 address in this node's network for the control plane; keepalived moves it to another control-plane node when its node is lost"},
		{Key: "cluster.imageRepository", Flag: "image-repository", For: nodes | ForInstall | ForCloud, Usage: "registry and path of all images"},
		{Key: "cluster.kubernetesImageRepository", Flag: "kubernetes-image-repository", For: nodes, Advanced: true,
			Usage: "registry and path of the Kubernetes images (default: --image-repository, or registry.k8s.io)"},
		{Key: "cluster.podNetworkCIDR", Flag: "pod-network-cidr", For: ForInit, Usage: "address range of pods"},
		{Key: "cluster.serviceCIDR", Flag: "service-cidr", For: ForInit, Usage: "address range of services"},
		{Key: "cluster.serviceDNSDomain", Flag: "service-dns-domain", For: ForInit, Advanced: true, Usage: "DNS domain of services"},
		{Key: "cluster.nodeCIDRMaskSize", Flag: "node-cidr-mask-size", For: ForInit, Advanced: true, Usage: "prefix length of each node's pod range"},
		{Key: "cluster.apiserverCertExtraSANs", Flag: "apiserver-cert-extra-sans", For: ForInit, Advanced: true,
			Usage: "additional names and addresses for the API server certificate; names of an earlier init are kept"},
		{Key: "cluster.kubernetesVersion", Flag: "kubernetes-version", For: nodes, Advanced: true,
			Usage: "version of Kubernetes: of the minor version built into this program or of the previous one"},
		{Key: "cluster.featureGates", Flag: "feature-gates", For: ForInit, Advanced: true, Usage: "kubeadm feature gates, NAME=true, separated by commas"},
		{Key: "cluster.proxyMode", Flag: "proxy-mode", For: ForInit, Choices: []string{ProxyAuto, ProxyNFTables, ProxyIPTables}, Advanced: true,
			Usage: "mode of kube-proxy; auto selects nftables on kernel 5.13 or later"},
		{Key: "cluster.tokenTTL", Flag: "token-ttl", For: ForInit, Advanced: true, Usage: "lifetime of the join token that init creates"},
		{Key: "cluster.certificateValidityPeriod", Flag: "certificate-validity-period", For: ForInit, Advanced: true,
			Usage: "lifetime of the certificates of Kubernetes, at least 15m; 0 means a year; authorities last ten years"},
		{Key: "cluster.token", Flag: "token", For: ForInit, Secret: true, Advanced: true, Usage: "join token (default: a random one)"},
		{Key: "cluster.kubeconfig", Flag: "kubeconfig", For: ForReset | ForInstall | ForCloud | ForOperator, Advanced: true,
			Usage: "kubeconfig file of an administrator (default: $KUBECONFIG, /etc/kubernetes/admin.conf, ~/.kube/config)"},

		{Key: "addons.cni", Flag: "cni", For: ForInit, Choices: []string{"flannel", None}, Usage: "pod network; none if you install your own"},
		{Key: "addons.storage", Flag: "storage", For: ForInit, Choices: []string{"local-path", None}, Usage: "default storage class"},
		{Key: "addons.storagePath", Flag: "storage-path", For: ForInit, Advanced: true, Usage: "directory of local-path volumes"},
		{Key: "addons.ingress", Flag: "ingress", For: ForInit, Choices: []string{"traefik", None}, Usage: "web access on ports 80 and 443"},
	}
}

func joinSettings() []Setting {
	return []Setting{
		{Key: "join.token", Flag: "token", For: ForJoin, Secret: true, Usage: "join token"},
		{Key: "join.caCertHashes", Flag: "discovery-token-ca-cert-hash", For: ForJoin, Usage: "hash of the cluster's CA certificate, sha256: and 64 digits"},
		{Key: "join.unsafeSkipCAVerification", Flag: "discovery-token-unsafe-skip-ca-verification", For: ForJoin, Advanced: true, Usage: "trust any server that answers at the endpoint"},
		{Key: "join.discoveryFile", Flag: "discovery-file", For: ForJoin, Advanced: true, Usage: "kubeconfig file, or its URL, instead of a token"},
		{Key: "join.timeout", Flag: "timeout", For: ForJoin, Advanced: true, Usage: "how long to wait for the control plane and for the kubelet's certificate"},
		{Key: "join.controlPlane", Flag: "control-plane", For: ForJoin, Usage: "join this machine as a control-plane node, not as a worker"},
		{Key: "join.certificateKey", Flag: "certificate-key", For: ForJoin, Secret: true,
			Usage: "key of the cluster's certificate authorities for --control-plane; \"token create --print-join-command --control-plane\" prints it"},
		{Key: "join.endpoint", For: ForJoin, Usage: "HOST[:PORT] of the control plane: the argument of join"},
	}
}

func operatorSettings() []Setting {
	return []Setting{
		{Key: "operator.namespaces", Flag: "namespaces", For: ForOperator, Usage: "namespaces of the clouds; * for all, which needs permissions in the whole cluster"},
		{Key: "operator.leaderElect", Flag: "leader-elect", For: ForOperator, Usage: "run only while holding the leader election lease"},
		{Key: "operator.metricsAddress", Flag: "metrics-address", For: ForOperator, Usage: "listen address of /metrics; 0 disables it"},
		{Key: "operator.healthAddress", Flag: "health-address", For: ForOperator, Usage: "listen address of /healthz and /readyz; 0 disables it"},
		{Key: "operator.profileAddress", Flag: "profile-address", For: ForOperator, Advanced: true,
			Usage: "listen address of the Go profiler; 0 disables it. It exposes the memory of the process: use a loopback address"},
		{Key: "operator.auditInterval", Flag: "audit-interval", For: ForOperator,
			Usage: "how often to verify databases, accounts and endpoints when nothing has changed; negative for never"},
		{Key: "operator.apiAddress", Flag: "api-addr", For: ForOperator, Usage: "listen address of the REST API; empty disables it"},
		{Key: "operator.apiCertificate", Flag: "api-cert", For: ForOperator, Usage: "file with the certificate of the REST API, in PEM; a changed file is read again"},
		{Key: "operator.apiKey", Flag: "api-key", For: ForOperator, Usage: "file with the private key of the REST API, in PEM"},
	}
}

// Field returns a pointer to the field of c that holds the setting with the given key. It panics if there is no such field: a test compares the table with the type.
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

// Text returns the value of a setting in the form of its flag.
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

// Inputs returns the settings of a command that differ from the defaults, by flag, for the journal. For secrets it only records that they were set.
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
