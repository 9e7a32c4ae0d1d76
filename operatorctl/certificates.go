// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// certificates are what the pods of a cloud mount.
type certificates struct {
	caPEM              []byte
	certHash, etcdHash string
	renewAt            time.Time
	// etcdClient is what services show to etcd; the identity service hands it to them.
	etcdClient identity.Certificate
	// spare is a key that was made beside the CA's, nil where there is none.
	spare crypto.Signer
	// authorities by the Secret that holds them.
	authorities map[string]authority
	// told is what the status says of them.
	told v1alpha1.CertificatesStatus
}

// The keys of Secret <cluster>-certs; tools of the earlier operator read them.
const (
	keyCACert, keyCAKey           = "ca.crt", "ca.key"
	keyServiceCert, keyServiceKey = "service.crt", "service.key"
)

// ensureCertificates makes sure that the cloud has a CA, a service certificate with every name clients use, and etcd's certificates;
// it renews a leaf at two thirds of its life, or when a name is missing. A CA is exchanged in time, see authorityOf. Certificates that
// a person supplies are taken as they are.
func (p *pass) ensureCertificates(ctx context.Context) error {
	from := p.secretsFrom()
	if k := p.known; from != "" && k.secrets == from && p.now.Before(k.certs.renewAt) {
		p.certs = k.certs
		return nil
	}
	p.known.secrets, p.certFrom = "", from
	return p.issueCertificates(ctx)
}

// keepCertificates begins to bring the certificates of this pass to the cluster, the CA before what it has signed: who is stopped in between
// goes on with both. kept waits for it. No workload may be made or changed before: its pods would mount others.
func (p *pass) keepCertificates(ctx context.Context) (kept func() error) {
	if len(p.certSecrets) == 0 {
		return func() error { return nil }
	}
	var g errgroup.Group
	var changes []engine.Change
	g.Go(func() error {
		for _, list := range [][]client.Object{p.certSecrets[:1], p.certSecrets[1:]} {
			done, err := p.r.applier.Apply(ctx, list)
			if changes = append(changes, done...); err != nil {
				return err
			}
		}
		return nil
	})
	return func() error {
		err := g.Wait()
		changes = slices.DeleteFunc(changes, func(c engine.Change) bool { return c.Action == engine.Unchanged })
		p.changes = append(p.changes, changes...)
		if err == nil && len(changes) == 0 && p.certs.told.Message == "" {
			p.known.secrets, p.known.certs = p.certFrom, p.certs
		}
		return err
	}
}

func (p *pass) issueCertificates(ctx context.Context) error {
	p.certs.authorities = map[string]authority{}
	name := p.cr.Name + "-" + v1alpha1.SecretCerts
	current, err := p.storedCertificates(ctx, name)
	if err != nil {
		return err
	}
	if isSupplied(current) {
		return p.ensureSupplied(ctx, current)
	}
	ca, err := p.authority(ctx, name, current.Data)
	if err != nil {
		return err
	}
	data := ca.data
	req := pki.Request{CommonName: "service", Usage: pki.Server, Key: p.certs.spare}
	leaf, renewAt, err := p.leaf(ca.pair, current.Data, keyServiceCert, keyServiceKey, req, p.serviceNames())
	if err != nil {
		return fmt.Errorf("issuing the service certificate: %w", err)
	}
	maps.Copy(data, leaf)
	data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey] = leaf[keyServiceCert], leaf[keyServiceKey]
	p.certSecrets = append(p.certSecrets, p.secret(name, data))
	p.certs.renewAt = earlier(renewAt, ca.next())
	if err := p.use(data); err != nil {
		return err
	}
	return p.ensureEtcd(ctx, ca)
}

// use makes certificates those of this pass.
func (p *pass) use(data map[string][]byte) error {
	leaf, err := pki.ParseCerts(data[keyServiceCert])
	if err != nil {
		return fmt.Errorf("reading the service certificate: %w", err)
	}
	ca, err := pki.ParseCerts(data[keyCACert])
	if err != nil {
		return fmt.Errorf("reading the CA: %w", err)
	}
	p.certs.caPEM = data[keyCACert]
	p.certs.told.NotAfter, p.certs.told.CANotAfter = metav1.NewTime(leaf[0].NotAfter), metav1.NewTime(ca[0].NotAfter)
	p.certs.certHash, err = engine.Hash(map[string][]byte{"ca": data[keyCACert], "crt": data[keyServiceCert], "key": data[keyServiceKey]})
	return err
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// storedCertificates reads a Secret of certificates. Where the cache has no CA, the API server is asked: a cache that is behind, or a
// lost label, must not replace the CA of a running cloud. What a person supplies need not bear our labels: it is read anew with the audit.
func (p *pass) storedCertificates(ctx context.Context, name string) (*corev1.Secret, error) {
	if s := p.live.secret(name); s != nil && len(s.Data[keyCACert]) > 0 {
		return s, nil
	}
	if s := p.m.supplied; s != nil && s.Name == name && !p.auditDue() {
		return s, nil
	}
	s := &corev1.Secret{}
	if err := p.r.direct.Get(ctx, client.ObjectKey{Namespace: p.cr.Namespace, Name: name}, s); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the certificates: %w", err)
	}
	p.m.supplied = nil
	if isSupplied(s) {
		p.m.supplied = s
	}
	return s, nil
}

// authority is the CA of a Secret, for this pass. The first pass of a cloud waits for keys more than for anything else: where there is
// none, the next key is made beside the CA's.
func (p *pass) authority(ctx context.Context, secret string, data map[string][]byte) (authority, error) {
	var g errgroup.Group
	if len(data[keyCACert]) == 0 {
		g.Go(func() (err error) {
			p.certs.spare, err = p.r.keys.take(ctx)
			return err
		})
	}
	a, err := authorityOf(data, p.now, p.served(secret, data), func() (crypto.Signer, error) { return p.r.keys.take(ctx) })
	if err := errors.Join(err, g.Wait()); err != nil {
		return a, fmt.Errorf("reading the CA in Secret %q: %w", secret, err)
	}
	p.certs.authorities[secret] = a
	p.certs.told.Message = a.rolling
	return a, nil
}

// leaf returns the stored certificate if it still serves, else a new one.
func (p *pass) leaf(ca pki.Pair, current map[string][]byte, certKey, keyKey string, req pki.Request, names []string) (map[string][]byte, time.Time, error) {
	if len(current[certKey]) > 0 {
		old, err := pki.ParsePair(current[certKey], current[keyKey])
		if err == nil && (!pki.NeedsRenewal(old.Cert, p.now) || endsWith(ca, old)) && len(pki.Covers(old.Cert, names)) == 0 && pki.SignedBy(old.Cert, ca.Cert) {
			return map[string][]byte{certKey: current[certKey], keyKey: current[keyKey]}, renewal(ca, old), nil
		}
	}
	req.DNSNames, req.IPs = pki.SplitNames(names)
	req.NotBefore, req.NotAfter = p.now.Add(-time.Hour), p.now.Add(pki.LeafLifetime)
	pair, err := pki.Issue(ca, req)
	if err != nil {
		return nil, time.Time{}, err
	}
	data, err := encodePair(pair, certKey, keyKey)
	return data, renewal(ca, pair), err
}

// endsWith tells whether a leaf lives as long as its CA lets it: a new one would gain nothing.
func endsWith(ca, leaf pki.Pair) bool { return !leaf.Cert.NotAfter.Before(ca.Cert.NotAfter) }

func renewal(ca, p pki.Pair) time.Time {
	if endsWith(ca, p) {
		return ca.Cert.NotAfter
	}
	life := p.Cert.NotAfter.Sub(p.Cert.NotBefore)
	return p.Cert.NotBefore.Add(life * 2 / 3)
}

func encodePair(p pki.Pair, certKey, keyKey string) (map[string][]byte, error) {
	key, err := p.KeyPEM()
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return map[string][]byte{certKey: p.CertPEM(), keyKey: key}, nil
}

// serviceNames are all names under which a service of this cloud may be called, whether it is enabled now or not:
// switching one on must not replace the certificate of all others.
func (p *pass) serviceNames() []string {
	names := pki.ServiceNames("service", p.cr.Namespace)
	for _, c := range p.r.catalog {
		if c.Service == nil {
			continue
		}
		names = append(names, pki.ServiceNames(p.cr.Name+"-"+c.Name, p.cr.Namespace)...)
		if c.Workload.ReadReplicas {
			names = append(names, pki.ServiceNames(p.cr.Name+"-"+c.Name+"-slave", p.cr.Namespace)...)
		}
	}
	names = append(names, "localhost", "127.0.0.1", "::1", p.address)
	names = append(names, p.cr.Spec.CertSANs...)
	return slices.DeleteFunc(names, func(s string) bool { return s == "" })
}

// ensureEtcd makes the three certificates of the cloud's etcd, signed by the cloud's CA, each in a Secret of its own
// (<cluster>-etcd-server, -peer, -client), so that a service that mounts the client's cannot read the server's key.
func (p *pass) ensureEtcd(ctx context.Context, ca authority) error {
	reqs := pki.EtcdRequests(p.cr.Name+"-etcd", p.cr.Namespace, p.etcdNames(), p.now, p.now.Add(pki.LeafLifetime))
	hash := map[string][]byte{"ca": ca.trust}
	for role, made := range p.etcdLeaves(ctx, ca, map[string]pki.Request{"server": reqs.Server, "peer": reqs.Peer, "client": reqs.Client}) {
		if made.err != nil {
			return fmt.Errorf("issuing etcd's %s certificate: %w", role, made.err)
		}
		data := made.data
		data[etcdFile(role, "-ca.crt")] = ca.trust
		hash[role] = data[etcdFile(role, ".crt")]
		if role == "client" {
			p.certs.etcdClient = identity.Certificate{
				PEM: string(data[etcdFile(role, ".crt")]), KeyPEM: string(data[etcdFile(role, ".key")]), CAPEM: string(ca.trust),
			}
		}
		p.certSecrets = append(p.certSecrets, p.secret(p.etcdSecret(role), data))
		p.certs.renewAt = earlier(p.certs.renewAt, made.renewAt)
	}
	p.certs.told.RenewAt = metav1.NewTime(p.certs.renewAt)
	var err error
	p.certs.etcdHash, err = engine.Hash(hash)
	return err
}

// issued is a leaf that serves: a stored one or a new one.
type issued struct {
	data    map[string][]byte
	renewAt time.Time
	err     error
}

// etcdLeaves issues what is missing, side by side: most of a first pass is spent on making keys.
func (p *pass) etcdLeaves(ctx context.Context, ca authority, reqs map[string]pki.Request) map[string]issued {
	var mu sync.Mutex
	var all sync.WaitGroup
	out := map[string]issued{}
	for role, req := range reqs {
		all.Go(func() {
			current, err := p.storedLeaf(ctx, p.etcdSecret(role), ca)
			names := slices.Clone(req.DNSNames)
			for _, ip := range req.IPs {
				names = append(names, ip.String())
			}
			made := issued{err: err}
			req.Small = true // etcd and those that call it are written in Go
			if err == nil {
				made.data, made.renewAt, made.err = p.leaf(ca.pair, current, etcdFile(role, ".crt"), etcdFile(role, ".key"), req, names)
			}
			mu.Lock()
			defer mu.Unlock()
			out[role] = made
		})
	}
	all.Wait()
	return out
}

// storedLeaf reads a Secret of etcd's. Under a CA that was there already the API server is asked where the cache has none: a cache that is
// behind must not roll etcd and everything that talks to it.
func (p *pass) storedLeaf(ctx context.Context, name string, ca authority) (map[string][]byte, error) {
	if s := p.live.secret(name); s != nil {
		return s.Data, nil
	}
	if ca.made {
		return nil, nil
	}
	s := &corev1.Secret{}
	err := p.r.direct.Get(ctx, client.ObjectKey{Namespace: p.cr.Namespace, Name: name}, s)
	return s.Data, client.IgnoreNotFound(err)
}

func (p *pass) etcdSecret(role string) string { return p.cr.Name + "-etcd-" + role }

func (p *pass) etcdNames() []string {
	names := pki.ServiceNames(p.cr.Name+"-etcd-client", p.cr.Namespace)
	if p.address != "" {
		names = append(names, p.address)
	}
	return names
}

// The file names that etcd's clients of the earlier operator know: server.crt, peer.crt, etcd-client.crt, each with .key and -ca.crt.
func etcdFile(role, suffix string) string {
	if role == "client" {
		return "etcd-client" + suffix
	}
	return role + suffix
}

// secret is a Secret of the cloud. It belongs to the cloud but outlives it where databases do.
func (p *pass) secret(name string, data map[string][]byte) client.Object {
	return p.own(&corev1.Secret{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: p.cr.Namespace, Labels: p.labels()},
		Data:       data,
	})
}
