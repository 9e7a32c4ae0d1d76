// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/certs/renewal"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
)

// Certificate is a certificate on this machine, as "certs check" shows it.
type Certificate struct {
	Name string `json:"name"`
	File string `json:"file"`
	// Kind is "control-plane", "kubeconfig", "kubelet", "depot" or "authority".
	Kind     string    `json:"kind"`
	NotAfter time.Time `json:"notAfter"`
	DaysLeft int       `json:"daysLeft"`
	// State is "valid", "expires-soon", "expired", or "damaged" if the file or its key cannot be read; then the times are zero.
	State string `json:"state"`
	// External is set if the CA's key is not on this machine: only its owner can renew.
	External bool `json:"external,omitempty"`

	notBefore time.Time
	// pod is the static pod that reads it at startup.
	pod string
	// authority is the CA that signed it; "" if kubeadm does not know.
	authority string
	// cert is nil if it cannot be read.
	cert *x509.Certificate
}

// The kinds of certificates.
const (
	kindControlPlane = "control-plane"
	kindKubeconfig   = "kubeconfig"
	kindKubelet      = "kubelet"
	kindDepot        = "depot"
	kindAuthority    = "authority"
)

// The states of certificates.
const (
	CertificateValid   = "valid"
	CertificateSoon    = "expires-soon"
	CertificateExpired = "expired"
	CertificateDamaged = "damaged"
)

const (
	kubeletServing    = kubeletDir + "/pki/kubelet.crt"
	kubeletServingKey = kubeletDir + "/pki/kubelet.key"
	depotServing      = pkiDir + "/ocadm-depot/serving.pem"
)

// readers maps certificates to the static pods that read them at startup.
var readers = map[string]string{
	"apiserver": constants.KubeAPIServer, "apiserver-kubelet-client": constants.KubeAPIServer, "apiserver-etcd-client": constants.KubeAPIServer,
	"front-proxy-client": constants.KubeAPIServer, "etcd-server": constants.Etcd, "etcd-peer": constants.Etcd, "etcd-healthcheck-client": constants.Etcd,
	constants.ControllerManagerKubeConfigFileName: constants.KubeControllerManager, constants.SchedulerKubeConfigFileName: constants.KubeScheduler,
}

// renewer returns kubeadm's renewal manager for the certificates of this machine.
func renewer(h *host.Host) (*renewal.Manager, error) {
	c, err := internalCluster(h.Config)
	if err != nil {
		return nil, err
	}
	c.CertificatesDir = h.Files.Path(pkiDir)
	m, err := renewal.NewManager(c, h.Files.Path(kubernetesDir))
	if err != nil {
		return nil, fmt.Errorf("listing the certificates of the control plane: %w", err)
	}
	return m, nil
}

// Certificates returns the certificates of a control-plane node, the first to expire first. It omits missing ones. An unreadable one is damaged if "certs
// renew" can recreate it; an unreadable CA is a finding.
func Certificates(h *host.Host, now time.Time, soon time.Duration) ([]Certificate, error) {
	m, err := renewer(h)
	if err != nil {
		return nil, err
	}
	var out []Certificate
	add := func(c Certificate, cert *x509.Certificate) {
		c.NotAfter, c.notBefore, c.cert = cert.NotAfter.UTC(), cert.NotBefore, cert
		left := cert.NotAfter.Sub(now)
		c.DaysLeft, c.State = int(left.Hours()/24), CertificateValid
		switch {
		case left <= 0, now.Before(cert.NotBefore): // see early
			c.State = CertificateExpired
		case left < soon:
			c.State = CertificateSoon
		}
		out = append(out, c)
	}
	for _, r := range m.Certificates() {
		c := Certificate{Name: r.Name, Kind: kindControlPlane, File: pkiDir + "/" + r.FileName + ".crt", pod: readers[r.Name], authority: r.CABaseName}
		read := func() (*x509.Certificate, error) { return readCertificate(h, c.File) }
		if path.Ext(r.FileName) == ".conf" {
			c.Kind, c.File = kindKubeconfig, kubernetesDir+"/"+r.FileName
			read = func() (*x509.Certificate, error) { return kubeconfigCertificate(h, c.File) }
		}
		cert, err := read()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		c.External = !h.Files.Exists(pkiDir + "/" + r.CABaseName + ".key")
		if err == nil {
			err = pairProblem(h, c)
		}
		if err != nil {
			if err := checkAuthority(h, c.authority); err != nil {
				return nil, err
			}
			out = append(out, c.damaged(cert))
			continue
		}
		add(c, cert)
	}
	for _, c := range []Certificate{
		{Name: "kubelet-client", Kind: kindKubelet, File: kubeletClientPEM}, {Name: "kubelet-serving", Kind: kindKubelet, File: kubeletServing},
		{Name: "depot", Kind: kindDepot, File: depotServing}, {Name: "ca", Kind: kindAuthority, File: pkiDir + "/ca.crt"},
		{Name: "etcd-ca", Kind: kindAuthority, File: pkiDir + "/etcd/ca.crt"}, {Name: "front-proxy-ca", Kind: kindAuthority, File: pkiDir + "/front-proxy-ca.crt"},
	} {
		cert, err := readCertificate(h, c.File)
		if c.File == kubeletServing && (err == nil || h.Files.Exists(kubeletServingKey)) && pairProblem(h, c) != nil {
			out = append(out, c.damaged(cert)) // the kubelet would not start
			continue
		}
		switch {
		case err == nil:
			add(c, cert)
		case errors.Is(err, fs.ErrNotExist) || c.Kind == kindDepot: // the depot recreates its own
		case c.Kind == kindKubelet:
			out = append(out, c.damaged(nil))
		default:
			return nil, unreadable(c.File, err)
		}
	}
	slices.SortFunc(out, func(a, b Certificate) int { return cmp.Or(a.NotAfter.Compare(b.NotAfter), cmp.Compare(a.Name, b.Name)) })
	return out, nil
}

// unreadable returns the finding for a CA that cannot be read, such as one emptied by a power cut. Nothing can recreate it.
func unreadable(file string, err error) error {
	return finding.Errorf("OCA-4422", "A certificate on this machine cannot be read",
		"restore "+file+" from a copy of /etc/kubernetes; without a copy, if the cluster has other control-plane nodes: ocadm reset on this machine, and join it again; "+
			"never reset the only control-plane node, which would destroy the cluster: "+createAgain, "%s: %w", file, err)
}

func readCertificate(h *host.Host, file string) (*x509.Certificate, error) {
	raw, err := h.Files.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parseCertificate(raw)
}

func kubeconfigCertificate(h *host.Host, file string) (*x509.Certificate, error) {
	_, user, err := loadKubeconfig(h, file)
	if err != nil {
		return nil, err
	}
	return clientCertificate(h, user)
}

// Remedies for certificates that have expired or soon will.
const (
	renewThem   = "ocadm certs renew; the same on the other control-plane nodes"
	makeThem    = "ocadm certs renew, on this machine, which recreates them"
	rotateThem  = "ocadm certs rotate-ca replaces authorities, with --etcd also etcd's; for other certificates that end soon: ocadm certs renew"
	createAgain = "back up the cloud's databases, create the cluster again, and restore: docs/backup.md"
	// A clock may have been ahead when an authority was made.
	waitOrCreate = "if it is not valid yet, correct the clock (timedatectl), or wait until then; otherwise " + createAgain
	// keyElsewhere does not name "certs generate-csr" alone: it refuses the directories of a control-plane node, which have keys.
	keyElsewhere = "put the key into " + pkiDir + " until the command has ended; or have its owner sign requests: ocadm explain OCA-4404"
)

// early reports whether it is not valid yet: a clock was ahead when it was issued.
func (c Certificate) early() bool { return c.State == CertificateExpired && c.DaysLeft > 0 }

// End describes when the certificate expires.
func (c Certificate) End() string {
	switch {
	case c.State == CertificateDamaged && c.cert != nil:
		return "has no usable key"
	case c.State == CertificateDamaged:
		return "cannot be read"
	case c.early():
		return "is not valid before " + c.notBefore.UTC().Format(time.RFC3339)
	}
	return "ends " + c.NotAfter.Format(time.RFC3339)
}

// Expiry returns a finding if a certificate has expired, expires soon or cannot be read; nil if all are valid.
func Expiry(list []Certificate, node string) error {
	for _, judged := range []struct{ state, code, title, authority string }{
		{CertificateDamaged, "OCA-4422", "Certificates of Kubernetes cannot be read", createAgain},
		{CertificateExpired, "OCA-4301", "Certificates of Kubernetes have expired, or are not valid yet", waitOrCreate},
		{CertificateSoon, "OCA-4401", "Certificates of Kubernetes expire soon", rotateThem},
	} {
		next := renewThem
		if judged.state == CertificateDamaged {
			next = makeThem
		}
		var names []string
		for _, c := range list {
			if c.State != judged.state {
				continue
			}
			names = append(names, c.File+" "+c.End())
			if c.Kind == kindAuthority {
				next = judged.authority
			}
		}
		if len(names) > 0 {
			return finding.New(judged.code, judged.title, fmt.Sprintf("%d on node %s", len(names), node), next).With(names...)
		}
	}
	return nil
}
