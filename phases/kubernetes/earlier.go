// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// Registered is how this machine was made a node.
type Registered struct {
	Name      string `json:"name"`
	CRISocket string `json:"criSocket"`
}

// Networking are the networks of a cluster.
type Networking struct {
	PodSubnet     string `json:"podSubnet"`
	ServiceSubnet string `json:"serviceSubnet"`
	DNSDomain     string `json:"dnsDomain"`
}

// Earlier is what an earlier init or join of this machine wrote to ConfigFile. The zero value stands for none.
type Earlier struct {
	// Join is true for a worker.
	Join       bool
	Registered Registered
	// The rest is of init: empty for a worker.
	KubernetesVersion string
	Networking        Networking
	ProxyMode         string
	// Endpoint is where the nodes reach the cluster, host:port: empty until init has stored it there, because nothing used it before.
	Endpoint string
	// Names are those of the API server's certificate, empty as long as Endpoint is.
	Names []string
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
			APIServer         struct {
				Names []string `json:"certSANs"`
			} `json:"apiServer"`
		}
		if yaml.Unmarshal(doc, &d) != nil {
			continue
		}
		out.Join = out.Join || d.Kind == "JoinConfiguration"
		out.Registered = cmp.Or(out.Registered, d.NodeRegistration)
		if d.Kind == "ClusterConfiguration" {
			out.KubernetesVersion, out.Networking = d.KubernetesVersion, d.Networking
			if h.Ledger.Has(host.KindPhase, storeConfiguration().key()) {
				out.Endpoint, out.Names = d.Endpoint, d.APIServer.Names
			}
		}
		out.ProxyMode = cmp.Or(out.ProxyMode, proxyModeIn(doc))
	}
	return out
}

// proxyModeIn reads the mode from a KubeProxyConfiguration. An empty mode means iptables there.
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

// RegisteredAs returns the name under which this machine is a node: what the configuration of its init or join says, else the kubelet's
// certificate. What is in neither is empty.
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

// Release is what installed a node. An empty field is not known.
type Release struct{ Ocadm, Kubernetes string }

// String is the release for people.
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

// ThisRelease is that of this program.
func ThisRelease() Release { return Release{version.Version, version.Kubernetes} }

// The names of the ledger's entries about the release.
const (
	ocadmRelease      = "ocadm"
	kubernetesRelease = "kubernetes"
)

// noteRelease notes that this release makes the node, before it does. The first note stays until reset has removed the node, be it that it did not end.
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

// InstalledRelease is the release that made this machine a node; ok is false when ocadm made it none. Releases that noted nothing are
// recognised by what they installed: the static pods of a control plane, or the kubelet.
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

// OtherRelease is a finding when another release made this machine a node: repeating init or join would replace what runs on it without
// any of the care that an upgrade takes.
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
		fmt.Sprintf("it was %s, and this is %s; init and join do not upgrade or downgrade a node", was, ThisRelease()),
		"run the same command with "+again+"; to upgrade the cluster: ocadm upgrade plan; to start over with this release: ocadm reset")
}
