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

// Inputs is everything a component may know when it is rendered: a value, complete before rendering starts. No client, no clock.
type Inputs struct {
	// Cluster is the resolved cloud (package resolve fills it).
	Cluster Cluster
	// Self is the component being rendered, resolved.
	Self Resolved
	// Credentials are generated once; in an offline render they are placeholders.
	Credentials Credentials
	// Chosen are the options that users put into the ConfigMaps of the cloud: YAML text by component and option name. They win over ours.
	Chosen map[string]map[string]string
	// Values are the options of users that take effect, by component and name: those that were checked or, while one of a component is
	// invalid, those that it had (render.Check). A component without an entry is read from Chosen.
	Values map[string]map[string]any
	// AdminPasswordTaken is true once the identity service has had the administrator's password among Credentials: what it has now may be
	// one that users chose there, and stays.
	AdminPasswordTaken bool
	// CertHash and EtcdHash change when the mounted certificates do; they roll the pods.
	CertHash, EtcdHash string
}

// Cluster is what is common to all components of one cloud.
type Cluster struct {
	Name, Namespace string
	// ID is what the cloud's databases are marked with, see CloudID; "" in what is rendered without a cluster.
	ID string
	// Instance is the value of the label app.kubernetes.io/instance of every object: the selectors have it, and cannot change.
	Instance     string
	Region, Zone string
	Version      string
	Edition      Edition
	Product      Product
	Profile      Profile
	// LoadBalancer is the host part of public addresses: the spec's, or else a node's; "" (no node is known) makes them use the component's
	// Service, see PublicHost.
	LoadBalancer string
	// MysqlPort is that of the spec, or the usual one.
	MysqlPort int
	// StorageClass is that of every volume for which the component names none.
	StorageClass string
	Spec         *Spec
	// All resolved components by name.
	Components map[string]Resolved
}

// Resolved is a component of one cloud after defaulting and image resolution.
type Resolved struct {
	Component
	// Enabled, or the DisabledReason ("disabled in spec", "not in edition ce", "not in product CMP").
	Enabled        bool
	DisabledReason string
	// FullImage is the complete reference; ContainerImages are those of further containers by container name.
	FullImage       string
	ContainerImages map[string]string
	// Problem is what is wrong with the component's block; it cannot be rendered then.
	Problem string
	// Pinned is true if a user set the image; PinnedContainers are the further containers whose image a user set.
	Pinned           bool
	PinnedContainers []string
	// Visible is true if the defaults of this component are shown in the spec: it belongs to this cloud, even if it is switched off.
	Visible    bool
	PullPolicy string
	// Tolerations of the pods, StorageSize and StorageClass of the claim, Schedule of the CronJob.
	Tolerations               []corev1.Toleration
	StorageSize, StorageClass string
	Schedule                  string
	Replicas, ReadReplicas    int32
	// Block is the component's block of the spec (never nil).
	Block *v1alpha1.ComponentSpec
	// Internal: the spec makes its Services ClusterIP. NodePorts by port name after overrides; also the port numbers where it is one.
	Internal  bool
	NodePorts map[string]int32
}

// Credentials are the secrets of one cloud, keyed as in Secret <cluster>-credentials: "keystone.bootstrap-password",
// "<component>.database-password", "<component>.account-password", "mysql.password" (the admin's, gathered, never stored there).
type Credentials map[string]string

// Objects are the rendered objects of one component before they become a list.
type Objects struct {
	ConfigMaps []client.Object
	Secrets    []client.Object
	PVCs       []client.Object
	Services   []client.Object
	// Workload is *appsv1.Deployment, *appsv1.StatefulSet, *appsv1.DaemonSet or *batchv1.CronJob; Copies are read replicas, and one for each further zone.
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
	// ClickHouseAdminPassword is the administrator's, gathered from the spec, never stored.
	ClickHouseAdminPassword = "clickhouse.password"
	// MinioSecretKey and MonitorMinioSecretKey are of the object stores that kubeserver installs.
	MinioSecretKey        = "minio.secret-key"
	MonitorMinioSecretKey = "monitor-stack.minio-secret-key"
	GrafanaPassword       = "monitor-stack.grafana-password"
)

// DefaultClickHousePort is that of its native protocol.
const DefaultClickHousePort = 9000

// DatabasePassword is the key of the password of a component's database account.
func DatabasePassword(name string) string { return name + ".database-password" }

// ClickHousePassword is the key of the password of a component's account in ClickHouse.
func ClickHousePassword(name string) string { return name + ".clickhouse-password" }

// AccountPassword is the key of the password of a component's identity account.
func AccountPassword(name string) string { return name + ".account-password" }

// The names a component's database and accounts have in a cloud that the earlier operator made with others than ours. They lie among
// the credentials, and only there: no name is generated.
const (
	databaseName = ".database-name"
	databaseUser = ".database-user"
	accountUser  = ".account-user"
)

// CloudID is the key of what a cloud is known by where it has left a mark, as on its databases. It lies among the credentials, because
// they stay with the databases when the resource is deleted; it is no secret.
const CloudID = "cloud-id"

// DatabaseName is the key of the name of a component's database.
func DatabaseName(name string) string { return name + databaseName }

// DatabaseUser is the key of the name of a component's database account.
func DatabaseUser(name string) string { return name + databaseUser }

// AccountUser is the key of the name of a component's identity account.
func AccountUser(name string) string { return name + accountUser }

// IsName reports whether a key holds a name, not a secret.
func IsName(key string) bool {
	return strings.HasSuffix(key, databaseName) || strings.HasSuffix(key, databaseUser) || strings.HasSuffix(key, accountUser)
}

// Renamed is the component with the names a cloud has for its database and accounts.
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

// CredentialKeys are the secrets that are generated for a component.
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

// UsesClickHouse reports whether a component has a schema and an account of its own in ClickHouse, where a cloud has that. They bear the
// names of its database and account.
func (c Component) UsesClickHouse() bool {
	return c.Database != nil && c.Config != nil && slices.Contains(c.Config.Groups, GroupClickHouse)
}

// Placeholders stand for the secrets of a cloud where they must not or cannot be had.
func Placeholders(cluster Cluster) Credentials {
	c := Credentials{AdminPassword: "<" + AdminPassword + ">"}
	for _, r := range cluster.Components {
		for _, k := range CredentialKeys(r.Component) {
			c[k] = "<" + k + ">"
		}
	}
	return c
}

// Object is the name of an object of the cloud: <cluster>-<suffix>.
func (c Cluster) Object(suffix string) string { return c.Name + "-" + suffix }

// State is the ConfigMap with what the operator leaves for pods that start. Nothing restarts when it changes.
func (c Cluster) State(component string) string { return c.Object(component) + "-state" }

// PodHost is the name of pod i of a component's StatefulSet in DNS.
func (c Cluster) PodHost(component string, i int32) string {
	name := c.Object(component)
	return fmt.Sprintf("%s-%d.%s.%s.svc", name, i, name, c.Namespace)
}

// ClickHouse reports whether the cloud has a ClickHouse server.
func (c Cluster) ClickHouse() bool { return c.Spec != nil && c.Spec.Clickhouse.Host != "" }

// Runs reports whether a component is enabled.
func (c Cluster) Runs(name string) bool { return c.Components[name].Enabled }

// LockKeeper is the component that keeps the locks of services.
func (c Cluster) LockKeeper() Resolved {
	for _, r := range c.Components {
		if r.Workload.KeepsLocks {
			return r
		}
	}
	return Resolved{}
}

// PublicHost is the host part of a component's public URLs; an IPv6 address has its brackets.
func (c Cluster) PublicHost(component string) string {
	switch {
	case c.LoadBalancer == "":
		return c.Object(component)
	case strings.Contains(c.LoadBalancer, ":"):
		return "[" + c.LoadBalancer + "]"
	}
	return c.LoadBalancer
}

// NodePort returns the port number of a component by the port's name, "" being the first.
func (c Cluster) NodePort(component, port string) int32 { return c.Components[component].Port(port) }

// Port returns a port number by the port's name, "" being the first.
func (r Resolved) Port(name string) int32 {
	if name == "" && r.Service != nil && len(r.Service.Ports) > 0 {
		name = r.Service.Ports[0].Name
	}
	return r.NodePorts[name]
}

// URL of a component within the cluster: "https://default-glance:30292/v1".
func (c Cluster) URL(component, port, path string) string {
	return "https://" + net.JoinHostPort(c.Object(component), strconv.Itoa(int(c.NodePort(component, port)))) + path
}

// AuthURL is where components authenticate.
func (c Cluster) AuthURL() string { return c.URL("keystone", "admin", "/v3") }

// MysqlAddress is how components reach their database: HOST:PORT.
func (c Cluster) MysqlAddress() string {
	return net.JoinHostPort(c.Spec.MySQL.Host, strconv.Itoa(c.MysqlPort))
}

// DSN is how a component reaches its database.
func (in Inputs) DSN(owner string) string {
	d := in.Cluster.Components[owner].Database
	if d == nil {
		return ""
	}
	return fmt.Sprintf("mysql+pymysql://%s:%s@%s/%s?charset=utf8&parseTime=true&interpolateParams=true%s",
		d.Account(), in.Credentials[DatabasePassword(owner)], in.Cluster.MysqlAddress(), d.Name,
		servicesTLS(in.Cluster.Spec.MySQL.TLS))
}

// servicesTLS is what services can do of a mode: they hand the parameter to github.com/go-sql-driver/mysql 1.6, which knows no authorities but
// the system's. So they encrypt where authorities are given, and do not verify.
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

// ClickHouseDSN is how a component reaches its schema in ClickHouse, under its name in the database; "" where the spec names no server.
func (in Inputs) ClickHouseDSN(owner string) string {
	d := in.Cluster.Components[owner].Database
	if d == nil || !in.Cluster.ClickHouse() {
		return ""
	}
	s := in.Cluster.Spec.Clickhouse
	return fmt.Sprintf("tcp://%s?database=%s&read_timeout=10&write_timeout=20&username=%s&password=%s",
		net.JoinHostPort(s.Host, strconv.Itoa(int(cmp.Or(s.Port, DefaultClickHousePort)))), d.Name, d.Account(), in.Credentials[ClickHousePassword(owner)])
}

// JDBC is how a component in Java reaches a database.
func (in Inputs) JDBC(database string) string {
	return "jdbc:mysql://" + in.Cluster.MysqlAddress() + "/" + database
}

// Account is the user that owns the database.
func (d Database) Account() string { return cmp.Or(d.User, d.Name) }
