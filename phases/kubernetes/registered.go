// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"strings"

	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/phases/host"
)

// Registered is how this machine was made a node.
type Registered struct {
	Name      string `json:"name"`
	CRISocket string `json:"criSocket"`
}

// RegisteredAs tells under which name this machine is a node: what the configuration of its init or join says, else the kubelet's
// certificate. What neither tells is empty.
func RegisteredAs(h *host.Host) Registered {
	var is Registered
	raw, _ := h.Files.ReadFile(ConfigFile) // not there tells nothing
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
	data := user.ClientCertificateData
	if len(data) == 0 && user.ClientCertificate != "" {
		data, _ = h.Files.ReadFile(user.ClientCertificate) // as above
	}
	if certs, err := certutil.ParseCertsPEM(data); err == nil {
		is.Name, _ = strings.CutPrefix(certs[0].Subject.CommonName, "system:node:")
	}
	return is
}
