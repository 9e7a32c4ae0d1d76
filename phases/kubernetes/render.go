// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/semver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	proxyv1alpha1 "k8s.io/kube-proxy/config/v1alpha1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	bootstraptokenv1 "k8s.io/kubernetes/cmd/kubeadm/app/apis/bootstraptoken/v1"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	"k8s.io/kubernetes/cmd/kubeadm/app/features"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/config"
)

const (
	kubeadmAPIVersion  = "kubeadm.k8s.io/v1beta4"
	defaultTokenTTL    = 24 * time.Hour
	nodeMonitorGrace   = "16s"
	nodeMonitorPeriod  = "2s"
	podFailoverSeconds = "10"
	clientQPS          = "200"
	clientBurst        = "400"
	nodeLeaseSeconds   = 16
	// leaderRetry is the interval, up to doubled by jitter, in which the controller manager and the scheduler try to become leader: they do nothing before. With the
	// default of 2 s, init waits a second or two longer for each.
	leaderRetry         = "1s"
	nodeStatusFrequency = 4 * time.Second
	nodeStatusReport    = time.Minute
	maxRestartPeriod    = time.Minute
	// maskSize is the flag of the controller manager for the size of a node's range of pod addresses, maskSizeIPv4 that in a cluster of both families.
	maskSize, maskSizeIPv4 = "node-cidr-mask-size", "node-cidr-mask-size-ipv4"
)

// RenderInit returns kubeadm's configuration of a first control-plane node: four YAML documents. It may hold a token.
func RenderInit(c *config.Config) ([]byte, error) {
	cluster, err := clusterConfiguration(c)
	if err != nil {
		return nil, err
	}
	init, err := initConfiguration(c)
	if err != nil {
		return nil, err
	}
	return documents(init, cluster, kubeletConfiguration(c), proxyConfiguration(c))
}

// RenderJoin returns kubeadm's configuration of a joining machine. It holds the bootstrap token and, for a control-plane node, the certificate key.
func RenderJoin(c *config.Config) ([]byte, error) {
	return documents(joinConfiguration(c))
}

func initConfiguration(c *config.Config) (kubeadmv1beta4.InitConfiguration, error) {
	token := bootstraptokenv1.BootstrapToken{
		Description: "made by ocadm init",
		TTL:         &metav1.Duration{Duration: c.Cluster.TokenTTL}, // 0 is forever
		Usages:      tokenUsages(),
		Groups:      tokenGroups(),
	}
	if c.Cluster.Token != "" {
		t, err := bootstraptokenv1.NewBootstrapTokenString(c.Cluster.Token)
		if err != nil {
			return kubeadmv1beta4.InitConfiguration{}, fmt.Errorf("reading the bootstrap token: it is not of the form [a-z0-9]{6}.[a-z0-9]{16}")
		}
		token.Token = t
	}
	return kubeadmv1beta4.InitConfiguration{
		TypeMeta:         metav1.TypeMeta{APIVersion: kubeadmAPIVersion, Kind: "InitConfiguration"},
		BootstrapTokens:  []bootstraptokenv1.BootstrapToken{token},
		NodeRegistration: nodeRegistration(c, ControlPlane),
		LocalAPIEndpoint: localAPIEndpoint(c),
		Patches:          &kubeadmv1beta4.Patches{Directory: PatchesDir},
	}, nil
}

func clusterConfiguration(c *config.Config) (kubeadmv1beta4.ClusterConfiguration, error) {
	gates, err := features.NewFeatureGate(&features.InitFeatureGates, c.Cluster.FeatureGates)
	if err != nil {
		return kubeadmv1beta4.ClusterConfiguration{}, finding.Errorf("OCA-0320", "The setting --feature-gates is not valid",
			"kubeadm has "+strings.Join(features.KnownFeatures(&features.InitFeatureGates), ", "), "%w", err)
	}
	controllers := component(
		"kube-api-qps", clientQPS,
		"kube-api-burst", clientBurst,
		"leader-elect-retry-period", leaderRetry,
		"node-monitor-period", nodeMonitorPeriod,
		"node-monitor-grace-period", nodeMonitorGrace,
	)
	var validity *metav1.Duration
	if d := c.Cluster.CertificateValidity; d > 0 {
		validity = &metav1.Duration{Duration: d}
		controllers.ExtraArgs = append(controllers.ExtraArgs, arguments("cluster-signing-duration", d.String())...) // for the kubelets' certificates
	}
	mask := maskSize
	if strings.Contains(c.Cluster.PodNetworkCIDR, ",") {
		mask = maskSizeIPv4
	}
	controllers.ExtraArgs = append(controllers.ExtraArgs, arguments(mask, strconv.Itoa(nodeMaskSize(c)))...)
	return kubeadmv1beta4.ClusterConfiguration{
		TypeMeta:             metav1.TypeMeta{APIVersion: kubeadmAPIVersion, Kind: "ClusterConfiguration"},
		KubernetesVersion:    c.Cluster.KubernetesVersion,
		ControlPlaneEndpoint: controlPlaneEndpoint(c),
		ImageRepository:      cmp.Or(c.Cluster.KubernetesImageRepository, c.Cluster.ImageRepository, config.DefaultKubernetesImageRepository),
		FeatureGates:         gates,
		// ECDSA keys take milliseconds to generate; RSA takes most of a second on a small machine.
		EncryptionAlgorithm: kubeadmv1beta4.EncryptionAlgorithmECDSAP256,
		Networking: kubeadmv1beta4.Networking{
			PodSubnet:     c.Cluster.PodNetworkCIDR,
			ServiceSubnet: c.Cluster.ServiceCIDR,
			DNSDomain:     c.Cluster.ServiceDNSDomain,
		},
		APIServer: kubeadmv1beta4.APIServer{
			CertSANs: certSANs(c),
			ControlPlaneComponent: component(
				"default-not-ready-toleration-seconds", podFailoverSeconds,
				"default-unreachable-toleration-seconds", podFailoverSeconds,
			),
		},
		ControllerManager:         controllers,
		CertificateValidityPeriod: validity,
		Scheduler:                 component("kube-api-qps", clientQPS, "kube-api-burst", clientBurst, "leader-elect-retry-period", leaderRetry),
	}, nil
}

// nodeMaskSize returns the prefix length of each node's pod addresses. The default is for IPv4.
func nodeMaskSize(c *config.Config) int {
	size := cmp.Or(c.Cluster.NodeCIDRMaskSize, 24)
	pods, err := config.CIDRs(c.Cluster.PodNetworkCIDR)
	if err != nil || pods[0].Addr().Is4() || len(pods) > 1 || size >= pods[0].Bits() {
		return size
	}
	const usual, nodes = 64, 8
	return max(usual, pods[0].Bits()+nodes)
}

// kubeletConfiguration is the same on every node; settings of a single node are in KubeletPatch and in the kubelet's flags.
func kubeletConfiguration(c *config.Config) kubeletv1beta1.KubeletConfiguration {
	return kubeletv1beta1.KubeletConfiguration{
		TypeMeta:     metav1.TypeMeta{APIVersion: "kubelet.config.k8s.io/v1beta1", Kind: "KubeletConfiguration"},
		CgroupDriver: "systemd",
		// A lease renewed every 4 s (a quarter of its duration) reveals a dead node within the controller-manager's 16 s. The status is computed as often but only
		// sent if it changed, or once a minute.
		NodeStatusUpdateFrequency: metav1.Duration{Duration: nodeStatusFrequency},
		NodeStatusReportFrequency: metav1.Duration{Duration: nodeStatusReport},
		NodeLeaseDurationSeconds:  nodeLeaseSeconds,
		KubeAPIQPS:                ptr.To[int32](100),
		KubeAPIBurst:              200,
		// Absolute values: a percentage of a large disk wastes much space, and a full disk took whole clouds down.
		EvictionHard: map[string]string{
			"memory.available":   "200Mi",
			"nodefs.available":   "1Gi",
			"nodefs.inodesFree":  "5%",
			"imagefs.available":  "1Gi",
			"imagefs.inodesFree": "5%",
		},
		ImageGCHighThresholdPercent: ptr.To[int32](95),
		ImageGCLowThresholdPercent:  ptr.To[int32](90),
		PodPidsLimit:                ptr.To[int64](1024),
		// Without this, the kubelet fails pulls beyond five a second, and tries them again only after ten seconds or more.
		RegistryPullQPS:     ptr.To[int32](0),
		SerializeImagePulls: ptr.To(false),
		ContainerLogMaxSize: "100Mi",
		// A service that waits for its database is retried within a minute rather than five.
		CrashLoopBackOff: kubeletv1beta1.CrashLoopBackOffConfig{MaxContainerRestartPeriod: &metav1.Duration{Duration: maxRestartPeriod}},
		// Users who may exec into a node's pods can also read its journal through the API server. docs/decisions/0076. Earlier kubelets reject the setting.
		EnableSystemLogQuery: new(semver.Compare(semver.MajorMinor(c.Cluster.KubernetesVersion), "v1.36") >= 0),
	}
}

func proxyConfiguration(c *config.Config) proxyv1alpha1.KubeProxyConfiguration {
	return proxyv1alpha1.KubeProxyConfiguration{
		TypeMeta:    metav1.TypeMeta{APIVersion: "kubeproxy.config.k8s.io/v1alpha1", Kind: "KubeProxyConfiguration"},
		Mode:        proxyMode(c),
		ClusterCIDR: c.Cluster.PodNetworkCIDR,
		// Users reach the cloud's services at node ports of the cloud's address. With nftables, kube-proxy by default serves only the addresses in the Node, which
		// exclude the virtual address. Source: kube-proxy --nodeport-addresses.
		NodePortAddresses: []string{"0.0.0.0/0", "::/0"},
		Conntrack:         proxyv1alpha1.KubeProxyConntrackConfiguration{MaxPerCore: c.Node.ConntrackMaxPerCore},
	}
}

func proxyMode(c *config.Config) proxyv1alpha1.ProxyMode {
	if c.Cluster.ProxyMode == config.ProxyIPTables {
		return config.ProxyIPTables
	}
	return config.ProxyNFTables
}

func joinConfiguration(c *config.Config) kubeadmv1beta4.JoinConfiguration {
	j := kubeadmv1beta4.JoinConfiguration{
		TypeMeta:         metav1.TypeMeta{APIVersion: kubeadmAPIVersion, Kind: "JoinConfiguration"},
		NodeRegistration: nodeRegistration(c, JoinRole(c)),
	}
	if c.Join.ControlPlane {
		j.ControlPlane = &kubeadmv1beta4.JoinControlPlane{LocalAPIEndpoint: localAPIEndpoint(c), CertificateKey: c.Join.CertificateKey}
	}
	if KubeletPatch(c) != nil {
		j.Patches = &kubeadmv1beta4.Patches{Directory: PatchesDir}
	}
	if c.Join.Timeout > 0 {
		j.Timeouts = &kubeadmv1beta4.Timeouts{
			Discovery:    &metav1.Duration{Duration: c.Join.Timeout},
			TLSBootstrap: &metav1.Duration{Duration: c.Join.Timeout},
		}
	}
	if c.Join.DiscoveryFile != "" {
		j.Discovery.File = &kubeadmv1beta4.FileDiscovery{KubeConfigPath: c.Join.DiscoveryFile}
		j.Discovery.TLSBootstrapToken = c.Join.Token
		return j
	}
	j.Discovery.BootstrapToken = &kubeadmv1beta4.BootstrapTokenDiscovery{
		Token:                    c.Join.Token,
		APIServerEndpoint:        withPort(c.Join.Endpoint),
		CACertHashes:             c.Join.CACertHashes,
		UnsafeSkipCAVerification: c.Join.UnsafeSkipCAVerification,
	}
	return j
}

func component(kv ...string) kubeadmv1beta4.ControlPlaneComponent {
	return kubeadmv1beta4.ControlPlaneComponent{ExtraArgs: arguments(kv...)}
}

func arguments(kv ...string) []kubeadmv1beta4.Arg {
	var args []kubeadmv1beta4.Arg
	for i := 0; i+1 < len(kv); i += 2 {
		args = append(args, kubeadmv1beta4.Arg{Name: kv[i], Value: kv[i+1]})
	}
	return args
}

func certSANs(c *config.Config) []string {
	sans := []string{"localhost", "127.0.0.1"}
	if c.Cluster.VirtualAddress != "" {
		sans = append(sans, c.Cluster.VirtualAddress)
	}
	return lists.Unique(append(sans, c.Cluster.APIServerCertExtraSANs...))
}

func localAPIEndpoint(c *config.Config) kubeadmv1beta4.APIEndpoint {
	return kubeadmv1beta4.APIEndpoint{AdvertiseAddress: advertiseAddress(c), BindPort: bindPort(c)}
}

func advertiseAddress(c *config.Config) string { return cmp.Or(c.Node.AdvertiseAddress, c.Node.IP) }

func bindPort(c *config.Config) int32 { return int32(cmp.Or(c.Node.BindPort, config.DefaultPort)) } //nolint:gosec // a port

// controlPlaneEndpoint is always set, so that control-plane nodes can be added later.
func controlPlaneEndpoint(c *config.Config) string {
	if c.Cluster.ControlPlaneEndpoint != "" {
		return withPort(c.Cluster.ControlPlaneEndpoint)
	}
	return net.JoinHostPort(advertiseAddress(c), strconv.Itoa(int(bindPort(c))))
}

func withPort(endpoint string) string {
	if _, _, err := net.SplitHostPort(endpoint); err == nil || endpoint == "" {
		return endpoint
	}
	return net.JoinHostPort(strings.Trim(endpoint, "[]"), strconv.Itoa(config.DefaultPort))
}

func documents(objects ...any) ([]byte, error) {
	var out bytes.Buffer
	for i, o := range objects {
		if i > 0 {
			out.WriteString("---\n")
		}
		doc, err := document(o)
		if err != nil {
			return nil, fmt.Errorf("rendering %T: %w", o, err)
		}
		out.Write(doc)
	}
	return out.Bytes(), nil
}

// document returns o as YAML, without the zero values that its types cannot omit.
func document(o any) ([]byte, error) {
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	var m map[string]any
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	delete(m, "logging")
	return yaml.Marshal(pruned(m))
}

// pruned drops values that mean "not set": nulls, zero durations, empty strings and objects. It keeps empty lists, which mean "none".
func pruned(v any) any {
	switch t := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, e := range t {
			if p := pruned(e); p != nil {
				out[k] = p
			} else if k == "ttl" { // a token's 0 means forever, not the default
				out[k] = e
			}
		}
		if len(out) == 0 {
			return nil
		}
		return out
	case []any:
		out := make([]any, 0, len(t))
		for _, e := range t {
			if p := pruned(e); p != nil {
				out = append(out, p)
			}
		}
		return out
	case string:
		if t == "" || t == "0s" {
			return nil
		}
	}
	return v
}
