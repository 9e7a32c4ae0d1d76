// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	cryptoutil "k8s.io/kubernetes/cmd/kubeadm/app/util/crypto"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

const (
	// ClusterAuthority and FrontProxyAuthority can be replaced in a running cluster: the API server reloads their files.
	ClusterAuthority    = "ca"
	FrontProxyAuthority = "front-proxy-ca"
	// EtcdAuthority can be replaced too, but etcd and the API servers read it only at startup.
	EtcdAuthority = "etcd/ca"
	// ClusterAuthorityFile holds the cluster's CAs that this machine trusts.
	ClusterAuthorityFile = pkiDir + "/ca.crt"
	// signerFile holds only the signing CA while ca.crt holds two: the controller manager accepts only a file with one certificate.
	signerFile  = pkiDir + "/ca-signer.crt"
	signingFlag = "--cluster-signing-cert-file="
)

// Trust holds the CAs that a node must trust, and which one signs.
type Trust struct {
	// Certs holds the PEM-encoded certificates of each CA, the signing one first.
	Certs map[string][]byte
	// Keys holds the PEM-encoded keys of the signing CAs. It is empty for a worker.
	Keys map[string][]byte
}

// whole reports whether every CA has only one certificate.
func (t Trust) whole() bool {
	return !slices.ContainsFunc(slices.Collect(maps.Values(t.Certs)), func(raw []byte) bool {
		list, err := certutil.ParseCertsPEM(raw)
		return err != nil || len(list) > 1
	})
}

// NewAuthority creates a CA like the current one. The id is part of its subject, because two CAs of the same name confuse clients.
func NewAuthority(h *host.Host, name, id string, now time.Time) (cert, key []byte, err error) {
	old, err := readCertificate(h, pkiDir+"/"+name+".crt")
	if err != nil {
		return nil, nil, fmt.Errorf("reading a certificate authority: %w", err)
	}
	c, err := internalCluster(h.Config)
	if err != nil {
		return nil, nil, err
	}
	ca, private, err := pkiutil.NewCertificateAuthority(&pkiutil.CertConfig{EncryptionAlgorithm: c.EncryptionAlgorithmType(),
		NotAfter: now.Add(constants.CACertificateValidityPeriod),
		Config: certutil.Config{CommonName: old.Subject.CommonName, Organization: []string{"rotated " + id}, NotBefore: now.Add(-constants.CertificateBackdate),
			AltNames: certutil.AltNames{DNSNames: slices.Clone(old.DNSNames)}}})
	if err != nil {
		return nil, nil, fmt.Errorf("creating a certificate authority: %w", err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(private)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the key of a certificate authority: %w", err)
	}
	return pkiutil.EncodeCertPEM(ca), encoded, nil
}

// Authority returns the certificate and key of a CA of this control-plane node. It returns the first certificate in the file, the signing one.
func Authority(h *host.Host, name string) (cert, key []byte, err error) {
	first, err := readCertificate(h, pkiDir+"/"+name+".crt")
	if err != nil {
		return nil, nil, fmt.Errorf("reading a certificate authority: %w", err)
	}
	key, err = h.Files.ReadFile(pkiDir + "/" + name + ".key")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, finding.New("OCA-4404", "The key of a certificate authority is not on this machine", pkiDir+"/"+name+".key does not exist",
			"an authority that is kept elsewhere must be replaced by its owner")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading the key of a certificate authority: %w", err)
	}
	return pkiutil.EncodeCertPEM(first), key, nil
}

// Seal encrypts with a CA's key, so that every machine with that key can decrypt; Unseal decrypts with this machine's key.
func Seal(plain, authorityKey []byte) ([]byte, error) {
	key, err := sealingKey(authorityKey)
	if err != nil {
		return nil, err
	}
	return cryptoutil.EncryptBytes(plain, key)
}

// Unseal decrypts what Seal encrypted.
func Unseal(sealed, authorityKey []byte) ([]byte, error) {
	key, err := sealingKey(authorityKey)
	if err != nil {
		return nil, err
	}
	return cryptoutil.DecryptBytes(sealed, key)
}

func sealingKey(authorityKey []byte) ([]byte, error) {
	key, err := hkdf.Key(sha256.New, bytes.TrimSpace(authorityKey), nil, "ocadm rotation of authorities", constants.CertificateKeySize)
	if err != nil {
		return nil, fmt.Errorf("deriving a key: %w", err)
	}
	return key, nil
}

// TwoAuthorities reports whether this machine trusts two CAs of the cluster, because they are being rotated.
func TwoAuthorities(h *host.Host) bool {
	list, err := certutil.ParseCertsPEM([]byte(h.Files.Text(pkiDir + "/ca.crt")))
	return err == nil && len(list) > 1
}

// rotates reports whether these PEM-encoded CAs belong to a rotation. With an intermediate CA, the second has signed the first.
func rotates(authorities string) bool {
	list, err := certutil.ParseCertsPEM([]byte(authorities))
	return err == nil && len(list) > 1 && list[0].CheckSignatureFrom(list[1]) != nil
}

// Rotating reports whether the files on this machine belong to a CA rotation. Before a kubelet belongs to a cluster, they may be a chain of CAs from the user,
// which is no rotation.
func Rotating(h *host.Host) bool {
	return h.Files.Exists(KubeletKubeconfig) && rotates(h.Files.Text(ClusterAuthorityFile))
}

// RotatingEtcd reports whether they belong to a rotation that also replaces etcd's CA.
func RotatingEtcd(h *host.Host) bool {
	return Rotating(h) && rotates(h.Files.Text(pkiDir+"/"+EtcdAuthority+".crt"))
}

// NoRotation returns a finding while the cluster's CAs are being rotated.
func NoRotation(h *host.Host, what string) error {
	if !Rotating(h) {
		return nil
	}
	return noRotation(h.Files.Text(ClusterAuthorityFile), what)
}

func noRotation(authorities, what string) error {
	if !rotates(authorities) {
		return nil
	}
	return finding.New("OCA-4409", "The certificate authorities of the cluster are being rotated", what+" would use the wrong authority",
		"on a control-plane node: ocadm certs rotate-ca --status; complete the rotation with --finish, or undo it with --revert, then run the command again")
}

// authorityFile is a file that a rotation writes.
type authorityFile struct {
	name string
	data []byte
	mode fs.FileMode
}

// written reports whether the file on the machine is as wanted. A file to be removed counts as written, because it goes last: see SignerTodo.
func (f authorityFile) written(h *host.Host) bool {
	now, err := h.Files.ReadFile(f.name)
	return f.data == nil || err == nil && bytes.Equal(now, f.data)
}

// authorityFiles returns the files that this machine must have. A file without data must not exist.
func (t Trust) authorityFiles(h *host.Host) ([]authorityFile, error) {
	if !IsControlPlane(h) {
		return []authorityFile{{pkiDir + "/ca.crt", t.Certs[ClusterAuthority], 0o644}}, nil
	}
	out := slices.Concat(lists.Pick([]string{ClusterAuthority, FrontProxyAuthority, EtcdAuthority}, func(name string) ([]authorityFile, bool) {
		return []authorityFile{{pkiDir + "/" + name + ".crt", t.Certs[name], 0o644}, {pkiDir + "/" + name + ".key", t.Keys[name], 0o600}}, t.Certs[name] != nil
	})...)
	signer := authorityFile{name: signerFile, mode: 0o644}
	if !t.whole() {
		first, err := parseCertificate(t.Certs[ClusterAuthority])
		if err != nil {
			return nil, fmt.Errorf("reading a certificate authority: %w", err)
		}
		signer.data = pkiutil.EncodeCertPEM(first)
	}
	return append(out, signer), nil
}

// AuthoritiesTodo lists the CA files that must still be written. It omits the removal of the signer file, which goes last: see SignerTodo.
func AuthoritiesTodo(h *host.Host, t Trust) ([]string, error) {
	files, err := t.authorityFiles(h)
	return lists.Pick(files, func(f authorityFile) (string, bool) { return "write " + f.name, !f.written(h) }), err
}

// WriteAuthorities writes the CA files that AuthoritiesTodo lists.
func WriteAuthorities(h *host.Host, r workflow.Reporter, t Trust) error {
	files, err := t.authorityFiles(h)
	if err != nil {
		return err
	}
	for _, f := range files {
		if f.written(h) {
			continue
		}
		if err := h.Files.Replace(f.name, f.data, f.mode); err != nil {
			return err
		}
		r.Changed("wrote %s", f.name)
	}
	return nil
}

// KubeconfigsTodo lists this cluster's kubeconfigs on this machine that do not trust the right CAs.
func KubeconfigsTodo(h *host.Host, t Trust) []string {
	var out []string
	for _, f := range h.Files.Glob(kubernetesDir + "/*.conf") {
		cluster, _, lerr := loadKubeconfig(h, f)
		if lerr != nil || len(cluster.CertificateAuthorityData) == 0 {
			continue // not a kubeconfig, or it names a CA file
		}
		if data := cluster.CertificateAuthorityData; !bytes.Equal(data, t.Certs[ClusterAuthority]) && shareOne(data, t.Certs[ClusterAuthority]) {
			out = append(out, f)
		}
	}
	return out
}

// shareOne reports whether two lists of certificates have one in common. A kubeconfig that shares none belongs to another cluster.
func shareOne(a, b []byte) bool {
	left, aerr := certutil.ParseCertsPEM(a)
	right, berr := certutil.ParseCertsPEM(b)
	return aerr == nil && berr == nil && slices.ContainsFunc(left, func(c *x509.Certificate) bool { return slices.ContainsFunc(right, c.Equal) })
}

// trustFrom makes a kubeconfig trust these CAs.
func trustFrom(h *host.Host, file string, authorities []byte) error {
	return editKubeconfig(h, file, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) error {
		c.CertificateAuthorityData = authorities
		return nil
	})
}

// trustAll makes a kubeconfig trust all CAs of the cluster: kubeadm's renewal only writes the first.
func trustAll(h *host.Host, file string) error {
	if !TwoAuthorities(h) {
		return nil
	}
	raw, err := h.Files.ReadFile(pkiDir + "/ca.crt")
	if err != nil {
		return fmt.Errorf("reading the certificate authority: %w", err)
	}
	return trustFrom(h, file, raw)
}

// WriteKubeconfigs updates the kubeconfigs that KubeconfigsTodo lists.
func WriteKubeconfigs(h *host.Host, r workflow.Reporter, t Trust) error {
	for _, f := range KubeconfigsTodo(h, t) {
		if err := trustFrom(h, f, t.Certs[ClusterAuthority]); err != nil {
			return err
		}
		r.Changed("changed the authorities that %s trusts", f)
	}
	return nil
}

// signedByFirst reports whether a certificate was signed by the first certificate in its CA's file.
func signedByFirst(h *host.Host, cert *x509.Certificate, authority string) (bool, error) {
	ca, err := readCertificate(h, pkiDir+"/"+authority+".crt")
	if err != nil {
		return false, fmt.Errorf("reading a certificate authority: %w", err)
	}
	return cert.CheckSignatureFrom(ca) == nil, nil
}

// SignTodo lists the certificates of this machine that must be re-signed because the signing CA has changed.
func SignTodo(h *host.Host, t Trust) ([]string, error) {
	list, err := unsigned(h, t)
	return lists.Map(list, func(c Certificate) string { return "sign " + c.File }), err
}

// unsigned returns the certificates of CAs being replaced that were not signed by the current signing CA.
func unsigned(h *host.Host, t Trust) (out []Certificate, err error) {
	var list []Certificate
	if IsControlPlane(h) {
		if list, err = Certificates(h, time.Now(), 0); err != nil {
			return nil, err
		}
	} else if cert, err := readCertificate(h, kubeletClientPEM); err == nil {
		list = []Certificate{{File: kubeletClientPEM, Kind: kindKubelet, cert: cert}}
	}
	for _, c := range list {
		authority := c.authority
		if c.File == kubeletClientPEM {
			authority = ClusterAuthority
		}
		if t.Certs[authority] == nil {
			continue
		}
		if c.State == CertificateDamaged { // for example the new certificate with the former key, after a power cut
			out = append(out, c)
			continue
		}
		if good, err := signedByFirst(h, c.cert, authority); err != nil || !good {
			out = append(out, c)
		}
	}
	return out, nil
}

// copies are the paths where administrators keep kubeconfigs. Those of the node itself are signed again before anyone looks.
var copies = []string{"/root/.kube/config", "/home/*/.kube/config", kubernetesDir + "/*.conf"}

// Left returns administrators' kubeconfigs on this machine whose certificate was signed by the CA that is being removed.
func Left(h *host.Host, going []byte) ([]string, error) {
	ca, err := parseCertificate(going)
	if err != nil {
		return nil, fmt.Errorf("reading a certificate authority: %w", err)
	}
	var out []string
	for _, f := range h.Files.Glob(copies...) {
		raw, err := os.ReadFile(h.Files.Path(f))
		if err != nil {
			continue
		}
		kc, err := clientcmd.Load(raw)
		if err != nil {
			continue
		}
		for _, u := range kc.AuthInfos {
			data := u.ClientCertificateData
			if len(data) == 0 && u.ClientCertificate != "" {
				data, _ = h.Files.ReadFile(beside(path.Clean(f), u.ClientCertificate))
			}
			if cert, err := parseCertificate(data); err == nil && cert.CheckSignatureFrom(ca) == nil {
				out = append(out, f)
				break
			}
		}
	}
	return out, nil
}
