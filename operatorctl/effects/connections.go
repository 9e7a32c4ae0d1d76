// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/clickhouse"
	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/operatorctl/component"
)

// Options of how databases and services are reached; tests count and redirect with them.
type Options struct {
	Dial        func(ctx context.Context, network, address string) (net.Conn, error)
	Transport   func(http.RoundTripper) http.RoundTripper
	OnStatement func(verb string)
	UserAgent   string
}

// Access is how one cloud's database and services are reached, and with which rights.
type Access struct {
	Cluster     component.Cluster
	Credentials component.Credentials
	CAPEM       []byte
	MySQL       v1alpha1.DatabaseServer
	// ClickHouse is without a host where the cloud has none.
	ClickHouse v1alpha1.DatabaseServer
	// Owner is what the cloud's databases are marked with, Adopt what else it may take.
	Owner mysql.Owner
	Adopt mysql.Adoption
	// Secret reads the password of a server where the CR names a Secret instead; it is only called when that server is needed.
	Secret SecretReader
	// SetState and Tell are those of Clients.
	SetState func(ctx context.Context, component string, data map[string]string) error
	Tell     func(Notice)
}

// Notice is what a task tells people.
type Notice struct {
	Component, Reason, Text string
	Warning                 bool
}

// SecretReader reads a key of a Secret.
type SecretReader func(ctx context.Context, name, key string) (string, error)

// Clients are what effects use. Connections are made when first needed and kept.
type Clients struct {
	MySQL func(ctx context.Context) (*mysql.Admin, error)
	// Databases are those of the database server and its accounts, as they were at the start of the pass plus what was made since.
	Databases func(ctx context.Context) (*mysql.Snapshot, error)
	// ClickHouse, and what it had at the start of the pass plus what was made since.
	ClickHouse func(ctx context.Context) (*clickhouse.Admin, *clickhouse.Snapshot, error)
	Identity   func(ctx context.Context) (*identity.Client, error)
	// Catalog is the identity service's catalogue as it was at the start of the pass plus what was made since.
	Catalog func(ctx context.Context) (*identity.Snapshot, error)
	// SetState writes the ConfigMap <cluster>-<component>-state, which pods may read when they start; without data it is deleted.
	SetState func(ctx context.Context, component string, data map[string]string) error
	// Tell makes an event.
	Tell func(Notice)
	// Dial replaces the ordinary dialer, if set.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// URL of a component's API inside the cluster.
	URL func(component string) string
	// Down tells whether an error means that its target cannot be reached now.
	Down func(error) bool
	// Denied tells whether an error means that its target does not let the administrator in.
	Denied func(error) bool
	// Advice is what to do when the identity service refuses the administrator's password.
	Advice string
}

// Connections keeps the connections of one cloud between passes. Database and identity service have a lock each: one that hangs does
// not keep the other from being asked.
type Connections struct {
	options Options

	dbMu  sync.Mutex
	dbKey string
	db    *mysql.Admin

	ch clickHouseConnection

	mu       sync.Mutex
	key      string
	identity *identity.Client
}

// NewConnections makes no connection yet.
func NewConnections(o Options) *Connections { return &Connections{options: o} }

// Close closes what is open.
func (c *Connections) Close() {
	c.dbMu.Lock()
	c.closeDB()
	c.dbMu.Unlock()
	c.ch.close()
	c.mu.Lock()
	c.closeIdentity()
	c.mu.Unlock()
}

func (c *Connections) closeDB() {
	if c.db != nil {
		_ = c.db.Close() // nothing depends on it any more
	}
	c.db = nil
}

func (c *Connections) closeIdentity() {
	if c.identity != nil {
		c.identity.Close()
	}
	c.identity = nil
}

// For returns the clients of one pass. When address or credentials changed, old connections are closed.
func (c *Connections) For(a Access) Clients {
	key := Input{Salt: "identity"}.hash(identityURL(a.Cluster), a.Credentials[component.BootstrapPassword], string(a.CAPEM))
	c.mu.Lock()
	if c.key != key {
		c.closeIdentity()
		c.key = key
	}
	c.mu.Unlock()
	password := &once[string]{}
	catalog, databases := &once[*identity.Snapshot]{}, &once[*mysql.Snapshot]{stale: outlived[*mysql.Snapshot]}
	return Clients{
		MySQL: func(ctx context.Context) (*mysql.Admin, error) { return c.mysql(ctx, a, password) },
		Databases: func(ctx context.Context) (*mysql.Snapshot, error) {
			return databases.get(func() (*mysql.Snapshot, error) {
				admin, err := c.mysql(ctx, a, password)
				if err != nil {
					return nil, err
				}
				snap, err := admin.Snapshot(ctx)
				if err != nil {
					return nil, err
				}
				return snap, admin.Claim(ctx, snap, wants(a)...)
			})
		},
		ClickHouse: c.clickHouse(a),
		Identity:   func(ctx context.Context) (*identity.Client, error) { return c.identityClient(a) },
		Catalog: func(ctx context.Context) (*identity.Snapshot, error) {
			return catalog.get(func() (*identity.Snapshot, error) {
				id, err := c.identityClient(a)
				if err != nil {
					return nil, err
				}
				return id.Snapshot(ctx)
			})
		},
		SetState: a.SetState, Tell: a.Tell, Dial: c.options.Dial,
		URL: func(comp string) string { return internalURL(a.Cluster, comp) },
		Down: func(err error) bool {
			return mysql.IsUnavailable(err) || clickhouse.IsUnavailable(err) || identity.IsUnavailable(err)
		},
		Denied: func(err error) bool {
			return mysql.IsDenied(err) || clickhouse.IsDenied(err) || identity.IsLoginRefused(err, adminUser)
		},
		Advice: fmt.Sprintf("if the password of %s was changed, put the new one into Secret %s under %s, or into spec.keystone.bootstrapPassword if that is set",
			adminUser, a.Cluster.Object(v1alpha1.SecretCredentials), component.BootstrapPassword),
	}
}

// internalURL is the address of a component's API for the operator, which may live in another namespace.
func internalURL(cluster component.Cluster, name string) string {
	c := cluster.Components[name]
	if !c.Enabled || len(c.Endpoints) == 0 {
		return ""
	}
	e := c.Endpoints[0]
	return fmt.Sprintf("https://%s-%s.%s.svc:%d%s", cluster.Name, name, cluster.Namespace, portOf(c, e.Port), e.Path)
}

// once is something that is read once a pass. What kept the first from reading it would keep all the others.
type once[T any] struct {
	// stale, where set, tells whether what was read counts no longer.
	stale func(T) bool

	mu    sync.Mutex
	known bool
	value T
	err   error
}

func (o *once[T]) get(read func() (T, error)) (T, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.known || o.err == nil && o.stale != nil && o.stale(o.value) {
		o.value, o.err = read()
		o.known = true
	}
	return o.value, o.err
}

// outlived: effects may end long after the pass that began them; they do not decide by what was seen then.
func outlived[T interface{ Age() time.Duration }](s T) bool { return s.Age() > timeout }

// AdminPassword returns the administrator's password of a server, from the spec or from the Secret that it names.
func AdminPassword(ctx context.Context, read SecretReader, server v1alpha1.DatabaseServer) (string, error) {
	ref := server.PasswordSecretRef
	if server.Password != "" || ref == nil {
		return server.Password, nil
	}
	return read(ctx, ref.Name, ref.Key)
}

func (c *Connections) mysql(ctx context.Context, a Access, secret *once[string]) (*mysql.Admin, error) {
	c.dbMu.Lock()
	defer c.dbMu.Unlock()
	password, err := secret.get(func() (string, error) { return AdminPassword(ctx, a.Secret, a.MySQL) })
	if err != nil {
		return nil, err
	}
	key := Input{Salt: "database"}.hash(a.MySQL, password, a.Owner, a.Adopt)
	if c.db != nil && c.dbKey == key {
		return c.db, nil
	}
	c.closeDB()
	if a.MySQL.Host == "" {
		return nil, errors.New("spec.mysql.host is empty")
	}
	db, err := mysql.Open(ctx, mysql.Config{
		Host: a.MySQL.Host, Port: int(a.MySQL.Port), User: a.MySQL.Username, Password: password, TLS: mysql.TLSMode(a.MySQL.TLS.Mode), CA: a.MySQL.TLS.CA, Owner: a.Owner, Adopt: a.Adopt,
		Dial: c.options.Dial, OnStatement: c.options.OnStatement,
	})
	if err != nil {
		return nil, err
	}
	c.db, c.dbKey = db, key
	return db, nil
}

// adminUser is the account that every cloud's identity service makes itself (cloudpods, pkg/apis/identity/consts.go).
const adminUser = "sysadmin"

// identityURL is where the identity service listens for administrators.
func identityURL(c component.Cluster) string {
	return fmt.Sprintf("https://%s-%s.%s.svc:%d/v3", c.Name, identityName, c.Namespace, portOf(c.Components[identityName], "admin"))
}

func (c *Connections) identityClient(a Access) (*identity.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.identity != nil {
		return c.identity, nil
	}
	if !a.Cluster.Components[identityName].Enabled {
		return nil, fmt.Errorf("component %q is off", identityName)
	}
	transport, err := c.transport(a.CAPEM)
	if err != nil {
		return nil, err
	}
	id, err := identity.New(identity.Options{
		AuthURL: identityURL(a.Cluster), Username: adminUser, Password: a.Credentials[component.BootstrapPassword],
		Transport: transport, UserAgent: c.options.UserAgent, Timeout: timeout,
	})
	if err != nil {
		return nil, err
	}
	c.identity = id
	return id, nil
}

// transport trusts the cloud's own CA and nobody else. A proxy of the environment is not for services in the cluster.
func (c *Connections) transport(ca []byte) (http.RoundTripper, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("reading the CA of the cloud: no certificate in it")
	}
	t := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DialContext: c.options.Dial,
		MaxIdleConnsPerHost: parallel, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: timeout,
	}
	if c.options.Transport != nil {
		return c.options.Transport(t), nil
	}
	return t, nil
}
