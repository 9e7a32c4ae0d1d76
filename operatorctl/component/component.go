// SPDX-License-Identifier: Apache-2.0

// Package component is the vocabulary in which a service of the cloud is described. A Component is data: what it does not say, the
// engine does not do. How it becomes objects is the business of package render, what happens outside Kubernetes that of package effects.
package component

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Edition says who may use a cloud.
type Edition string

// The editions; the annotation onecloud.yunion.io/edition of the CR holds one of them.
const (
	CE        Edition = "ce"
	CESupport Edition = "ce/support"
	EE        Edition = "ee"
)

// Product is a set of components (JSON spec.productVersion).
type Product string

// The products.
const (
	FullStack Product = "FullStack"
	CMP       Product = "CMP"
	Edge      Product = "Edge"
	LightEdge Product = "LightEdge"
	AI        Product = "AI"
)

// Profile says how many copies of the services run (JSON spec.profile).
type Profile string

// The profiles.
const (
	// Small runs one copy of each service.
	Small Profile = "small"
	// HA runs two copies of each service that may have several, and three members of etcd.
	HA Profile = "ha"
)

// Component is one deployable unit of the cloud.
type Component struct {
	// Name is kebab-case; every object of the component is named <cluster>-<Name>[-suffix].
	Name string
	// SpecKey is the JSON key of its block in the CR's spec; "a.b" is a container's block within a block; "" looks in spec.components.
	SpecKey string
	// StatusKey is the JSON key under which older tools look in status; "" if there is none.
	StatusKey string
	// Summary is one line for "ocadm operator components" and the docs.
	Summary string
	// Editions and Products that have it; empty means all.
	Editions []Edition
	Products []Product
	// Releases of the cloud that have it; the zero value is all.
	Releases Releases
	// OffByDefault components run only when the CR says disable: false (or their Gate opens).
	OffByDefault bool
	// Single is why one copy of its Deployment runs, also in profile ha; "" if several copies can serve at once.
	Single string
	// Gate is one more condition on the spec; the reason why the component is off, or "".
	Gate func(Spec) string
	// After names the components that must be Available before this one's workload is made.
	After []string

	Image     Image
	Workload  Workload
	Config    *Config
	Database  *Database
	Account   *Account
	Service   *Service
	Endpoints []Endpoint
	// Register adds catalogue services without endpoints of their own.
	Register []CatalogService
	Storage  *Storage
	Ingress  *Ingress
	// Credentials are the keys of further secrets that are generated for it, beside those of Database and Account. ChosenCredentials are the
	// values that the spec sets.
	Credentials       []string
	ChosenCredentials func(Spec) map[string]string
	// EarlierSection is its section in the earlier operator's record of passwords, where that is not SpecKey. EarlierCredentials are those that
	// the earlier operator did not record.
	EarlierSection     string
	EarlierCredentials func(Spec) map[string]string
	// Setup names the bootstrap tasks (package effects) that run once the component is Available.
	Setup []string
	// Adapt edits the rendered objects of the odd one. It is pure. At most a fifth of the components may have one.
	Adapt func(*Objects, Inputs) error
}

// Image says which image a component runs. The full reference is resolved from the CR, see package resolve.
type Image struct {
	// Name is the last path element; empty means the component's name.
	Name string
	// EE is the name for the editions in EEFor ("-ee" images). Those are not the editions that have the component: most that have an image of
	// their own for EE run in CE, too.
	EE    string
	EEFor []Edition
	// Tag is fixed for third-party images; empty means spec.version.
	Tag string
	// Older are the tags of third-party images in older releases, the oldest first. Source: the constants of the earlier operator's
	// release branches.
	Older []OlderTag
	// TagKey is the JSON key in the component's block that holds the tag, where it is not "tag".
	TagKey string
	// Hyper is true if the one big image can replace it.
	Hyper bool
	// Reference is the complete default reference of an image that is not the cloud's own: "docker.io/library/mariadb:10.11".
	Reference string
}

// OwnImage is the reference of the operator's own image.
const OwnImage = "ocadm"

// WorkloadKind is the kind of object that runs the component's pods.
type WorkloadKind string

// The workload kinds.
const (
	Deployment  WorkloadKind = "Deployment"
	StatefulSet WorkloadKind = "StatefulSet"
	DaemonSet   WorkloadKind = "DaemonSet"
	CronJob     WorkloadKind = "CronJob"
	// NoWorkload is for components that are only configuration, accounts or records.
	NoWorkload WorkloadKind = "None"
)

// Workload is what runs. The zero value is an ordinary Deployment of the component's own program:
// /opt/yunion/bin/<Name> --config /etc/yunion/<Name>.conf on controller nodes.
type Workload struct {
	Kind WorkloadKind // "" = Deployment
	// Products in which it runs; elsewhere the component is only configuration and accounts. Empty means all.
	Products []Product
	// Command and Args of the main container; nil means the ordinary command, an empty slice the image's own.
	Command, Args []string
	// EECommand replaces Command in the editions of Image.EEFor.
	EECommand []string
	// ContainerName, "" = component name.
	ContainerName string
	// WorkingDir of the main container, "" = the image's.
	WorkingDir string
	Env        func(Inputs) []corev1.EnvVar
	// PodLabels are further labels of the pods; they are part of the selector.
	PodLabels map[string]string
	// DBInit adds the init container that makes the schema: the command plus --auto-sync-table --exit-after-db-init.
	DBInit bool
	// Ports of the container beyond those of Service.
	Ports []corev1.ContainerPort
	// Sidecars are further containers of the pod.
	Sidecars []Sidecar
	// Ping adds the startup and readiness probes HTTPS GET /ping on the first port; Listens asks only whether that port is open.
	Ping, Listens bool
	// StartSeconds is how long it may take to start before it is killed; 0 = ten minutes, or an hour for a component with tables in a
	// database, which it may have to change before it listens.
	StartSeconds int32
	// Probe is any other readiness probe, Liveness a liveness probe.
	Probe, Liveness *corev1.Probe
	// Privileged container; HostNetwork also sets HostPID and HostIPC when HostNamespaces is set.
	Privileged, HostNetwork, HostNamespaces bool
	// NodeRole is the node label that must be "enable": "controller" (the default), "host", "baremetal", "lbagent"; "any" for none,
	// "host,lbagent" for one of several.
	NodeRole string
	// PerZone makes a copy <name>-<zone> for each of spec.<key>.zones that is one of spec.customZones. Its pods avoid each other's nodes.
	PerZone bool
	// Locks is true of a service whose copies keep out of each other's way by locks. In profile ha it has two copies if the
	// component that keeps the locks has members to lose.
	Locks bool
	// KeepsLocks is true of the component that keeps these locks, for as long as most of its members serve. It precedes the services in the catalogue.
	KeepsLocks bool
	// FixedMembers is true if the pods form a cluster whose members know their number from their volumes.
	FixedMembers bool
	// ReplicasKey is the JSON key in the component's block that holds the number of pods, where it is not "replicas".
	ReplicasKey string
	// Recreate instead of RollingUpdate.
	Recreate bool
	// MaxUnavailable is on how many nodes at a time a DaemonSet replaces its pods, 0 = one.
	MaxUnavailable int
	PriorityClass  string
	ServiceAccount string
	// Certs mounts ca.crt, service.crt, service.key at /etc/yunion/pki (default true unless NoCerts); EtcdTLS mounts the etcd client certificate.
	NoCerts, EtcdTLS bool
	Mounts           []Mount
	// Schedule of a CronJob.
	Schedule string
	// ReadReplicas lets spec.<key>.slave_replicas make read replicas <name>-slave.
	ReadReplicas bool
	// GracePeriod in seconds, 0 = Kubernetes' default.
	GracePeriod int64
	DNSOptions  []corev1.PodDNSConfigOption
	// CPU and Memory requests of the main container ("10m", "64Mi" by default), measured: what the service uses at rest.
	CPU, Memory string
	// Security of the main container, where not all permissions are taken from it.
	Security *corev1.SecurityContext
}

// Sidecar is a further container.
type Sidecar struct {
	Name string
	// SpecKey is the path of its block in the spec, "web.Overview"; with neither that nor an image name it runs the component's own image.
	SpecKey  string
	Image    Image
	Editions []Edition
	// When is one more condition; nil is always.
	When func(Spec) bool
	// Init makes it an init container. Lasting makes it one that runs on until the main container has ended (a sidecar container in the
	// sense of Kubernetes); the others start once Started, a command in the container, has succeeded.
	Init, Lasting bool
	Started       []string
	Privileged    bool
	Command       []string
	Env           func(Inputs) []corev1.EnvVar
	Ports         []corev1.ContainerPort
	// Mounts gives it what the main container has mounted, Volumes only those of these names. Elsewhere are volumes of the pod, by their
	// names, that it has at a path or in a way of its own.
	Mounts    bool
	Volumes   []string
	Elsewhere []Mount
}

// Mount is a volume and where it goes.
type Mount struct {
	Name, Path string
	// At most one source: HostPath, Storage (the component's PVC) or Secret (name suffix after "<cluster>-"); none is an empty directory.
	HostPath      string
	HostPathType  corev1.HostPathType
	Storage       bool
	Secret        string
	ReadOnly      bool
	Bidirectional bool
}

// Config is the component's configuration file: YAML, one option per key. Ours lie in ConfigMap <cluster>-<Name>, one data key per
// option, where users may edit them; together with the secrets they make the file in Secret <cluster>-<Name>-config.
type Config struct {
	// File name below /etc/yunion; "" = <Name>.conf.
	File string
	// Dir where it is mounted, "" = /etc/yunion.
	Dir string
	// Groups of options that many services share: "tls", "base", "common", "db", "clickhouse" (components.yaml configGroups).
	Groups []Group
	// Options of this service alone; nil values are left out.
	Options func(Inputs) map[string]any
	// Calm is set where AdminPasswordTaken changes an option of this service. The pods read it when they start next; nothing restarts them.
	Calm bool
	// Secrets are options whose values are secret; they never enter the ConfigMap.
	Secrets func(Inputs) map[string]any
	// Plain is a file without secrets (nginx, rcadmin) from templates/services/<Plain>; its ConfigMap is mounted itself, key "config".
	Plain string
	// Sealed is a file with secrets that is not made of options, from templates/services/<Sealed>; it lies in the Secret, whole.
	Sealed string
	// Properties writes the options as lines key=value, for programs in Java.
	Properties bool
	// Files are further files with secrets, whole, by name; they lie beside the file.
	Files func(Inputs) map[string]string
	// Of names another component whose configuration this one mounts (host agents share host's).
	Of string
	// StoredIn is the record of the catalogue under which the identity service stores the options, "" = the service of the first endpoint;
	// NotStored is true if it stores none, so that the file alone counts.
	StoredIn  string
	NotStored bool
	// AccountOf names another component whose database and account this one uses (scheduler uses region's).
	AccountOf string
}

// OptionsRecord is the service of the catalogue under which the identity service stores the options of a component, "" if it stores none.
func (c Component) OptionsRecord() string {
	switch {
	case c.Config == nil || c.Config.NotStored || c.Account == nil && c.Name != IdentityService && c.Config.AccountOf == "":
		return ""
	case c.Config.StoredIn != "":
		return c.Config.StoredIn
	case len(c.Endpoints) > 0:
		return c.Endpoints[0].Service
	}
	return ""
}

// IdentityService is the component that keeps accounts, endpoints and stored options.
const IdentityService = "keystone"

// Group is a set of options many services share.
type Group string

// The option groups.
const (
	GroupTLS    Group = "tls"
	GroupBase   Group = "base"
	GroupCommon Group = "common"
	GroupDB     Group = "db"
	// GroupClickHouse is for services that may keep their operation log in ClickHouse; nothing where spec.clickhouse names no server.
	GroupClickHouse Group = "clickhouse"
)

// Database is a schema and the account that owns it. User "" means the same as Name.
type Database struct {
	Name, User string
	// More databases of the same account.
	More []string
}

// Account is a user in the identity service with role admin in project system.
type Account struct {
	User string
}

// EtcdInitialState is the key of --initial-cluster-state in what the operator leaves for the pods of etcd.
const EtcdInitialState = "initial-cluster-state"

// EtcdCertificate is the name under which the identity service keeps the certificate of etcd's clients.
const EtcdCertificate = "etcd"

// Storage is the component's PersistentVolumeClaim <cluster>-<Name>.
type Storage struct {
	Size string // "100G"
	// HostDir is the directory of the node where the node's agents look for the data. A provisioner that knows the annotation
	// pvc.onecloud.yunion.io/pv-path makes the volume there.
	HostDir string
	// Backups is true if it holds backups: it stays when a cloud is deleted with its data.
	Backups bool
}

// SpecPath is the path of the component's block below spec: ["regionServer"], ["hostagent", "SdnAgent"], ["components", "cronjob-test"]. Its caller may
// append to it.
func (c Component) SpecPath() []string {
	if c.SpecKey == "" {
		return []string{"components", c.Name}
	}
	return slices.Clip(strings.Split(c.SpecKey, "."))
}

// BlockPath is SpecPath without a container's block: ["hostagent"] for ["hostagent", "SdnAgent"]. Its caller may append to it.
func (c Component) BlockPath() []string {
	path := c.SpecPath()
	if c.SpecKey != "" {
		path = path[:1]
	}
	return slices.Clip(path)
}

// LogsInAs names the component whose account this one logs in with: its service ends at once while there is no such account. "" stands for
// an account of its own, or none.
func (c Component) LogsInAs() string {
	if c.Account != nil || c.Config == nil {
		return ""
	}
	return cmp.Or(c.Config.AccountOf, c.Config.Of)
}

// Several reports whether several pods of the component serve at once in profile ha.
func (c Component) Several() bool {
	kind := c.WorkloadKind()
	return kind == Deployment && c.Single == "" || kind == StatefulSet
}

// WorkloadKind is the kind of object that runs its pods.
func (c Component) WorkloadKind() WorkloadKind { return cmp.Or(c.Workload.Kind, Deployment) }

// Services are its Service and the further ones, none where it has none.
func (c Component) Services() []Service {
	if c.Service == nil {
		return nil
	}
	return append([]Service{*c.Service}, c.Service.More...)
}

// Kinds of the objects a component consists of.
func (c Component) Kinds() []string {
	var out []string
	add := func(kind string, when bool) {
		if when {
			out = append(out, kind)
		}
	}
	hasConfig := c.Config != nil && c.Config.Of == ""
	add("ConfigMap", hasConfig && c.Config.Sealed == "")
	add("Secret", hasConfig && (c.Config.Plain == "" || c.Config.Files != nil))
	add("PersistentVolumeClaim", c.Storage != nil)
	add("Service", c.Service != nil)
	add(string(c.WorkloadKind()), c.WorkloadKind() != NoWorkload)
	add("PodDisruptionBudget", c.Several())
	add("Ingress", c.Ingress != nil)
	return out
}
