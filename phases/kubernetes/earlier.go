// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeadmv1beta4 "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm/v1beta4"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// Registered describes how this machine became a node.
type Registered struct {
	Name      string `json:"name"`
	CRISocket string `json:"criSocket"`
}

// Networking holds the networks of a cluster.
type Networking struct {
	PodSubnet     string `json:"podSubnet"`
	ServiceSubnet string `json:"serviceSubnet"`
	DNSDomain     string `json:"dnsDomain"`
}

// Earlier is the configuration that an earlier init or join wrote to ConfigFile. It is zero if there is none.
type Earlier struct {
	// Join is true for a worker.
	Join       bool
	Registered Registered
	// The other fields come from init and are empty for a worker.
	KubernetesVersion string
	Networking        Networking
	ProxyMode         string
	Conntrack         *int32 // the limit of each core
	// Endpoint is the cluster's endpoint, host:port. It is empty until init has stored it in the cluster, because nothing used it before.
	Endpoint string
	// Names are those of the API server's certificate, ImageRepository is the source of the images of Kubernetes. They and the settings below, which have
	// the form of those of init, are empty while Endpoint is.
	Names               []string
	ImageRepository     string
	FeatureGates        string
	CertificateValidity time.Duration
	NodeCIDRMaskSize    int
}

// Keep sets what the first init set, for one that is repeated without its flags. Pods, clients and certificates depend on it.
func (e Earlier) Keep(c *config.Config) {
	k := &c.Cluster
	k.APIServerCertExtraSANs = append(k.APIServerCertExtraSANs, e.Names...)
	k.KubernetesImageRepository = cmp.Or(k.KubernetesImageRepository, k.ImageRepository, e.ImageRepository)
	k.FeatureGates = cmp.Or(k.FeatureGates, e.FeatureGates)
	k.CertificateValidity = cmp.Or(k.CertificateValidity, e.CertificateValidity)
	c.Node.ConntrackMaxPerCore = cmp.Or(c.Node.ConntrackMaxPerCore, e.Conntrack)
	if e.NodeCIDRMaskSize != 0 && !c.Gives("cluster.nodeCIDRMaskSize") {
		k.NodeCIDRMaskSize = e.NodeCIDRMaskSize
	}
}

// EarlierConfig reads ConfigFile.
func EarlierConfig(h *host.Host) Earlier {
	var out Earlier
	for doc := range bytes.SplitSeq([]byte(h.Files.Text(ConfigFile)), []byte("---\n")) {
		var d struct {
			Kind              string     `json:"kind"`
			NodeRegistration  Registered `json:"nodeRegistration"`
			KubernetesVersion string     `json:"kubernetesVersion"`
			Networking        Networking `json:"networking"`
			Endpoint          string     `json:"controlPlaneEndpoint"`
			ImageRepository   string     `json:"imageRepository"`
			APIServer         struct {
				Names []string `json:"certSANs"`
			} `json:"apiServer"`
			FeatureGates      map[string]bool `json:"featureGates"`
			Validity          metav1.Duration `json:"certificateValidityPeriod"`
			ControllerManager struct {
				Args []kubeadmv1beta4.Arg `json:"extraArgs"`
			} `json:"controllerManager"`
			Conntrack struct{ MaxPerCore *int32 } `json:"conntrack"`
		}
		if yaml.Unmarshal(doc, &d) != nil {
			continue
		}
		out.Join = out.Join || d.Kind == "JoinConfiguration"
		out.Registered = cmp.Or(out.Registered, d.NodeRegistration)
		if d.Kind == "ClusterConfiguration" {
			out.KubernetesVersion, out.Networking = d.KubernetesVersion, d.Networking
			if h.Ledger.Has(host.KindPhase, storeConfiguration().key()) {
				out.Endpoint, out.Names, out.ImageRepository = d.Endpoint, d.APIServer.Names, d.ImageRepository
				out.CertificateValidity = d.Validity.Duration
				gates := lists.Map(slices.Sorted(maps.Keys(d.FeatureGates)), func(g string) string { return fmt.Sprintf("%s=%t", g, d.FeatureGates[g]) })
				out.FeatureGates = strings.Join(gates, ",")
				mask := lists.First(d.ControllerManager.Args, func(a kubeadmv1beta4.Arg) bool { return a.Name == maskSize || a.Name == maskSizeIPv4 })
				out.NodeCIDRMaskSize, _ = strconv.Atoi(mask.Value) // 0 if there is none
			}
		}
		out.ProxyMode, out.Conntrack = cmp.Or(out.ProxyMode, proxyModeIn(doc)), cmp.Or(out.Conntrack, d.Conntrack.MaxPerCore)
	}
	return out
}

// proxyModeIn reads the mode from a KubeProxyConfiguration, where an empty mode means iptables.
func proxyModeIn(doc []byte) string {
	var c struct {
		Kind string `json:"kind"`
		Mode string `json:"mode"`
	}
	if yaml.Unmarshal(doc, &c) != nil || c.Kind != "KubeProxyConfiguration" {
		return ""
	}
	return cmp.Or(c.Mode, config.ProxyIPTables)
}

// RegisteredAs returns the node name of this machine, from the configuration of its init or join, else from the kubelet's certificate. Fields found in neither
// are empty.
func RegisteredAs(h *host.Host) Registered {
	is := EarlierConfig(h).Registered
	if is.Name != "" {
		return is
	}
	_, user, err := loadKubeconfig(h, KubeletKubeconfig)
	if err != nil {
		return is
	}
	if cert, err := clientCertificate(h, user); err == nil {
		is.Name, _ = strings.CutPrefix(cert.Subject.CommonName, "system:node:")
	}
	return is
}

// Release is the release that installed a node. An empty field is unknown.
type Release struct{ Ocadm, Kubernetes string }

// String returns the release as text for people.
func (r Release) String() string {
	out := "an earlier ocadm"
	if r.Ocadm != "" {
		out = "ocadm " + r.Ocadm
	}
	if r.Kubernetes != "" {
		out += " with Kubernetes " + r.Kubernetes
	}
	return out
}

// ThisRelease returns the release of this program.
func ThisRelease() Release { return Release{version.Version, version.Kubernetes} }

// The names of the release's ledger entries.
const (
	ocadmRelease      = "ocadm"
	kubernetesRelease = "kubernetes"
)

// noteRelease records which release makes the node, before it does. The first entry stays until reset has removed the node, even if making it failed.
func noteRelease(h *host.Host) error {
	note := h.Ledger.Record
	if !h.Ledger.Has(host.KindFile, ConfigFile) {
		note = h.Ledger.Replace
	}
	return noteThisRelease(note)
}

func noteThisRelease(note func(host.Entry) error) error {
	this := ThisRelease()
	for name, v := range map[string]string{ocadmRelease: this.Ocadm, kubernetesRelease: this.Kubernetes} {
		if err := note(host.Entry{Kind: host.KindRelease, Name: name, Op: host.Found, Detail: v}); err != nil {
			return err
		}
	}
	return nil
}

// InstalledRelease returns the release that made this machine a node; ok is false if ocadm did not make it one. Releases that recorded nothing are identified
// by what they installed: the static pods of a control plane, or the kubelet.
func InstalledRelease(h *host.Host) (r Release, ok bool) {
	if !h.Ledger.Has(host.KindFile, ConfigFile) {
		return Release{}, false
	}
	if e, noted := h.Ledger.Get(host.KindRelease, ocadmRelease); noted {
		k, _ := h.Ledger.Get(host.KindRelease, kubernetesRelease)
		return Release{e.Detail, k.Detail}, true
	}
	if pod, err := readPod(h, manifest(constants.KubeAPIServer)); err == nil {
		r.Kubernetes = Tag(pod.Spec.Containers[0].Image)
	}
	r.Kubernetes = cmp.Or(r.Kubernetes, EarlierConfig(h).KubernetesVersion, h.Facts.Programs["kubelet"].Version)
	return r, true
}

// OtherRelease returns a finding if another release made this machine a node: repeating init or join would replace what runs there without the precautions of
// an upgrade.
func OtherRelease(h *host.Host) error {
	was, ok := InstalledRelease(h)
	if !ok || was == ThisRelease() {
		return nil
	}
	again := "the ocadm that installed it"
	if was.Ocadm != "" {
		again = "ocadm " + was.Ocadm
	}
	return finding.New("OCA-1027", "This machine was installed by another release of ocadm",
		fmt.Sprintf("it was installed by %s, and this is %s; init and join do not upgrade or downgrade a node", was, ThisRelease()),
		"run the same command with "+again+"; to upgrade the cluster: ocadm upgrade plan; to start over with this release: ocadm reset")
}

// OtherVersion returns a finding if a repeated init or join would install another version of Kubernetes than the node runs, usually because a flag of the first
// one was left out: it would be an upgrade or a downgrade without the precautions of one.
func OtherVersion(h *host.Host) error {
	earlier := EarlierConfig(h)
	was, now, runs := earlier.KubernetesVersion, h.Config.Cluster.KubernetesVersion, etcdDir+"/member"
	if kubelet := h.Facts.Programs["kubelet"]; earlier.Join { // its configuration has no version
		was, runs = "", KubeletKubeconfig
		if h.Ledger.Has(host.KindFile, kubelet.Path) {
			was = kubelet.Version
		}
	}
	if was == "" || now == "" || was == now || !h.Files.Exists(runs) {
		return nil
	}
	return finding.New("OCA-1007", "The node on this machine runs Kubernetes "+was, "this command would install "+now,
		"add --kubernetes-version "+was+"; to upgrade the cluster: ocadm upgrade plan")
}
