// SPDX-License-Identifier: Apache-2.0

// Package component defines the data types that describe the services of the cloud. A Component is pure data: the engine does nothing that it does not
// state. Package render turns it into objects; package effects does what happens outside Kubernetes.
package component

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Edition determines who may use a cloud.
type Edition string

// The editions, as in the CR's annotation onecloud.yunion.io/edition.
const (
	CE        Edition = "ce"
	CESupport Edition = "ce/support"
	EE        Edition = "ee"
)

// Product is a set of components (JSON spec.productVersion).
type Product string

const (
	FullStack Product = "FullStack"
	CMP       Product = "CMP"
	Edge      Product = "Edge"
	LightEdge Product = "LightEdge"
	AI        Product = "AI"
)

// Profile determines how many copies of the services run (JSON spec.profile).
type Profile string

const (
	// Small runs one copy of each service.
	Small Profile = "small"
	// HA runs two copies of each service that supports several, and three members of etcd.
	HA Profile = "ha"
)

// Component is a deployable unit of the cloud.
type Component struct {
	// Name is in kebab case; every object of the component is named <cluster>-<Name>[-suffix].
	Name string
	// SpecKey is the JSON key of its block in the CR's spec; "a.b" is a container's block within a block; "" means spec.components.
	SpecKey string
	// StatusKey is the JSON key in status that older tools read; "" if there is none.
	StatusKey string
	// Summary is a one-line description for "ocadm operator components" and the docs.
	Summary string
	// Editions and Products limit where it exists; empty means all.
	Editions []Edition
	Products []Product
	// Releases limits the cloud releases that have it; the zero value means all.
	Releases Releases
	// OffByDefault components run only if the CR sets disable: false (or their Gate opens).
	OffByDefault bool
	// Single is why its Deployment has only one copy even in profile ha; "" if several copies can serve concurrently.
	Single string
	// Gate is a further condition on the spec. It returns the reason why the component is off, or "".
	Gate func(Spec) string
	// After lists the components that must be Available before its workload is created.
	After []string

	Image     Image
	Workload  Workload
	Config    *Config
	Database  *Database
	Account   *Account
	Service   *Service
	Endpoints []Endpoint
	// Register adds catalog services without endpoints.
	Register []CatalogService
	Storage  *Storage
	Ingress  *Ingress
	// Credentials are the keys of generated secrets in addition to those of Database and Account. ChosenCredentials returns the values that the spec
	// sets.
	Credentials       []string
	ChosenCredentials func(Spec) map[string]string
	// EarlierSection is its section in the earlier operator's record of passwords, if it is not SpecKey. EarlierCredentials returns those that the
	// earlier operator did not record.
	EarlierSection     string
	EarlierCredentials func(Spec) map[string]string
	// Setup names the bootstrap tasks (package effects) that run when the component is Available.
	Setup []string
	// Adapt edits the rendered objects in special cases. It is pure. At most a fifth of the components may have one.
	Adapt func(*Objects, Inputs) error
}

// Image is the image that a component runs. Package resolve derives the full reference from the CR.
type Image struct {
	// Name is the last path element; empty means the component's name.
	Name string
	// EE is the name in the editions in EEFor ("-ee" images). These are not the component's editions: most components with an EE image also run in CE.
	EE    string
	EEFor []Edition
	// Tag is the fixed tag of a third-party image; empty means spec.version.
	Tag string
	// Older lists the tags of third-party images in older releases, oldest first. Source: the constants of the earlier operator's release branches.
	Older []OlderTag
	// TagKey is the JSON key of the tag in the component's block, if it is not "tag".
	TagKey string
	// Hyper is true if the single big image can replace it.
	Hyper bool
	// Reference is the complete default reference of a third-party image: "docker.io/library/mariadb:10.11".
	Reference string
}

// OwnImage is the reference of the operator's own image.
const OwnImage = "ocadm"

// WorkloadKind is the kind of object that runs the component's pods.
type WorkloadKind string

const (
	Deployment  WorkloadKind = "Deployment"
	StatefulSet WorkloadKind = "StatefulSet"
	DaemonSet   WorkloadKind = "DaemonSet"
	CronJob     WorkloadKind = "CronJob"
	// NoWorkload is for components that consist of configuration, accounts or records only.
	NoWorkload WorkloadKind = "None"
)

// Workload describes the pods. The zero value is an ordinary Deployment of the component's own program:
// /opt/yunion/bin/<Name> --config /etc/yunion/<Name>.conf on controller nodes.
type Workload struct {
	Kind WorkloadKind // "" = Deployment
	// Products limits where it runs; elsewhere the component is only configuration and accounts. Empty means all.
	Products []Product
	// Command and Args are the main container's; nil means the usual command, an empty slice that of the image.
	Command, Args []string
	// EECommand replaces Command in the editions of Image.EEFor.
	EECommand []string
	// ContainerName defaults to the component name.
	ContainerName string
	// WorkingDir is the main container's, "" = the image's.
	WorkingDir string
	Env        func(Inputs) []corev1.EnvVar
	// PodLabels are additional pod labels; they are part of the selector.
	PodLabels map[string]string
	// DBInit adds an init container that creates the schema: the command plus --auto-sync-table --exit-after-db-init.
	DBInit bool
	// Ports are container ports in addition to those of Service.
	Ports []corev1.ContainerPort
	// Sidecars are the other containers of the pod.
	Sidecars []Sidecar
	// Ping adds startup and readiness probes with HTTPS GET /ping on the first port; Listens only checks that this port is open.
	Ping, Listens bool
	// StartSeconds is how long it may take to start before it is killed; 0 = ten minutes, or an hour for a component with database tables, which it may
	// have to change before it listens.
	StartSeconds int32
	// Probe is another readiness probe, Liveness a liveness probe.
	Probe, Liveness *corev1.Probe
	// Privileged makes the container privileged; HostNetwork also sets HostPID and HostIPC if HostNamespaces is set.
	Privileged, HostNetwork, HostNamespaces bool
	// NodeRole is the node label that must be "enable": "controller" (the default), "host", "baremetal", "lbagent"; "any" for none,
	// "host,lbagent" for one of several.
	NodeRole string
	// PerZone creates a copy <name>-<zone> for each of spec.<key>.zones that is in spec.customZones. Its pods avoid each other's nodes.
	PerZone bool
	// Locks is true if the copies of the service coordinate by locks. In profile ha it has two copies if the component that keeps the locks can lose a
	// member.
	Locks bool
	// KeepsLocks is true for the component that keeps these locks while most of its members serve. It precedes the services in the catalog.
	KeepsLocks bool
	// FixedMembers is true if the pods form a cluster whose number of members is recorded in their volumes.
	FixedMembers bool
	// ReplicasKey is the JSON key of the number of pods in the component's block, if it is not "replicas".
	ReplicasKey string
	// Recreate replaces RollingUpdate.
	Recreate bool
	// MaxUnavailable is the number of nodes on which a DaemonSet replaces its pods concurrently, 0 = one.
	MaxUnavailable int
	PriorityClass  string
	ServiceAccount string
	// NoCerts omits ca.crt, service.crt and service.key at /etc/yunion/pki; EtcdTLS mounts the etcd client certificate.
	NoCerts, EtcdTLS bool
	Mounts           []Mount
	// Schedule is the CronJob's.
	Schedule string
	// ReadReplicas lets spec.<key>.slave_replicas create read replicas <name>-slave.
	ReadReplicas bool
	// GracePeriod is in seconds, 0 = Kubernetes' default.
	GracePeriod int64
	DNSOptions  []corev1.PodDNSConfigOption
	// CPU and Memory are the requests of the main container ("10m", "64Mi" by default): its measured usage at rest.
	CPU, Memory string
	// Security is set if the main container needs some permissions.
	Security *corev1.SecurityContext
}

// Sidecar is an additional container.
type Sidecar struct {
	Name string
	// SpecKey is the path of its block in the spec, "web.Overview". With neither that nor an image name it runs the component's own image.
	SpecKey  string
	Image    Image
	Editions []Edition
	// When is a further condition; nil means always.
	When func(Spec) bool
	// Init makes it an init container. Lasting makes it one that runs until the main container has ended (a sidecar container in Kubernetes); the others
	// start once Started, a command in the container, has succeeded.
	Init, Lasting bool
	Started       []string
	Privileged    bool
	Command       []string
	Env           func(Inputs) []corev1.EnvVar
	Ports         []corev1.ContainerPort
	// Mounts gives it all mounts of the main container, Volumes only those with these names. Elsewhere mounts volumes of the pod, by name, at another
	// path or in another way.
	Mounts    bool
	Volumes   []string
	Elsewhere []Mount
}

// Mount is a volume and its mount path.
type Mount struct {
	Name, Path string
	// At most one source: HostPath, Storage (the component's PVC) or Secret (name suffix after "<cluster>-"); without one it is an empty directory.
	HostPath      string
	HostPathType  corev1.HostPathType
	Storage       bool
	Secret        string
	ReadOnly      bool
	Bidirectional bool
}

// Config describes the component's configuration file: YAML, one option per key. Our options are in ConfigMap <cluster>-<Name>, one data key per option,
// where users may edit them. With the secrets they form the file in Secret <cluster>-<Name>-config.
type Config struct {
	// File is the file name below /etc/yunion; "" = <Name>.conf.
	File string
	// Dir is the mount directory, "" = /etc/yunion.
	Dir string
	// Groups are sets of options that many services share: "tls", "base", "common", "db", "clickhouse" (components.yaml configGroups).
	Groups []Group
	// Options returns the options of this service alone; nil values are omitted.
	Options func(Inputs) map[string]any
	// Calm is set if AdminPasswordTaken changes an option of this service. The pods read it at their next start; it does not restart them.
	Calm bool
	// Secrets returns options with secret values; they never enter the ConfigMap.
	Secrets func(Inputs) map[string]any
	// Plain is a file without secrets (nginx, rcadmin) from templates/services/<Plain>. Its ConfigMap is mounted directly, key "config".
	Plain string
	// Reads names the credentials in the environment of the pods. A new value restarts them.
	Reads []string
	// Sealed is a file with secrets that does not consist of options, from templates/services/<Sealed>. It is in the Secret as a whole.
	Sealed string
	// Properties writes the options as key=value lines, for programs in Java.
	Properties bool
	// Files returns further whole files with secrets, by name, in the same directory.
	Files func(Inputs) map[string]string
	// Of names another component whose configuration this one mounts (host agents use that of host).
	Of string
	// StoredIn is the catalog record under which the identity service stores the options, "" = the service of the first endpoint. NotStored is true if
	// it stores none, so that only the file counts.
	StoredIn  string
	NotStored bool
	// AccountOf names another component whose database and account this one uses (scheduler uses those of region).
	AccountOf string
}

// OptionsRecord returns the catalog service under which the identity service stores a component's options, "" if it stores none.
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

// Group is a set of options that many services share.
type Group string

const (
	GroupTLS    Group = "tls"
	GroupBase   Group = "base"
	GroupCommon Group = "common"
	GroupDB     Group = "db"
	// GroupClickHouse is for services that may keep their operation log in ClickHouse. It has no effect if spec.clickhouse has no server.
	GroupClickHouse Group = "clickhouse"
)

// Database is a schema and the account that owns it. User defaults to Name.
type Database struct {
	Name, User string
	// More lists further databases of the same account.
	More []string
}

// Account is a user in the identity service with role admin in project system.
type Account struct {
	User string
}

// EtcdInitialState is the key of --initial-cluster-state in the state that the operator stores for etcd's pods.
const EtcdInitialState = "initial-cluster-state"

// EtcdCertificate is the name of the etcd client certificate in the identity service.
const EtcdCertificate = "etcd"

// Storage is the component's PersistentVolumeClaim <cluster>-<Name>.
type Storage struct {
	Size string // "100G"
	// HostDir is the node directory in which the node's agents expect the data. A provisioner that supports the annotation
	// pvc.onecloud.yunion.io/pv-path creates the volume there.
	HostDir string
	// Backups is true if it holds backups: it stays when a cloud is deleted with its data.
	Backups bool
}

// SpecPath returns the path of the component's block below spec: ["regionServer"], ["hostagent", "SdnAgent"], ["components", "cronjob-test"]. The caller
// may append to it.
func (c Component) SpecPath() []string {
	if c.SpecKey == "" {
		return []string{"components", c.Name}
	}
	return slices.Clip(strings.Split(c.SpecKey, "."))
}

// BlockPath is like SpecPath, but without a container's block: ["hostagent"] for ["hostagent", "SdnAgent"]. The caller may append to it.
func (c Component) BlockPath() []string {
	path := c.SpecPath()
	if c.SpecKey != "" {
		path = path[:1]
	}
	return slices.Clip(path)
}

// LogsInAs names the component with whose account this one logs in: its service exits immediately if that account does not exist. "" means an account of
// its own, or none.
func (c Component) LogsInAs() string {
	if c.Account != nil || c.Config == nil {
		return ""
	}
	return cmp.Or(c.Config.AccountOf, c.Config.Of)
}

// Several reports whether several pods of the component serve concurrently in profile ha.
func (c Component) Several() bool {
	kind := c.WorkloadKind()
	return kind == Deployment && c.Single == "" || kind == StatefulSet
}

// WorkloadKind returns the kind of object that runs its pods.
func (c Component) WorkloadKind() WorkloadKind { return cmp.Or(c.Workload.Kind, Deployment) }

func (c Component) Services() []Service {
	if c.Service == nil {
		return nil
	}
	return append([]Service{*c.Service}, c.Service.More...)
}

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
