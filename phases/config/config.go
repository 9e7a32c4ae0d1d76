// SPDX-License-Identifier: Apache-2.0

// Package config is the installer's configuration: its types, defaults and validation. How flags, environment and file become
// one, is the business of package cmd; nothing here reads a file or a variable.
package config

import (
	"cmp"
	"time"

	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/version"
)

// APIVersion and Kind head a configuration file.
const (
	APIVersion = "ocadm.yunion.io/v1"
	Kind       = "Configuration"
)

// Config is every setting of init, join and reset. The JSON names are those of the configuration file; Settings gives each its flag.
type Config struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	Cluster  Cluster  `json:"cluster"`
	Node     Node     `json:"node"`
	Database Database `json:"database"`
	Cloud    Cloud    `json:"cloud"`
	Addons   Addons   `json:"addons"`
	Join     Join     `json:"join"`
	Operator Operator `json:"operator"`
	Run      Run      `json:"-"`
}

// Cluster is the Kubernetes cluster.
type Cluster struct {
	KubernetesVersion    string `json:"kubernetesVersion"`    // --kubernetes-version; the linked minor version or the one before
	ControlPlaneEndpoint string `json:"controlPlaneEndpoint"` // --control-plane-endpoint host[:port]; default advertiseAddress:bindPort
	// VirtualAddress is held by one of the control-plane nodes; keepalived moves it. It is the endpoint, or what the endpoint resolves to.
	// --high-availability-vip
	VirtualAddress            string        `json:"highAvailabilityVIP"`
	PodNetworkCIDR            string        `json:"podNetworkCIDR"`            // --pod-network-cidr
	ServiceCIDR               string        `json:"serviceCIDR"`               // --service-cidr
	ServiceDNSDomain          string        `json:"serviceDNSDomain"`          // --service-dns-domain
	NodeCIDRMaskSize          int           `json:"nodeCIDRMaskSize"`          // --node-cidr-mask-size
	APIServerCertExtraSANs    []string      `json:"apiserverCertExtraSANs"`    // --apiserver-cert-extra-sans
	KubernetesImageRepository string        `json:"kubernetesImageRepository"` // --kubernetes-image-repository; default registry.k8s.io, or imageRepository when that was set
	FeatureGates              string        `json:"featureGates"`              // --feature-gates
	ProxyMode                 string        `json:"proxyMode"`                 // --proxy-mode auto|nftables|iptables
	Token                     string        `json:"token"`                     // --token
	TokenTTL                  time.Duration `json:"tokenTTL"`                  // --token-ttl
	// CertificateValidity is the lifetime of the certificates of Kubernetes; 0 is kubeadm's, a year. --certificate-validity-period
	CertificateValidity time.Duration `json:"certificateValidityPeriod"`
	// ImageRepository, when set, is where every image comes from: Kubernetes, addons, operator, services. --image-repository
	ImageRepository string `json:"imageRepository"`
	// Kubeconfig is for commands that work on a cluster that exists. --kubeconfig
	Kubeconfig string `json:"kubeconfig"`
}

// Node is this machine.
type Node struct {
	Name             string   `json:"name"`             // --node-name
	IP               string   `json:"ip"`               // --node-ip: one setting for kubelet, API server, etcd and CR
	AdvertiseAddress string   `json:"advertiseAddress"` // --apiserver-advertise-address, default IP
	BindPort         int      `json:"bindPort"`         // --apiserver-bind-port
	CRISocket        string   `json:"criSocket"`        // --cri-socket
	Labels           []string `json:"labels"`           // --node-labels, added to the roles below
	EnableHostAgent  bool     `json:"enableHostAgent"`  // --enable-host-agent → onecloud.yunion.io/host=enable
	AsController     bool     `json:"asController"`     // --as-onecloud-controller; init: always → onecloud.yunion.io/controller=enable
	Baremetal        bool     `json:"baremetal"`        // --baremetal-node
	Bundle           string   `json:"bundle"`           // --bundle FILE, or https://HOST:PORT of "bundle serve"
	BundleCAHash     string   `json:"bundleCAHash"`     // --bundle-ca-hash sha256:HASH: the authority of that server
	BundleToken      string   `json:"bundleToken"`      // --bundle-token TOKEN: what is shown to that server
	BundleKey        string   `json:"bundleKey"`        // --bundle-key FILE: who must have signed the bundle
	// The settings of a compute node's host.conf. Empty ones leave the agent's default.
	HostNetworks       []string `json:"hostNetworks"`       // --host-networks NIC/BRIDGE/ADDRESS
	ListenInterface    string   `json:"listenInterface"`    // --listen-interface
	HostLocalImagePath []string `json:"hostLocalImagePath"` // --host-local-image-path
	Hugepages          string   `json:"hugepages"`          // --hugepages transparent|disable|native
	// Mirror stands in for the projects' release pages: MIRROR/HOST/PATH for https://HOST/PATH. It may be http: every download is compared
	// with a digest that is part of this program. --mirror
	Mirror string `json:"mirror"`
	// Depot is HOST:PORT of the depot to install from and to pull from first; empty is the control plane's, None is no depot. --depot
	Depot string `json:"depot"`
	// Offline lets containerd ask no registry but the depot. --offline
	Offline bool `json:"offline"`
	// RegistryMirrors are servers that are asked for images before their registry: REGISTRY=URL. --registry-mirror
	RegistryMirrors []string `json:"registryMirrors"`
	// RegistryConfig is a docker config.json with credentials for registries. --registry-config
	RegistryConfig string `json:"registryConfig"`
	// RegistryAuth are the credentials in it, as a docker config.json with nothing else; package cmd reads them.
	RegistryAuth string `json:"-"`
	// HTTPProxy and HTTPSProxy are the proxies of ocadm and containerd, NoProxy what is reached without them; Complete adds the cluster to
	// it. Without a setting they are those of the environment. --http-proxy, --https-proxy, --no-proxy
	HTTPProxy  string   `json:"httpProxy"`
	HTTPSProxy string   `json:"httpsProxy"`
	NoProxy    []string `json:"noProxy"`
	// Firewall says what happens where firewalld runs: FirewallAuto or FirewallManual. --firewall
	Firewall string `json:"firewall"`
	// CgroupV1 lets the kubelet run on cgroup v1, which Kubernetes 1.36 otherwise refuses. --allow-cgroup-v1
	CgroupV1              bool   `json:"allowCgroupV1"`
	ContainerdRestrictOOM bool   `json:"restrictOOMScoreAdj"` // --restrict-oom-score-adj, for machines without CAP_SYS_RESOURCE
	ConntrackMaxPerCore   *int32 `json:"conntrackMaxPerCore"` // --conntrack-max-per-core; 0 leaves the kernel's value
}

// Database is the MySQL or MariaDB server of the cloud. An empty Host means the embedded one.
type Database struct {
	Host         string `json:"host"`         // --mysql-host
	Port         int    `json:"port"`         // --mysql-port
	User         string `json:"user"`         // --mysql-user
	Password     string `json:"password"`     // --mysql-password (scrubbed from argv), OCADM_MYSQL_PASSWORD
	PasswordFile string `json:"passwordFile"` // --mysql-password-file, "-" is standard input
	StorageSize  string `json:"storageSize"`  // --mysql-storage-size of the embedded one
	TLS          string `json:"tls"`          // --mysql-tls, a mode of internal/mysql
	CAFile       string `json:"caFile"`       // --mysql-ca-file
	// CA is what lies in CAFile; package cmd reads it.
	CA string `json:"-"`
}

// OperatorImage is the image of the operator that the configuration asks for.
func (c *Config) OperatorImage() string {
	return cmp.Or(c.Cloud.OperatorImage, images.OperatorRef(c.Cluster.ImageRepository, cmp.Or(c.Cloud.OperatorVersion, version.Version)))
}

// PacksOperator reports whether the image of the operator is this program itself, which init and join bring to their node. Another image
// or version comes from a registry or a bundle.
func (c *Config) PacksOperator() bool {
	return c.Cloud.OperatorImage == "" && cmp.Or(c.Cloud.OperatorVersion, version.Version) == version.Version
}

// AsksForCloud reports whether "operator install" prepares a cloud in addition to the operator.
func (c *Config) AsksForCloud() bool { return c.Cloud.Version != "" || c.Database.Host != "" }

// Cloud is the OnecloudCluster that init may create at the end.
type Cloud struct {
	Name                      string `json:"name"`
	Namespace                 string `json:"namespace"`
	Version                   string `json:"version"`         // --onecloud-version; empty: no cloud is created
	OperatorImage             string `json:"operatorImage"`   // --operator-image; empty: from the repository and operatorVersion
	OperatorVersion           string `json:"operatorVersion"` // --operator-version, default this ocadm's version
	Region                    string `json:"region"`
	Zone                      string `json:"zone"`
	Edition                   string `json:"edition"` // ce, ce/support, ee
	ProductVersion            string `json:"productVersion"`
	Profile                   string `json:"profile"`              // small, ha
	LoadBalancerEndpoint      string `json:"loadBalancerEndpoint"` // default: host of the control plane endpoint
	DisableResourceManagement bool   `json:"disableResourceManagement"`
	UseHyperImage             bool   `json:"useHyperImage"`
	Wait                      bool   `json:"wait"`
	// StorageClass of the cloud's volumes; empty: DefaultStorageClass. --storage-class
	StorageClass string `json:"storageClass"`
	// IngressClass of the web console; None: ports 80 and 443 of controller nodes; empty: the cluster's default class. --ingress-class
	IngressClass string `json:"ingressClass"`
	// ControllerNodes of a cluster that others built get the role controller. --controller-nodes
	ControllerNodes []string `json:"controllerNodes"`
	// Images are what the chosen cloud needs; package cmd computes them, preflight checks them against the bundle.
	Images []string `json:"-"`
	// ImageRoles are the roles of the nodes that run an image, by ImageName; no role stands for every node, and an image that is not
	// there for any. Package cmd computes them for join.
	ImageRoles map[string][]string `json:"-"`
}

// Addons are what is installed beside Kubernetes.
type Addons struct {
	CNI         string `json:"cni"`         // --cni flannel|none
	Storage     string `json:"storage"`     // --storage local-path|none
	StoragePath string `json:"storagePath"` // --storage-path, default /opt/local-path-provisioner
	Ingress     string `json:"ingress"`     // --ingress traefik|none
}

// Join is how a node finds its cluster.
type Join struct {
	Endpoint                 string        `json:"endpoint"` // the argument HOST[:PORT], port 6443 by default
	Token                    string        `json:"token"`
	CACertHashes             []string      `json:"caCertHashes"`             // --discovery-token-ca-cert-hash
	UnsafeSkipCAVerification bool          `json:"unsafeSkipCAVerification"` // --discovery-token-unsafe-skip-ca-verification
	DiscoveryFile            string        `json:"discoveryFile"`
	Timeout                  time.Duration `json:"timeout"`
	// ControlPlane makes a control-plane node of this machine, not a worker. --control-plane
	ControlPlane bool `json:"controlPlane"`
	// CertificateKey decrypts the cluster's authorities, which "token create --control-plane" stores in it for two hours. --certificate-key
	CertificateKey string `json:"certificateKey"`
}

// Operator is how "operator run" behaves.
type Operator struct {
	Namespaces     []string      `json:"namespaces"`
	LeaderElect    bool          `json:"leaderElect"`
	MetricsAddress string        `json:"metricsAddress"`
	HealthAddress  string        `json:"healthAddress"`
	ProfileAddress string        `json:"profileAddress"`
	AuditInterval  time.Duration `json:"auditInterval"`
	APIAddress     string        `json:"apiAddress"`
	APICertificate string        `json:"apiCertificate"`
	APIKey         string        `json:"apiKey"`
}

// Run is how this one run behaves; it is not part of a configuration file.
type Run struct {
	DryRun                bool
	SkipPhases            []string
	IgnorePreflightErrors []string
	OnFailure             string // keep|rollback
	Force                 bool
	Keep                  []string // what reset leaves: images
	AbandonEtcd           bool     // reset although etcd has no majority without the machine
	Phase                 string   // the only phase that runs; "" runs all
	Kubeconfig            string
}
