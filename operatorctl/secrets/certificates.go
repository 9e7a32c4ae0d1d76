// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// The keys of Secret <cluster>-certs; tools of the earlier operator read them.
const (
	keyCACert, keyCAKey           = "ca.crt", "ca.key"
	keyServiceCert, keyServiceKey = "service.crt", "service.key"
)

// etcdRoles lists the certificates of a cloud's etcd. Each has its own Secret (<cluster>-etcd-<role>), so that a service that mounts the client's
// cannot read the server's key.
var etcdRoles = []string{"client", "peer", "server"}

// Wanted describes the certificates of a cloud.
type Wanted struct {
	Cluster, Namespace string
	// Names are those of the services, Address is that of the cloud; "" if it has none.
	Names   []string
	Address string
	Now     time.Time
	// Served holds the hash of the CA certificates that all pods run with, by Secret.
	Served map[string]string
}

// Certificates holds what the pods of a cloud mount.
type Certificates struct {
	// Secrets holds them, the CA first.
	Secrets            []Secret
	CAPEM              []byte
	CertHash, EtcdHash string
	RenewAt            time.Time
	// EtcdClient is what services present to etcd; the identity service distributes it.
	EtcdClient identity.Certificate
	// Trust holds the hash of the CA certificates by Secret, Rotating whether they are being replaced.
	Trust    map[string]string
	Rotating map[string]bool
	Status   v1alpha1.CertificatesStatus
}

// Secret is the content of a Secret.
type Secret struct {
	Name string
	Data map[string][]byte
}

// Plan lists the certificates to issue.
type Plan struct {
	wanted Wanted
	// caSecret is the Secret with the CA; ca is the CA after step.
	caSecret string
	step     step
	ca       authority
	// leaves holds one leaf per Secret, but not that of the service if a user provides the certificate.
	leaves   []leaf
	provided *corev1.Secret
	// renewed is true if etcd's client certificate is not the first one.
	renewed bool
}

// leaf is a certificate. data is the stored one if it is kept, nil if a new one must be issued.
type leaf struct {
	secret, certKey, keyKey string
	request                 pki.Request
	data                    map[string][]byte
}

// IsProvided reports whether a user marked a Secret of certificates as their own.
func IsProvided(s *corev1.Secret) bool {
	return s != nil && s.Annotations[v1alpha1.AnnotationSupplied] == "true"
}

// CertsSecret returns the name of the Secret with the CA and the service certificate.
func CertsSecret(cluster string) string { return cluster + "-" + v1alpha1.SecretCerts }

// IngressSecret returns the name of the Secret with the service certificate for the Ingress, which exists if a user provides that certificate.
func IngressSecret(cluster string) string { return cluster + "-" + v1alpha1.SecretIngressCerts }

// EtcdCASecret returns the name of the Secret with the CA of etcd. It is a copy of the CA, and its successor while a user provides the service certificate,
// or has deleted it: members of etcd with certificates from different CAs reject each other, so a rollout to a new CA would never end.
func EtcdCASecret(cluster string) string { return cluster + "-etcd-ca" }

// EtcdSecrets returns the names of the Secrets with etcd's certificates.
func EtcdSecrets(cluster string) []string {
	return lists.Map(etcdRoles, func(role string) string { return etcdSecret(cluster, role) })
}

func etcdSecret(cluster, role string) string { return cluster + "-etcd-" + role }

// Plan plans the certificates. found holds the existing Secrets by name. A leaf is renewed at two thirds of its lifetime, or if it lacks a name.
// Certificates that a user provides are used but never written; etcd, which only services connect to, then keeps its CA. Plan is pure.
func (w Wanted) Plan(found map[string]*corev1.Secret) (Plan, error) {
	p := Plan{wanted: w, caSecret: CertsSecret(w.Cluster)}
	if s := found[p.caSecret]; IsProvided(s) {
		if err := usable(s, w.Cluster+"-"+component.IdentityService+"."+w.Namespace+".svc", w.Now); err != nil {
			return p, fmt.Errorf("the certificates in Secret %q, which are user-provided according to annotation %s, cannot be used: %w", s.Name,
				v1alpha1.AnnotationSupplied, err)
		}
		p.provided, p.caSecret = s, EtcdCASecret(w.Cluster)
	}
	data := dataOf(found[p.caSecret])
	if len(data[keyCACert]) == 0 {
		data = dataOf(found[EtcdCASecret(w.Cluster)])
	}
	hash, err := engine.Hash(data[keyCACert])
	if p.step, p.ca, err = nextStep(data, w.Now, err == nil && w.Served[p.caSecret] == hash); err != nil {
		return p, fmt.Errorf("reading the CA in Secret %q: %w; restore the Secret, or delete it: the operator makes it again", p.caSecret, err)
	}
	if p.provided == nil {
		p.add(found, p.caSecret, keyServiceCert, keyServiceKey, pki.Request{CommonName: "service", Names: w.Names, Usage: pki.Server})
	}
	etcd := pki.EtcdRequests(w.Cluster+"-etcd", w.Namespace, w.etcdNames(), w.Now, w.Now.Add(pki.LeafLifetime))
	for i, request := range []pki.Request{etcd.Client, etcd.Peer, etcd.Server} {
		request.Small = true // etcd and its clients are written in Go
		replaced := p.add(found, etcdSecret(w.Cluster, etcdRoles[i]), etcdFile(etcdRoles[i], ".crt"), etcdFile(etcdRoles[i], ".key"), request)
		if etcdRoles[i] != "client" {
			continue
		}
		// Most services read it only when they start, which a new service certificate causes.
		if replaced && p.provided == nil {
			p.leaves[0].data = nil
		}
		p.renewed = replaced || isRenewed(found[etcdSecret(w.Cluster, etcdRoles[i])])
	}
	return p, nil
}

func (w Wanted) etcdNames() []string {
	names := pki.ServiceNames(w.Cluster+"-etcd-client", w.Namespace)
	if w.Address != "" {
		names = append(names, w.Address)
	}
	return names
}

// add plans a leaf: the stored one is kept while it is usable. It reports whether a stored one is replaced.
func (p *Plan) add(found map[string]*corev1.Secret, secret, certKey, keyKey string, request pki.Request) bool {
	request.NotBefore, request.NotAfter = p.wanted.Now.Add(-time.Hour), p.wanted.Now.Add(pki.LeafLifetime)
	l := leaf{secret: secret, certKey: certKey, keyKey: keyKey, request: request}
	data := dataOf(found[secret])
	if len(data[certKey]) > 0 && p.step != makeCA {
		old, err := pki.ParsePair(data[certKey], data[keyKey])
		ca := p.ca.pair
		early := err == nil && p.wanted.Now.Before(old.Cert.NotBefore) && ca.Cert.NotBefore.Before(old.Cert.NotBefore) // a clock was ahead
		if err == nil && !early && (!pki.NeedsRenewal(old.Cert, p.wanted.Now) || endsWith(ca, old)) && len(pki.Covers(old.Cert, request.Names)) == 0 &&
			pki.SignedBy(old.Cert, ca.Cert) {
			l.data = map[string][]byte{certKey: data[certKey], keyKey: data[keyKey]}
		}
	}
	p.leaves = append(p.leaves, l)
	return l.data == nil && len(data[certKey]) > 0
}

// Due reports whether anything must be issued.
func (p Plan) Due() bool {
	return p.step != keepCA || slices.ContainsFunc(p.leaves, func(l leaf) bool { return l.data == nil })
}

// Apply issues what is due. It writes nothing to the cluster.
func (p Plan) Apply() (Certificates, error) {
	var g errgroup.Group
	for i := range p.leaves { // large keys take a tenth of a second each: generate them in parallel
		if l := &p.leaves[i]; l.data == nil && !l.request.Small {
			g.Go(func() (err error) {
				l.request.Key, err = pki.NewKey()
				return err
			})
		}
	}
	ca, err := p.ca.take(p.step, p.wanted.Now, pki.NewKey)
	if keyErr := g.Wait(); err == nil {
		err = keyErr
	}
	if err != nil {
		return Certificates{}, fmt.Errorf("generating the CA in Secret %q: %w", p.caSecret, err)
	}
	hash, err := engine.Hash(ca.trust)
	if err != nil {
		return Certificates{}, err
	}
	out := Certificates{
		RenewAt: ca.next(), Trust: map[string]string{p.caSecret: hash}, Rotating: map[string]bool{p.caSecret: ca.rotation != ""},
		Secrets: []Secret{{p.caSecret, ca.data}}, Status: v1alpha1.CertificatesStatus{Message: ca.rotation},
	}
	if p.provided == nil {
		out.Secrets = append(out.Secrets, Secret{EtcdCASecret(p.wanted.Cluster), maps.Clone(ca.data)})
	}
	etcdHash := map[string][]byte{"ca": ca.trust}
	for _, l := range p.leaves {
		data, renewAt, err := l.issue(ca.pair)
		if err != nil {
			return Certificates{}, fmt.Errorf("issuing the certificate in Secret %q: %w", l.secret, err)
		}
		out.RenewAt = wait.Earliest(out.RenewAt, renewAt)
		if l.secret == p.caSecret {
			maps.Copy(ca.data, data)
			ca.data[corev1.TLSCertKey], ca.data[corev1.TLSPrivateKeyKey] = data[keyServiceCert], data[keyServiceKey]
			continue
		}
		role := l.secret[len(p.wanted.Cluster+"-etcd-"):]
		data[etcdFile(role, "-ca.crt")] = ca.trust
		etcdHash[role] = data[l.certKey]
		if role == "client" {
			// The identity service takes no second CA, and its clients do not verify etcd.
			out.EtcdClient = identity.Certificate{PEM: string(data[l.certKey]), KeyPEM: string(data[l.keyKey]), CAPEM: string(ca.pair.CertPEM())}
		}
		out.Secrets = append(out.Secrets, Secret{l.secret, data})
	}
	if out.EtcdHash, err = engine.Hash(etcdHash); err != nil {
		return Certificates{}, err
	}
	out.Status.RenewAt = metav1.NewTime(out.RenewAt)
	service := ca.data
	if p.provided != nil {
		service, out.Status.Supplied = p.provided.Data, true
		out.Secrets = append(out.Secrets, Secret{IngressSecret(p.wanted.Cluster), map[string][]byte{
			corev1.TLSCertKey: service[keyServiceCert], corev1.TLSPrivateKeyKey: service[keyServiceKey],
		}})
	}
	if err := out.use(service); err != nil {
		return Certificates{}, err
	}
	if p.provided != nil && (p.renewed || ca.rotation != "") { // the supplied certificate stays, so etcd's restart the pods
		out.CertHash += out.EtcdHash
	}
	if p.provided != nil && !p.wanted.Now.Before(out.Status.NotAfter.Time) {
		out.Status.Message = "the supplied certificate has expired: replace it in Secret " + p.provided.Name
	}
	return out, nil
}

// isRenewed reports whether etcd's client certificate was issued later than its Secret was created.
func isRenewed(client *corev1.Secret) bool {
	certs, err := pki.ParseCerts(dataOf(client)[etcdFile("client", ".crt")])
	return err == nil && len(certs) > 0 && certs[0].NotBefore.After(client.CreationTimestamp.Time)
}

func (l leaf) issue(ca pki.Pair) (map[string][]byte, time.Time, error) {
	if l.data != nil {
		old, err := pki.ParsePair(l.data[l.certKey], l.data[l.keyKey])
		return l.data, renewal(ca, old), err
	}
	pair, err := pki.Issue(ca, l.request)
	if err != nil {
		return nil, time.Time{}, err
	}
	data, err := encodePair(pair, l.certKey, l.keyKey)
	return data, renewal(ca, pair), err
}

// use records what services present and trust.
func (c *Certificates) use(data map[string][]byte) error {
	leaf, err := pki.ParseCerts(data[keyServiceCert])
	if err != nil {
		return fmt.Errorf("reading the service certificate: %w", err)
	}
	ca, err := pki.ParseCerts(data[keyCACert])
	if err != nil {
		return fmt.Errorf("reading the CA: %w", err)
	}
	c.CAPEM = data[keyCACert]
	c.Status.NotAfter, c.Status.CANotAfter = metav1.NewTime(leaf[0].NotAfter), metav1.NewTime(ca[0].NotAfter)
	c.CertHash, err = engine.Hash(map[string][]byte{"ca": data[keyCACert], "crt": data[keyServiceCert], "key": data[keyServiceKey]})
	return err
}

// ServiceNames returns all names of the services of a cloud, enabled or not: enabling one must not replace the certificate of all others.
func ServiceNames(cluster, namespace string, catalog []component.Component, further ...string) []string {
	names := pki.ServiceNames("service", namespace)
	for _, c := range catalog {
		if c.Service == nil {
			continue
		}
		names = append(names, pki.ServiceNames(cluster+"-"+c.Name, namespace)...)
		if c.Workload.ReadReplicas {
			names = append(names, pki.ServiceNames(cluster+"-"+c.Name+"-slave", namespace)...)
		}
	}
	names = append(names, "localhost", "127.0.0.1", "::1")
	return slices.DeleteFunc(append(names, further...), func(s string) bool { return s == "" })
}

// usable returns an error if provided certificates cannot be used: a key is missing or does not match, the CA did not sign them, they lack a name, or the
// private key is not RSA, the only one with which apigateway starts.
// Expired ones are usable.
func usable(s *corev1.Secret, name string, now time.Time) error {
	for _, key := range []string{keyCACert, keyServiceCert, keyServiceKey} {
		if len(s.Data[key]) == 0 {
			return fmt.Errorf("key %s is missing", key)
		}
	}
	leaf, err := pki.ParsePair(s.Data[keyServiceCert], s.Data[keyServiceKey])
	if err != nil {
		return err
	}
	if _, is := leaf.Key.(*rsa.PrivateKey); !is {
		return fmt.Errorf("key %s is not an RSA key, the only kind that apigateway accepts", keyServiceKey)
	}
	chain, err := pki.ParseCerts(s.Data[keyServiceCert])
	if err != nil {
		return err
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.Data[keyCACert]) {
		return fmt.Errorf("key %s contains no certificate", keyCACert)
	}
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	if now.After(leaf.Cert.NotAfter) {
		now = leaf.Cert.NotAfter
	}
	_, err = leaf.Cert.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: name, CurrentTime: now})
	return err
}

// endsWith reports whether a leaf expires with its CA: a new one would gain nothing.
func endsWith(ca, leaf pki.Pair) bool { return !leaf.Cert.NotAfter.Before(ca.Cert.NotAfter) }

func renewal(ca, p pki.Pair) time.Time {
	if p.Cert == nil || endsWith(ca, p) {
		return ca.Cert.NotAfter
	}
	return pki.RenewAt(p.Cert)
}

// etcdFile returns a file name that etcd's clients of the earlier operator know: server.crt, peer.crt, etcd-client.crt, each with .key and -ca.crt.
func etcdFile(role, suffix string) string {
	if role == "client" {
		return "etcd-client" + suffix
	}
	return role + suffix
}

func dataOf(s *corev1.Secret) map[string][]byte {
	if s == nil {
		return nil
	}
	return s.Data
}
