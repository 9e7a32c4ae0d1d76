// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"cmp"
	"strings"

	"sigs.k8s.io/yaml"

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
		}
		if yaml.Unmarshal(doc, &d) != nil {
			continue
		}
		out.Join = out.Join || d.Kind == "JoinConfiguration"
		out.Registered = cmp.Or(out.Registered, d.NodeRegistration)
		if d.Kind == "ClusterConfiguration" {
			out.KubernetesVersion, out.Networking = d.KubernetesVersion, d.Networking
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
