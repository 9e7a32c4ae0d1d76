// SPDX-License-Identifier: Apache-2.0

package component

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// Spec is the CR's spec, as a Gate sees it.
type Spec = v1alpha1.OnecloudClusterSpec

// Inputs holds everything that rendering a component may depend on. It is complete before rendering starts, and has no client and no clock.
type Inputs struct {
	// Cluster is the resolved cloud (package resolve fills it).
	Cluster Cluster
	// Self is the resolved component being rendered.
	Self Resolved
	// Credentials are generated once. In an offline render they are placeholders.
	Credentials Credentials
	// Chosen are the options that users put into the cloud's ConfigMaps: YAML text by component and option name. They override ours.
	Chosen map[string]map[string]string
	// Values are the users' options that take effect, by component and name: the checked ones or, while one of the component's options is invalid, its
	// previous ones (render.Check). A component without an entry is read from Chosen.
	Values map[string]map[string]any
	// AdminPasswordTaken is true once the identity service has adopted the administrator's password in Credentials. Its current password may be one that
	// users set there, and stays.
	AdminPasswordTaken bool
	// CertHash and EtcdHash change with the mounted certificates, so that the pods roll.
	CertHash, EtcdHash string
	// CertSupplied is true if a user provides the service certificate.
	CertSupplied bool
}

// Cluster holds what all components of one cloud share.
type Cluster struct {
	Name, Namespace string
	// ID is the marker of the cloud's databases, see CloudID; "" when rendering without a cluster.
	ID string
	// Instance is the label app.kubernetes.io/instance of every object. It is part of the selectors, so it cannot change.
	Instance     string
	Region, Zone string
	Version      string
	Edition      Edition
	Product      Product
	Profile      Profile
	// LoadBalancer is the host of public addresses: the spec's, or else a node's. If it is "" (no node is known), they use the component's Service, see
	// PublicHost.
	LoadBalancer string
	// MysqlPort is the port in the spec, or the default.
	MysqlPort int
	// StorageClass is the class of every volume whose component sets none.
	StorageClass string
	Spec         *Spec
	// Components holds all resolved components by name.
	Components map[string]Resolved
}

// Resolved is a component of one cloud with defaults and images resolved.
type Resolved struct {
	Component
	// Enabled is false for one of the DisabledReasons ("disabled in spec", "not in edition ce", "not in product CMP").
	Enabled        bool
	DisabledReason string
	// FullImage is the complete reference; ContainerImages are those of the other containers by container name.
	FullImage       string
	ContainerImages map[string]string
	// Problem is the error in the component's block, which prevents rendering.
	Problem string
	// Pinned is true if a user set the image; PinnedContainers lists the other containers whose image a user set.
	Pinned           bool
	PinnedContainers []string
	// Visible is true if the spec shows the component's defaults: it belongs to this cloud, even if it is disabled.
	Visible    bool
	PullPolicy string
	// Tolerations are for the pods, StorageSize and StorageClass for the claim, Schedule for the CronJob.
	Tolerations               []corev1.Toleration
	StorageSize, StorageClass string
	Schedule                  string
	Replicas, ReadReplicas    int32
	// Block is the component's block of the spec (never nil).
	Block *v1alpha1.ComponentSpec
	// Internal is true if the spec makes its Services ClusterIP. NodePorts are by port name, after overrides; they are also the port numbers.
	Internal  bool
	NodePorts map[string]int32
}

// Credentials are the secrets of one cloud, with the keys of Secret <cluster>-credentials: "keystone.bootstrap-password",
// "<component>.database-password", "<component>.account-password", "mysql.password" (the administrator's; it is never stored there).
type Credentials map[string]string

// Objects are the rendered objects of one component, by kind.
type Objects struct {
	ConfigMaps []client.Object
	Secrets    []client.Object
	PVCs       []client.Object
	Services   []client.Object
	// Workload is *appsv1.Deployment, *appsv1.StatefulSet, *appsv1.DaemonSet or *batchv1.CronJob; Copies are read replicas and other zones' copies.
	Workload  client.Object
	Copies    []client.Object
	Ingresses []client.Object
	// Disruptions limit how many pods are evicted at once.
	Disruptions []client.Object
}

// The keys of Credentials.
const (
	BootstrapPassword = "keystone.bootstrap-password"
	AdminPassword     = "mysql.password"
	// ClickHouseAdminPassword is the administrator's password, taken from the spec and never stored.
	ClickHouseAdminPassword = "clickhouse.password"
	// MinioSecretKey and MonitorMinioSecretKey belong to the object stores that kubeserver installs.
	MinioSecretKey        = "minio.secret-key"
	MonitorMinioSecretKey = "monitor-stack.minio-secret-key"
	GrafanaPassword       = "monitor-stack.grafana-password"
)

// DefaultClickHousePort is the port of the native protocol.
const DefaultClickHousePort = 9000

// DatabasePassword returns the key of the password of a component's database account.
func DatabasePassword(name string) string { return name + ".database-password" }

// ClickHousePassword returns the key of the password of a component's account in ClickHouse.
func ClickHousePassword(name string) string { return name + ".clickhouse-password" }

// AccountPassword returns the key of the password of a component's identity account.
func AccountPassword(name string) string { return name + ".account-password" }

// NewSecret describes a new value of a key of Credentials to a user.
func NewSecret(key string) string {
	name, kind, _ := strings.Cut(key, ".")
	account := map[string]string{
		"database-password": "database account", "clickhouse-password": "ClickHouse account", "account-password": "account in the identity service",
	}[kind]
	switch {
	case account != "":
		return "new password for " + name + "'s " + account
	case key == BootstrapPassword:
		return "new password for the administrator"
	}
	return "new secret " + key
}

// The names of a component's database and accounts, where the earlier operator created the cloud with other names than ours. They exist only among the
// credentials: no name is generated.
const (
	databaseName = ".database-name"
	databaseUser = ".database-user"
	accountUser  = ".account-user"
)

// CloudID is the key of the ID with which a cloud marks what it owns, such as its databases. It is among the credentials, which stay with the databases
// when the resource is deleted; it is no secret.
const CloudID = "cloud-id"

// DatabaseName returns the key of the name of a component's database.
func DatabaseName(name string) string { return name + databaseName }

// DatabaseUser returns the key of the name of a component's database account.
func DatabaseUser(name string) string { return name + databaseUser }

// AccountUser returns the key of the name of a component's identity account.
func AccountUser(name string) string { return name + accountUser }

// IsName reports whether a key holds a name, not a secret.
func IsName(key string) bool {
	return strings.HasSuffix(key, databaseName) || strings.HasSuffix(key, databaseUser) || strings.HasSuffix(key, accountUser)
}

// Renamed returns the component with the cloud's own names of its database and accounts.
func (c Component) Renamed(names map[string]string) Component {
	if d := c.Database; d != nil {
		own := *d
		if n := names[DatabaseName(c.Name)]; n != "" {
			own.User, own.Name = own.Account(), n
		}
		if n := names[DatabaseUser(c.Name)]; n != "" {
			own.User = n
		}
		c.Database = &own
	}
	if n := names[AccountUser(c.Name)]; n != "" && c.Account != nil {
		c.Account = &Account{User: n}
	}
	return c
}

// CredentialKeys returns the keys of the secrets that are generated for a component.
func CredentialKeys(c Component) []string {
	var keys []string
	if c.Database != nil {
		keys = append(keys, DatabasePassword(c.Name))
	}
	if c.UsesClickHouse() {
		keys = append(keys, ClickHousePassword(c.Name))
	}
	if c.Account != nil {
		keys = append(keys, AccountPassword(c.Name))
	}
	return append(keys, c.Credentials...)
}

// UsesClickHouse reports whether a component has its own schema and account in ClickHouse, if the cloud has ClickHouse. They have the names of its
// database and account.
func (c Component) UsesClickHouse() bool {
	return c.Database != nil && c.Config != nil && slices.Contains(c.Config.Groups, GroupClickHouse)
}

// Placeholders returns stand-ins for the secrets of a cloud where they must not or cannot be read.
func Placeholders(cluster Cluster) Credentials {
	c := Credentials{AdminPassword: "<" + AdminPassword + ">"}
	for _, r := range cluster.Components {
		for _, k := range CredentialKeys(r.Component) {
			c[k] = "<" + k + ">"
		}
	}
	return c
}

// Object returns the name of an object of the cloud: <cluster>-<suffix>.
func (c Cluster) Object(suffix string) string { return c.Name + "-" + suffix }

// State returns the name of the ConfigMap in which the operator stores data for starting pods. A change restarts nothing.
func (c Cluster) State(component string) string { return c.Object(component) + "-state" }

// PodHost returns the DNS name of pod i of a component's StatefulSet.
func (c Cluster) PodHost(component string, i int32) string {
	name := c.Object(component)
	return fmt.Sprintf("%s-%d.%s.%s.svc", name, i, name, c.Namespace)
}

func (c Cluster) ClickHouse() bool { return c.Spec != nil && c.Spec.Clickhouse.Host != "" }

// Runs reports whether a component is enabled.
func (c Cluster) Runs(name string) bool { return c.Components[name].Enabled }

// Before reports whether the cloud's release is older than another one, for templates.
func (c Cluster) Before(release string) bool { return Before(c.Version, release) }

// LockKeeper returns the component that keeps the services' locks.
func (c Cluster) LockKeeper() Resolved {
	for _, r := range c.Components {
		if r.Workload.KeepsLocks {
			return r
		}
	}
	return Resolved{}
}

// PublicHost returns the host of a component's public URLs, with an IPv6 address in brackets.
func (c Cluster) PublicHost(component string) string {
	switch {
	case c.LoadBalancer == "":
		return c.Object(component)
	case strings.Contains(c.LoadBalancer, ":"):
		return "[" + c.LoadBalancer + "]"
	}
	return c.LoadBalancer
}

// NodePort returns the number of a component's port by name; "" is the first one.
func (c Cluster) NodePort(component, port string) int32 { return c.Components[component].Port(port) }

// Port returns the number of a port by name; "" is the first one.
func (r Resolved) Port(name string) int32 {
	if name == "" && r.Service != nil && len(r.Service.Ports) > 0 {
		name = r.Service.Ports[0].Name
	}
	return r.NodePorts[name]
}

// URL returns the URL of a component within the cluster: "https://default-glance:30292/v1".
func (c Cluster) URL(component, port, path string) string {
	return "https://" + net.JoinHostPort(c.Object(component), strconv.Itoa(int(c.NodePort(component, port)))) + path
}

// AuthURL returns the URL at which components authenticate.
func (c Cluster) AuthURL() string { return c.URL("keystone", "admin", "/v3") }

// MysqlAddress returns the address of the components' database: HOST:PORT.
func (c Cluster) MysqlAddress() string {
	return net.JoinHostPort(c.Spec.MySQL.Host, strconv.Itoa(c.MysqlPort))
}

// DSN returns the data source name of a component's database.
func (in Inputs) DSN(owner string) string {
	d := in.Cluster.Components[owner].Database
	if d == nil {
		return ""
	}
	return fmt.Sprintf("mysql+pymysql://%s:%s@%s/%s?charset=utf8&parseTime=true&interpolateParams=true%s",
		d.Account(), in.Credentials[DatabasePassword(owner)], in.Cluster.MysqlAddress(), d.Name,
		servicesTLS(in.Cluster.Spec.MySQL.TLS))
}

// servicesTLS returns the DSN parameter for a TLS mode. The services pass it to github.com/go-sql-driver/mysql 1.6, which only knows the system's CAs.
// So with a given CA they encrypt, but do not verify.
func servicesTLS(t v1alpha1.DatabaseTLS) string {
	switch {
	case t.Mode == "" || t.Mode == "disabled":
		return ""
	case t.Mode == "preferred":
		return "&tls=preferred"
	case t.Mode == "verify-identity" && t.CA == "":
		return "&tls=true"
	}
	return "&tls=skip-verify"
}

// ClickHouseDSN returns the data source name of a component's schema in ClickHouse, which has its database's name; "" if the spec has no server.
func (in Inputs) ClickHouseDSN(owner string) string {
	d := in.Cluster.Components[owner].Database
	if d == nil || !in.Cluster.ClickHouse() {
		return ""
	}
	s := in.Cluster.Spec.Clickhouse
	return fmt.Sprintf("tcp://%s?database=%s&read_timeout=10&write_timeout=20&username=%s&password=%s",
		net.JoinHostPort(s.Host, strconv.Itoa(int(cmp.Or(s.Port, DefaultClickHousePort)))), d.Name, d.Account(), in.Credentials[ClickHousePassword(owner)])
}

// JDBC returns the URL of a database for a component in Java.
func (in Inputs) JDBC(database string) string {
	return "jdbc:mysql://" + in.Cluster.MysqlAddress() + "/" + database
}

// Account returns the user that owns the database.
func (d Database) Account() string { return cmp.Or(d.User, d.Name) }
