// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"strings"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/phases/host"
)

// Registered is how this machine was made a node.
type Registered struct {
	Name      string `json:"name"`
	CRISocket string `json:"criSocket"`
}

// RegisteredAs returns the name under which this machine is a node: what the configuration of its init or join says, else the kubelet's
// certificate. What is in neither is empty.
func RegisteredAs(h *host.Host) Registered {
	var is Registered
	raw, _ := h.Files.ReadFile(ConfigFile) // without it the kubelet's certificate is asked
	for doc := range bytes.SplitSeq(raw, []byte("---\n")) {
		var c struct {
			NodeRegistration Registered `json:"nodeRegistration"`
		}
		if yaml.Unmarshal(doc, &c) == nil && c.NodeRegistration.Name != "" {
			return c.NodeRegistration
		}
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
