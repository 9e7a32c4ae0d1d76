// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kubeadm/app/constants"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/certs"
	kubeadmutil "k8s.io/kubernetes/cmd/kubeadm/app/util"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/pkiutil"

	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// Renewal is the state shared by the steps of a renewal.
type Renewal struct {
	Host *host.Host
	// Within renews what expires within that time; All renews everything older than Since.
	Within time.Duration
	All    bool
	Since  time.Time
	// Unattended means renewal by the operator: what has reached its renewal time, whatever Within is. What cannot be renewed is left for its report.
	Unattended bool
	// Alone is set if no other control-plane node is known. Otherwise, etcd may not answer until a second node is renewed.
	Alone bool
	// expired is set if certificates had expired when the renewal began, even in an earlier, interrupted run.
	expired bool
	// recreated is set if the API server's certificate was recreated: names of the cluster may be missing in it.
	recreated bool
}

// RenewStep is one step of a renewal.
type RenewStep = workflow.Phase[*Renewal]

const (
	// renewRecord stores the state of an unfinished renewal.
	renewRecord = host.StateDir + "/certs-renewal.json"
	// backdate is slightly more than kubeadm backdates certificates.
	backdate = constants.CertificateBackdate + time.Minute
	// othersPatience is how long a restarted API server may wait for etcd, which in turn may wait for other nodes.
	othersPatience = 45 * time.Second
)

// noted is the state that the certificates on disk no longer show once some of them are renewed.
type noted struct {
	// Since is when a renewal of everything began.
	Since time.Time `json:"since,omitzero"`
	// Expired is set if certificates had expired.
	Expired bool `json:"expired,omitempty"`
}

// PlanRenewal determines what to renew. all means everything older than this process: kubeadm dates each certificate by the start of its process.
func PlanRenewal(ctx context.Context, h *host.Host, now time.Time, within time.Duration, all bool) (*Renewal, error) {
	n := &Renewal{Host: h, Within: within, All: all, Since: kubeadmutil.StartTimeUTC(), Alone: true}
	if m, err := OwnEtcd(h); err == nil {
		ctx, cancel := context.WithTimeout(ctx, removalTimeout)
		defer cancel()
		if members, err := EtcdMembers(ctx, h); err == nil {
			n.Alone = len(members) < 2
		} else { // for example if its certificates have expired
			n.Alone = len(m.Others()) == 0 && !h.Files.Exists(manifest("ocadm-vip"))
		}
	}
	var rec noted
	if there, err := h.Files.ReadJSON(renewRecord, &rec); there && err == nil {
		if all && now.Sub(rec.Since) < 24*time.Hour {
			n.Since = rec.Since
		}
		n.expired = rec.Expired
	}
	return n, n.refuse(now)
}

// PlanUnattended returns the operator's renewal. With since, it renews everything older.
func PlanUnattended(h *host.Host, now, since time.Time) (*Renewal, error) {
	n := &Renewal{Host: h, Unattended: true, All: !since.IsZero(), Since: since, Alone: true}
	return n, n.refuse(now)
}

// refuse returns why nothing can be renewed.
func (n *Renewal) refuse(now time.Time) error {
	h := n.Host
	list, err := Certificates(h, now, n.Within)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(c Certificate) bool { return c.Kind == kindControlPlane }) || !h.Files.Exists(pkiDir+"/ca.crt") { // a worker has ca.crt, too
		return NoCertificates()
	}
	n.expired = n.expired || slices.ContainsFunc(list, func(c Certificate) bool { return c.Kind == kindControlPlane && c.State == CertificateExpired })
	for _, c := range list {
		if c.Kind == kindAuthority && c.State == CertificateExpired {
			return finding.New("OCA-4403", "A certificate authority has expired, or is not valid yet", c.File+" "+c.End(), waitOrCreate)
		}
		if !n.due(c, now) {
			continue
		}
		if c.authority != "" && !c.External {
			if err := checkAuthority(h, c.authority); err != nil {
				return err
			}
		}
		if c.External && !n.Unattended {
			return finding.New("OCA-4404", "The key of a certificate authority is not on this machine", c.File+" cannot be signed here",
				keyElsewhere).With(c.File)
		}
	}
	return nil
}

// NoCertificates returns the finding for a machine that is not a control-plane node.
func NoCertificates() error {
	return finding.New("OCA-4402", "This machine has no certificates of a control plane", pkiDir+" has none", "run the command on a control-plane node")
}

// due reports whether a certificate must be renewed.
func (n *Renewal) due(c Certificate, now time.Time) bool {
	if c.Kind == kindAuthority || c.Kind == kindDepot { // the depot renews its own
		return false
	}
	if c.State == CertificateDamaged { // the operator does not restart kubelets
		return !n.Unattended || c.Kind != kindKubelet && !c.External
	}
	older := n.All && c.notBefore.Before(n.Since.Add(-backdate)) || now.Before(c.notBefore) // a clock was ahead when it was issued
	if n.Unattended {
		// A kubelet renews its client certificate itself, and would have to be restarted to use another.
		return !c.External && c.File != kubeletClientPEM && (older || !now.Before(certreport.RenewAt(c.notBefore, c.NotAfter)))
	}
	return older || c.NotAfter.Sub(now) < n.Within
}

func (n *Renewal) dueOf(kinds ...string) ([]Certificate, error) {
	list, err := Certificates(n.Host, time.Now(), n.Within)
	return slices.DeleteFunc(list, func(c Certificate) bool { return !slices.Contains(kinds, c.Kind) || !n.due(c, time.Now()) }), err
}

func (n *Renewal) lines(kinds ...string) ([]string, error) {
	list, err := n.dueOf(kinds...)
	return lists.Map(list, func(c Certificate) string {
		do := "renew"
		if c.State == CertificateDamaged {
			do = "recreate"
		}
		return fmt.Sprintf("%s %s, which %s", do, c.File, c.End())
	}), err
}

// RenewSteps renew the certificates of this machine and restart the programs that read them, one after the other.
func RenewSteps() []RenewStep {
	steps := []RenewStep{
		{Name: "begin", Short: "Record the state before the renewal", Timeout: time.Minute,
			Run: func(_ context.Context, n *Renewal, _ workflow.Reporter) error {
				rec := noted{Expired: n.expired}
				if n.All {
					rec.Since = n.Since
				}
				return n.Host.Files.ReplaceJSON(renewRecord, rec)
			}, Plan: workflow.Says[*Renewal](),
			Skip: workflow.SkipIf("no --all, and nothing has expired", func(n *Renewal) bool { return n.Unattended || !n.All && !n.expired })},
		RenewStep{Name: "certificates", Short: "Renew the certificates and kubeconfigs of the control plane", Run: renewControlPlane}.Todo(
			func(_ context.Context, n *Renewal) ([]string, error) {
				return n.lines(kindControlPlane, kindKubeconfig)
			}),
		RenewStep{Name: "kubelet", Short: "Renew the certificates of the kubelet", Run: renewKubelet}.Todo(
			func(_ context.Context, n *Renewal) ([]string, error) { return n.lines(kindKubelet) }),
	}
	steps = append(steps, lists.Map(StaticPods(), takeStep)...)
	return append(steps, nameStep(), RenewStep{Name: "finish", Short: "Record the end of the renewal", Timeout: time.Minute,
		Skip: workflow.SkipIf("nothing was recorded", func(n *Renewal) bool { return n.Unattended }),
		Plan: workflow.Says[*Renewal](),
		Run: func(_ context.Context, n *Renewal, _ workflow.Reporter) error {
			if err := disk.Remove(n.Host.Files.Path(renewRecord)); err != nil {
				return fmt.Errorf("recording the end of the renewal: %w", err)
			}
			return nil
		}})
}

func renewControlPlane(ctx context.Context, n *Renewal, r workflow.Reporter) error {
	list, err := n.dueOf(kindControlPlane, kindKubeconfig)
	if err != nil {
		return err
	}
	for _, c := range list {
		if err := renewKeeping(ctx, n.Host, c); err != nil {
			return err
		}
		n.recreated = n.recreated || c.Name == APIServerCertificate && c.cert == nil
		if c.File == AdminKubeconfig && c.State == CertificateDamaged {
			n.Host.Reopen() // the next steps use it
		}
		r.Changed("renewed %s", c.File)
	}
	return nil
}

// renewKeeping re-signs a certificate or kubeconfig of the control plane. It keeps the key, so that each is one atomically replaced file: kubeadm writes a key
// and then its certificate, and after a power loss in between, neither etcd nor the API server would start. A damaged one gets a new key.
func renewKeeping(ctx context.Context, h *host.Host, c Certificate) (err error) {
	switch {
	case c.State == CertificateDamaged:
		return renewOne(ctx, h, c)
	case c.Kind == kindKubeconfig:
		err = signKubeconfig(h, c.File, c.authority)
	default:
		err = signWith(h, c.File, c.authority, nil)
	}
	if err != nil {
		return fmt.Errorf("renewing %s: %w", c.File, err)
	}
	return nil
}

// renewOne re-signs a certificate or kubeconfig of the control plane and gives it a new key. After a power loss between the two files they count as damaged,
// and the next run of the same command repairs them. kubeadm truncates a file before it writes the new content, so a full disk would leave it
// empty. Hence renewOne first checks that there is room for more than that.
func renewOne(ctx context.Context, h *host.Host, c Certificate) error {
	const room, bytes = pkiDir + "/.ocadm-room", 64 << 10
	err := h.Files.Replace(room, make([]byte, bytes), 0o600)
	if err == nil {
		err = h.Files.Remove(room)
	}
	if err != nil {
		return fmt.Errorf("renewing %s: making sure that it fits on the disk: %w", c.File, err)
	}
	if c.cert == nil { // kubeadm takes the names from the current one
		return recreate(ctx, h, c)
	}
	m, err := renewer(h)
	if err != nil {
		return err
	}
	if _, err := m.RenewUsingLocalCA(c.Name); err != nil {
		return fmt.Errorf("renewing %s: %w", c.File, err)
	}
	if c.Kind == kindKubeconfig {
		return trustAll(h, c.File)
	}
	return nil
}

// renewKubelet signs a client certificate for the kubelet, which renews only a valid one itself, and a serving certificate. Without a valid client certificate
// neither the kubelet nor any static pod starts. The kubelet reloads a new serving certificate at run time.
func renewKubelet(ctx context.Context, n *Renewal, r workflow.Reporter) error {
	list, err := n.dueOf(kindKubelet)
	if err != nil {
		return err
	}
	h := n.Host
	for _, c := range list {
		sign := signKubeletClient
		switch {
		case c.File == kubeletServing && c.State == CertificateDamaged:
			sign = dropKubeletServing
		case c.File == kubeletServing:
			sign = signKubeletServing
		}
		if err := sign(h, time.Now()); err != nil {
			return err
		}
		r.Changed("renewed %s", c.File)
	}
	if n.Unattended {
		return nil
	}
	return h.Start(ctx, r, "kubelet", true)
}

// signKubeletServing creates a self-signed certificate, as the kubelet does, with the names of the current one. It keeps the key, so that only one file
// changes: the kubelet does not start with a pair that does not match.
func signKubeletServing(h *host.Host, now time.Time) error {
	old, err := readCertificate(h, kubeletServing)
	if err != nil {
		return fmt.Errorf("reading the serving certificate of the kubelet: %w", err)
	}
	private, err := keyutil.PrivateKeyFromFile(h.Files.Path(kubeletServingKey))
	if err != nil {
		return fmt.Errorf("reading the key of the kubelet: %w", err)
	}
	key, ok := private.(crypto.Signer)
	if !ok {
		return errors.New("reading the key of the kubelet: it cannot sign")
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return fmt.Errorf("creating a certificate for the kubelet: %w", err)
	}
	like := &x509.Certificate{SerialNumber: serial, Subject: old.Subject, DNSNames: old.DNSNames, IPAddresses: old.IPAddresses,
		NotBefore: now.Add(-constants.CertificateBackdate), NotAfter: now.Add(validity(h)), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, like, like, key.Public(), key)
	if err != nil {
		return fmt.Errorf("creating a certificate for the kubelet: %w", err)
	}
	return h.Files.Replace(kubeletServing, pem.EncodeToMemory(&pem.Block{Type: pkiutil.CertificateBlockType, Bytes: der}), 0o644) // the kubelet's mode for it
}

// dropKubeletServing removes an unusable serving certificate and its key: the kubelet creates them when it starts.
func dropKubeletServing(h *host.Host, _ time.Time) error {
	return errors.Join(h.Files.RemoveAll(kubeletServing), h.Files.RemoveAll(kubeletServingKey)) // one may be missing
}

// kubeletSubject returns the subject of the kubelet's current client certificate or, if that cannot be read, the subject for this node's name, which is also the
// name of its etcd member.
func kubeletSubject(h *host.Host) (pkix.Name, error) {
	old, err := readCertificate(h, kubeletClientPEM)
	if err == nil {
		return old.Subject, nil
	}
	m, other := OwnEtcd(h)
	if other != nil {
		return pkix.Name{}, fmt.Errorf("reading the certificate of the kubelet: %w", err)
	}
	return pkix.Name{CommonName: constants.NodesUserPrefix + m.Name, Organization: []string{constants.NodesGroup}}, nil
}

// signKubeletClient signs a certificate with the subject of the current one, and links it as the kubelet does.
func signKubeletClient(h *host.Host, now time.Time) error {
	is, err := kubeletSubject(h)
	if err != nil {
		return err
	}
	ca, key, err := certs.LoadCertificateAuthority(h.Files.Path(pkiDir), constants.CACertAndKeyBaseName)
	if err != nil {
		return fmt.Errorf("reading the certificate authority: %w", err)
	}
	cert, private, err := pkiutil.NewCertAndKey(ca, key, &pkiutil.CertConfig{
		Config: certutil.Config{CommonName: is.CommonName, Organization: is.Organization, NotBefore: now.Add(-constants.CertificateBackdate),
			Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}},
		NotAfter: now.Add(validity(h)),
	})
	if err != nil {
		return fmt.Errorf("signing a certificate for the kubelet: %w", err)
	}
	encoded, err := keyutil.MarshalPrivateKeyToPEM(private)
	if err != nil {
		return fmt.Errorf("encoding the key of the kubelet: %w", err)
	}
	return linkKubeletClient(h, slices.Concat(pkiutil.EncodeCertPEM(cert), encoded), now)
}

// kubeletReads makes the kubelet's kubeconfig refer to the file instead of an embedded certificate, which init wrote.
func kubeletReads(h *host.Host) error {
	raw, err := h.Files.ReadFile(KubeletKubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of the kubelet: %w", err)
	}
	if bytes.Contains(raw, []byte(kubeletClientPEM)) {
		return nil
	}
	return finding.New("OCA-4405", "The kubeconfig of the kubelet contains its own certificate", KubeletKubeconfig+" does not name "+kubeletClientPEM,
		"ocadm kubeadm init phase kubelet-finalize enable-client-cert-rotation --config "+ConfigFile+", then run the same command again")
}
