// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"slices"
	"strings"

	"k8s.io/client-go/rest"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/operatorctl/machine/bootstrap"
)

type identity struct {
	// name is the name of the node, "" if ocadm did not create it.
	name string
	// authority holds the PEM-encoded CA certificates of its cluster, empty if it belongs to no cluster.
	authority []byte
}

// codeOtherNode is the code of the finding about a host that is another node.
const codeOtherNode = "OCA-7652"

// whatIs reads the identity of a host.
func whatIs(ctx context.Context, name string, c *ssh.Conn) (identity, error) {
	var out identity
	r, err := c.Script(ctx, bootstrap.IdentityScript, []string{"identity"}, func(l string) {
		key, value, _ := strings.Cut(l, " ")
		switch {
		case key == "name":
			out.name = strings.Trim(value, `"'`)
		case key == "ca" && len(out.authority) < maxOutput:
			out.authority = append(out.authority, value+"\n"...)
		}
	})
	if err == nil && r.Exit != 0 {
		err = failed(name, "identity", r)
	}
	return out, err
}

// of returns a finding if a host is registered as another machine's node, or in a cluster with another CA. Unknown parts do not count: an interrupted
// reset has removed some of them. It is pure.
func (is identity) of(name string, authority []byte) error {
	if is.name != "" && is.name != name {
		return finding.New(codeOtherNode, "The host at the address of machine "+name+" is node "+is.name, "ocadm set it up as that node",
			"the host is not reset. To remove machine "+name+" without a reset: ocadm machine remove "+name+" --abandon")
	}
	theirs, ours := certificates(is.authority), certificates(authority)
	if len(theirs) == 0 || len(ours) == 0 || share(theirs, ours) {
		return nil
	}
	return finding.New(codeOtherNode, "The host at the address of machine "+name+" is a node of another cluster",
		"the CA in its /etc/kubernetes differs from the CA of this cluster",
		"the host is not reset. If it was off while the CAs of this cluster were replaced, first run on it: ocadm reset. "+
			"Then remove machine "+name+" without a reset: ocadm machine remove "+name+" --abandon")
}

// surely reports whether a host claims to be the node of a machine, in the cluster of the CA.
func (is identity) surely(name string, authority []byte) bool {
	return is.name == name && share(certificates(is.authority), certificates(authority))
}

// share reports whether two lists of certificates have a key in common.
func share(a, b []*x509.Certificate) bool {
	return slices.ContainsFunc(a, func(one *x509.Certificate) bool {
		return slices.ContainsFunc(b, func(other *x509.Certificate) bool {
			return bytes.Equal(one.RawSubjectPublicKeyInfo, other.RawSubjectPublicKeyInfo)
		})
	})
}

// certificates returns the certificates in a PEM text. It skips those that it cannot parse: the others still show that a machine is another cluster's.
func certificates(text []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return out
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil {
			out = append(out, c)
		}
	}
}

// Authority returns the PEM-encoded CA certificates of the cluster that the pod runs in. It is empty with a kubeconfig, which may lead to a proxy.
func Authority(cfg *rest.Config) []byte {
	own := rest.CopyConfig(cfg)
	if cfg.BearerTokenFile == "" || rest.LoadTLSFiles(own) != nil {
		return nil
	}
	return own.CAData
}
