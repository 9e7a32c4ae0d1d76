// SPDX-License-Identifier: Apache-2.0

// Package config holds the installer's configuration: its types, defaults and validation. Package cmd merges flags, environment and file; nothing
// here reads a file or a variable.
package config

import (
	"cmp"
	"slices"
	"time"

	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/version"
)

// APIVersion and Kind are the first two fields of a configuration file.
const (
	APIVersion = "ocadm.yunion.io/v1"
	Kind       = "Configuration"
)

// Config holds all settings of init, join and reset. The JSON names are those of the configuration file; Settings maps each to its flag.
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
	Given    []string `json:"-"` // keys of the settings of flags, the environment and the file, even with the value of the default
}

// Cluster holds the settings of the Kubernetes cluster.
type Cluster struct {
	KubernetesVersion    string `json:"kubernetesVersion"`    // --kubernetes-version; the linked minor version or the one before
	ControlPlaneEndpoint string `json:"controlPlaneEndpoint"` // --control-plane-endpoint host[:port]; default advertiseAddress:bindPort
	// VirtualAddress is held by one of the control-plane nodes; keepalived moves it. The endpoint is this address or resolves to it. --high-availability-vip
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
	// CertificateValidity is the lifetime of the certificates of Kubernetes; 0 means kubeadm's default, a year. --certificate-validity-period
	CertificateValidity time.Duration `json:"certificateValidityPeriod"`
	// ImageRepository, if set, is the source of every image: Kubernetes, addons, operator, services. --image-repository
	ImageRepository string `json:"imageRepository"`
	// Kubeconfig is for commands that work on an existing cluster. --kubeconfig
	Kubeconfig string `json:"kubeconfig"`
}

// Node holds the settings of this machine.
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
	BundleCAHash     string   `json:"bundleCAHash"`     // --bundle-ca-hash sha256:HASH: the CA of that server
	BundleToken      string   `json:"bundleToken"`      // --bundle-token TOKEN: authenticates to that server
	BundleKey        string   `json:"bundleKey"`        // --bundle-key FILE: the key that must have signed the bundle
	// The settings of a compute node's host.conf. Empty ones keep the agent's default.
	HostNetworks       []string `json:"hostNetworks"`       // --host-networks NIC/BRIDGE/ADDRESS
	ListenInterface    string   `json:"listenInterface"`    // --listen-interface
	HostLocalImagePath []string `json:"hostLocalImagePath"` // --host-local-image-path
	Hugepages          string   `json:"hugepages"`          // --hugepages transparent|disable|native
	// Mirror replaces the projects' release pages: MIRROR/HOST/PATH for https://HOST/PATH. It may be http, because every download is checked against
	// a digest built into this program. --mirror
	Mirror string `json:"mirror"`
	// Depot is the HOST:PORT of the depot to install from and to pull from first; empty means the control plane's, None means no depot. --depot
	Depot string `json:"depot"`
	// Offline restricts containerd to the depot; it contacts no other registry. --offline
	Offline bool `json:"offline"`
	// RegistryMirrors lists servers that are tried before the registry of an image: REGISTRY=URL. --registry-mirror
	RegistryMirrors []string `json:"registryMirrors"`
	// RegistryConfig is a docker config.json with registry credentials. --registry-config
	RegistryConfig string `json:"registryConfig"`
	// RegistryAuth holds its credentials, as a docker config.json with nothing else; package cmd reads them.
	RegistryAuth string `json:"-"`
	// HTTPProxy and HTTPSProxy are the proxies of ocadm and containerd. NoProxy lists what is reached without them; Complete adds the cluster. They
	// default to the environment. --http-proxy, --https-proxy, --no-proxy
	HTTPProxy  string   `json:"httpProxy"`
	HTTPSProxy string   `json:"httpsProxy"`
	NoProxy    []string `json:"noProxy"`
	// Firewall selects how ocadm treats firewalld: FirewallAuto or FirewallManual. --firewall
	Firewall string `json:"firewall"`
	// CgroupV1 lets the kubelet run on cgroup v1, which Kubernetes 1.36 otherwise refuses. --allow-cgroup-v1
	CgroupV1              bool   `json:"allowCgroupV1"`
	ContainerdRestrictOOM bool   `json:"restrictOOMScoreAdj"` // --restrict-oom-score-adj, for machines without CAP_SYS_RESOURCE
	ConntrackMaxPerCore   *int32 `json:"conntrackMaxPerCore"` // --conntrack-max-per-core; 0 keeps the kernel's value
}

// Database holds the settings of the cloud's MySQL or MariaDB server. An empty Host means the embedded one.
type Database struct {
	Host         string `json:"host"`         // --mysql-host
	Port         int    `json:"port"`         // --mysql-port
	User         string `json:"user"`         // --mysql-user
	Password     string `json:"password"`     // --mysql-password (scrubbed from argv), OCADM_MYSQL_PASSWORD
	PasswordFile string `json:"passwordFile"` // --mysql-password-file, "-" is standard input
	StorageSize  string `json:"storageSize"`  // --mysql-storage-size of the embedded server
	TLS          string `json:"tls"`          // --mysql-tls, a mode of internal/mysql
	CAFile       string `json:"caFile"`       // --mysql-ca-file
	// CA is the content of CAFile; package cmd reads it.
	CA string `json:"-"`
}

// Gives reports whether a flag, the environment or the file sets one of these keys.
func (c *Config) Gives(keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return slices.Contains(c.Given, key) })
}

// OperatorImage returns the operator image that the configuration selects.
func (c *Config) OperatorImage() string {
	return cmp.Or(c.Cloud.OperatorImage, images.OperatorRef(c.Cluster.ImageRepository, cmp.Or(c.Cloud.OperatorVersion, version.Version)))
}

// PacksOperator reports whether the operator image is this program itself, which init and join bring to their node. Another image or version comes
// from a registry or a bundle.
func (c *Config) PacksOperator() bool {
	return c.Cloud.OperatorImage == "" && cmp.Or(c.Cloud.OperatorVersion, version.Version) == version.Version
}

// AsksForCloud reports whether "operator install" also prepares a cloud.
func (c *Config) AsksForCloud() bool { return c.Cloud.Version != "" || c.Database.Host != "" }

// Cloud holds the settings of the OnecloudCluster that init may create at the end.
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
	// StorageClass is the class of the cloud's volumes; empty: DefaultStorageClass. --storage-class
	StorageClass string `json:"storageClass"`
	// IngressClass is the class of the web console's ingress; None: ports 80 and 443 of controller nodes; empty: the cluster's default class. --ingress-class
	IngressClass string `json:"ingressClass"`
	// ControllerNodes lists the nodes that get the role controller in an existing cluster. --controller-nodes
	ControllerNodes []string `json:"controllerNodes"`
	// Images lists the images of the chosen cloud; package cmd computes them, and preflight checks them against the bundle.
	Images []string `json:"-"`
	// ImageRoles maps an ImageName to the roles of the nodes that run the image. An empty list means every node, a missing image no node. Package cmd
	// computes them for join.
	ImageRoles map[string][]string `json:"-"`
}

// Addons selects what is installed beside Kubernetes.
type Addons struct {
	CNI         string `json:"cni"`         // --cni flannel|none
	Storage     string `json:"storage"`     // --storage local-path|none
	StoragePath string `json:"storagePath"` // --storage-path, default /opt/local-path-provisioner
	Ingress     string `json:"ingress"`     // --ingress traefik|none
}

// Join holds the settings by which a node finds its cluster.
type Join struct {
	Endpoint                 string        `json:"endpoint"` // the argument HOST[:PORT], port 6443 by default
	Token                    string        `json:"token"`
	CACertHashes             []string      `json:"caCertHashes"`             // --discovery-token-ca-cert-hash
	UnsafeSkipCAVerification bool          `json:"unsafeSkipCAVerification"` // --discovery-token-unsafe-skip-ca-verification
	DiscoveryFile            string        `json:"discoveryFile"`
	Timeout                  time.Duration `json:"timeout"`
	// ControlPlane joins this machine as a control-plane node, not as a worker. --control-plane
	ControlPlane bool `json:"controlPlane"`
	// CertificateKey decrypts the CAs that "token create --control-plane" stores in the cluster for two hours. --certificate-key
	CertificateKey string `json:"certificateKey"`
}

// Operator holds the settings of "operator run".
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

// Run holds the settings of this run only; they are not part of a configuration file.
type Run struct {
	DryRun                bool
	SkipPhases            []string
	IgnorePreflightErrors []string
	OnFailure             string // keep|rollback
	Force                 bool
	Keep                  []string // what reset keeps: images
	AbandonEtcd           bool     // reset even if etcd has no majority without this machine
	Phase                 string   // the only phase that runs; "" runs all
	Kubeconfig            string
}
