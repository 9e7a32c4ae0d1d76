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

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/clickhouse"
	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/operatorctl/component"
)

// Options configures how databases and services are reached.
type Options struct {
	// Dial replaces the usual dialer, for an operator outside the cluster.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Transport wraps the HTTP transport to the services, OnStatement receives the verb of each SQL statement. Tests use both to count.
	Transport   func(http.RoundTripper) http.RoundTripper
	OnStatement func(verb string)
}

// Access holds the addresses and credentials of one cloud's database and services.
type Access struct {
	Cluster     component.Cluster
	Credentials component.Credentials
	CAPEM       []byte
	MySQL       v1alpha1.DatabaseServer
	// ClickHouse has no host if the cloud has no ClickHouse.
	ClickHouse v1alpha1.DatabaseServer
	// Owner is the marker of the cloud's databases, Adopt lists what else it may adopt.
	Owner mysql.Owner
	Adopt mysql.Adoption
	// Secret reads a server's password if the CR refers to a Secret. It is called only when that server is needed.
	Secret SecretReader
	// SetState and Notify become those of Clients.
	SetState func(ctx context.Context, component string, data map[string]string) error
	Notify   func(Notice)
}

// Notice is an event about a change that a task made.
type Notice struct {
	Component, Reason, Text string
	Warning                 bool
}

// SecretReader reads a key of a Secret.
type SecretReader func(ctx context.Context, name, key string) (string, error)

// Secrets returns a reader of the Secrets in a namespace.
func Secrets(c client.Reader, namespace string) SecretReader {
	return func(ctx context.Context, name, key string) (string, error) {
		s := &corev1.Secret{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s); err != nil {
			return "", fmt.Errorf("reading the password of the database server: %w", err)
		}
		if len(s.Data[key]) == 0 {
			return "", fmt.Errorf("reading the password of the database server: Secret %s/%s has no key %q", namespace, name, key)
		}
		return string(s.Data[key]), nil
	}
}

// Clients are the connections of effects. They are opened on first use and kept.
type Clients struct {
	MySQL func(ctx context.Context) (*mysql.Admin, error)
	// Databases returns the databases and accounts of the server: a snapshot from the start of the pass, updated with what was created since.
	Databases func(ctx context.Context) (*mysql.Snapshot, error)
	// ClickHouse returns its client and such a snapshot.
	ClickHouse func(ctx context.Context) (*clickhouse.Admin, *clickhouse.Snapshot, error)
	Identity   func(ctx context.Context) (*identity.Client, error)
	// Catalog returns such a snapshot of the identity service's catalog.
	Catalog func(ctx context.Context) (*identity.Snapshot, error)
	// SetState writes the ConfigMap <cluster>-<component>-state, which pods may read when they start. Without data it deletes the ConfigMap.
	SetState func(ctx context.Context, component string, data map[string]string) error
	// Notify records an event.
	Notify func(Notice)
	// Dial replaces the usual dialer, if set.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// URL returns the URL of a component's API inside the cluster.
	URL func(component string) string
	// Down reports whether an error means that its target is currently unreachable.
	Down func(error) bool
	// Denied reports whether an error means that its target rejects the administrator's login.
	Denied func(error) bool
	// Advice is the remedy when the identity service rejects the administrator's password.
	Advice string
}

// Connections keeps the connections of one cloud between reconciliations. Each has its own lock, so one that hangs does not block the others.
type Connections struct {
	options    Options
	mysql      connection[*mysql.Admin]
	clickHouse connection[*clickhouse.Admin]
	identity   connection[*identity.Client]
}

// NewConnections returns Connections that are opened on first use.
func NewConnections(o Options) *Connections { return &Connections{options: o} }

func (c *Connections) Close() {
	c.mysql.forget()
	c.clickHouse.forget()
	c.identity.forget()
}

// connection is reused while its key, made of address and credentials, stays the same.
type connection[T any] struct {
	mu    sync.Mutex
	key   string
	value T
	// close is nil while the connection is closed.
	close func()
}

func (c *connection[T]) get(key string, open func() (T, func(), error)) (T, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.close != nil && c.key == key {
		return c.value, nil
	}
	c.drop()
	var err error
	c.key = key
	c.value, c.close, err = open()
	return c.value, err
}

func (c *connection[T]) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop()
}

func (c *connection[T]) drop() {
	if c.close != nil {
		c.close()
	}
	c.close = nil
}

// once is a value that is read once per reconciliation. If the first read fails, all readers get its error.
type once[T any] struct {
	// stale, if set, reports whether the value is outdated.
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

// outlived reports whether a snapshot is outdated: effects may outlast the reconciliation that started them, and must not rely on its view.
func outlived[T interface{ Age() time.Duration }](s T) bool { return s.Age() > timeout }

// For returns the clients for one reconciliation. It replaces connections whose address or credentials have changed.
func (c *Connections) For(a Access) Clients {
	db, chPassword := c.openMySQL(a), &once[string]{}
	databases, schemas := &once[*mysql.Snapshot]{stale: outlived[*mysql.Snapshot]}, &once[*clickhouse.Snapshot]{stale: outlived[*clickhouse.Snapshot]}
	catalog := &once[*identity.Snapshot]{}
	return Clients{
		MySQL: db,
		Databases: func(ctx context.Context) (*mysql.Snapshot, error) {
			return databases.get(func() (*mysql.Snapshot, error) {
				admin, err := db(ctx)
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
		ClickHouse: func(ctx context.Context) (*clickhouse.Admin, *clickhouse.Snapshot, error) {
			admin, err := c.openClickHouse(ctx, a, chPassword)
			if err != nil {
				return nil, nil, err
			}
			snap, err := schemas.get(func() (*clickhouse.Snapshot, error) { return admin.Snapshot(ctx) })
			return admin, snap, err
		},
		Identity: func(context.Context) (*identity.Client, error) { return c.openIdentity(a) },
		Catalog: func(ctx context.Context) (*identity.Snapshot, error) {
			return catalog.get(func() (*identity.Snapshot, error) {
				id, err := c.openIdentity(a)
				if err != nil {
					return nil, err
				}
				return id.Snapshot(ctx)
			})
		},
		SetState: a.SetState, Notify: a.Notify, Dial: c.options.Dial,
		URL: func(name string) string {
			r := a.Cluster.Components[name]
			if !r.Enabled || len(r.Endpoints) == 0 {
				return ""
			}
			return internalURL(a.Cluster, name, r.Endpoints[0].Port, r.Endpoints[0].Path)
		},
		Down: func(err error) bool {
			return mysql.IsUnavailable(err) || clickhouse.IsUnavailable(err) || identity.IsUnavailable(err)
		},
		Denied: func(err error) bool {
			return mysql.IsDenied(err) || clickhouse.IsDenied(err) || identity.IsLoginRefused(err, AdminUser)
		},
		Advice: fmt.Sprintf("if the password of %s was changed, store the new one in Secret %s under key %s, or in spec.keystone.bootstrapPassword if that is set",
			AdminUser, a.Cluster.Object(v1alpha1.SecretCredentials), component.BootstrapPassword),
	}
}

// internalURL returns a component's address for the operator, which may run in another namespace.
func internalURL(c component.Cluster, name, port, path string) string {
	return fmt.Sprintf("https://%s.%s.svc:%d%s", c.Object(name), c.Namespace, c.NodePort(name, port), path)
}

// AdminPassword returns the administrator's password of a server, from the spec or from the Secret to which it refers.
func AdminPassword(ctx context.Context, read SecretReader, server v1alpha1.DatabaseServer) (string, error) {
	ref := server.PasswordSecretRef
	if server.Password != "" || ref == nil {
		return server.Password, nil
	}
	return read(ctx, ref.Name, ref.Key)
}

func (c *Connections) openMySQL(a Access) func(context.Context) (*mysql.Admin, error) {
	secret := &once[string]{}
	return func(ctx context.Context) (*mysql.Admin, error) {
		password, err := secret.get(func() (string, error) { return AdminPassword(ctx, a.Secret, a.MySQL) })
		if err != nil {
			return nil, err
		}
		if a.MySQL.Host == "" {
			return nil, errors.New("spec.mysql.host is empty")
		}
		return c.mysql.get(Input{}.hash(a.MySQL, password, a.Owner, a.Adopt), func() (*mysql.Admin, func(), error) {
			db, err := mysql.Open(ctx, mysql.Config{
				Host: a.MySQL.Host, Port: int(a.MySQL.Port), User: a.MySQL.Username, Password: password,
				TLS: mysql.TLSMode(a.MySQL.TLS.Mode), CA: a.MySQL.TLS.CA, Owner: a.Owner, Adopt: a.Adopt,
				Dial: c.options.Dial, OnStatement: c.options.OnStatement,
			})
			if err != nil {
				return nil, nil, err
			}
			return db, func() { _ = db.Close() }, nil
		})
	}
}

func (c *Connections) openClickHouse(ctx context.Context, a Access, secret *once[string]) (*clickhouse.Admin, error) {
	if a.ClickHouse.Host == "" {
		return nil, errors.New("spec.clickhouse.host is empty")
	}
	password, err := secret.get(func() (string, error) { return AdminPassword(ctx, a.Secret, a.ClickHouse) })
	if err != nil {
		return nil, err
	}
	return c.clickHouse.get(Input{}.hash(a.ClickHouse, password), func() (*clickhouse.Admin, func(), error) {
		admin := clickhouse.Open(clickhouse.Config{
			Host: a.ClickHouse.Host, Port: int(a.ClickHouse.Port), User: a.ClickHouse.Username, Password: password,
			Dial: c.options.Dial, OnStatement: c.options.OnStatement,
		})
		return admin, func() { _ = admin.Close() }, nil
	})
}

// AdminUser is the account that every cloud's identity service creates itself (cloudpods, pkg/apis/identity/consts.go).
const AdminUser = "sysadmin"

func (c *Connections) openIdentity(a Access) (*identity.Client, error) {
	if !a.Cluster.Runs(identityName) {
		return nil, fmt.Errorf("component %q is disabled", identityName)
	}
	url, password := internalURL(a.Cluster, identityName, "admin", "/v3"), a.Credentials[component.BootstrapPassword]
	return c.identity.get(Input{}.hash(url, password, string(a.CAPEM)), func() (*identity.Client, func(), error) {
		transport, err := Transport(c.options, a.CAPEM)
		if err != nil {
			return nil, nil, err
		}
		id, err := identity.New(identity.Options{
			AuthURL: url, Username: AdminUser, Password: password, Transport: transport, Timeout: timeout,
		})
		if err != nil {
			return nil, nil, err
		}
		return id, id.Close, nil
	})
}

// Transport returns an HTTP transport that trusts only the cloud's own CA. It ignores proxy variables: the services are in the cluster.
func Transport(o Options, ca []byte) (http.RoundTripper, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		return nil, errors.New("reading the CA of the cloud: it contains no certificate")
	}
	t := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, DialContext: o.Dial,
		MaxIdleConnsPerHost: parallel, IdleConnTimeout: time.Minute, TLSHandshakeTimeout: timeout,
	}
	if o.Transport != nil {
		return o.Transport(t), nil
	}
	return t, nil
}
