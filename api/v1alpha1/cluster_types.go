// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OnecloudCluster describes one cloud.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=onecloudclusters,scope=Namespaced,shortName=onecloud;oc
// +kubebuilder:printcolumn:name="Keystone",type=string,JSONPath=`.spec.keystone.image`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$')",message="metadata.name: a cloud's name begins with a letter and has at most 30 lower-case letters, digits and dashes: the names of its Services begin with it"
type OnecloudCluster struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   OnecloudClusterSpec   `json:"spec"`
	Status OnecloudClusterStatus `json:"status,omitzero"`
}

// OnecloudClusterList is a list of clouds.
//
// +kubebuilder:object:root=true
type OnecloudClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []OnecloudCluster `json:"items"`
}

// DatabaseServer names a database server and the account with which the operator administers it.
type DatabaseServer struct {
	// Name or address of the server. In spec.mysql, only ocadm cluster move-database changes it. Elsewhere it cannot change while the cloud exists.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9.:_-]*$`
	Host string `json:"host,omitempty"`
	// Port of the server; 3306 for MySQL and 9000 for ClickHouse by default. The rules of host apply to it too.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// Account that creates databases and accounts; root for MySQL and default for ClickHouse by default.
	// +kubebuilder:validation:MaxLength=80
	Username string `json:"username,omitempty"`
	// Password of that account, in plain text. Prefer passwordSecretRef.
	// +kubebuilder:validation:MaxLength=256
	Password string `json:"password,omitempty"`
	// Key of a Secret in the namespace of the cloud that holds the password. Set either this or password.
	// +nullable
	PasswordSecretRef *SecretKeyRef `json:"passwordSecretRef,omitempty"`
	// Encryption of the connections; only for spec.mysql.
	TLS DatabaseTLS `json:"tls,omitzero"`
	// Host that the databases were moved from; only for spec.mysql. host and port can change only together with it. ocadm cluster move-database sets it
	// when it changes them.
	// +kubebuilder:validation:MaxLength=253
	MovedFrom string `json:"movedFrom,omitempty"`
}

// DatabaseTLS configures the encryption of connections to a database server.
type DatabaseTLS struct {
	// Mode, as in MySQL's own clients. When empty, the operator prefers TLS and the services do not use it.
	// +kubebuilder:validation:Enum="";disabled;preferred;required;verify-ca;verify-identity
	Mode string `json:"mode,omitempty"`
	// PEM-encoded CA certificates, for verify-ca and verify-identity. When empty, the system's CAs are trusted.
	// +kubebuilder:validation:MaxLength=65536
	CA string `json:"ca,omitempty"`
}

// SecretKeyRef names a key of a Secret in the namespace of the cloud.
type SecretKeyRef struct {
	// Name of the Secret.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Key in the Secret. Its value is used as is, including a trailing newline.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// MinioSpec configures an object store for images, which kubeserver installs.
type MinioSpec struct {
	// Install the object store.
	Enable bool `json:"enable,omitempty"`
	// Number of servers; standalone when empty.
	// +kubebuilder:validation:Enum="";standalone;distributed
	Mode string `json:"mode,omitempty"`
}

// NamedService holds an entry of a list in existing files, which is ignored.
type NamedService struct {
	// Ignored.
	Name string `json:"name,omitempty"`
	// Ignored.
	Type string `json:"type,omitempty"`
}

// CloudMachines holds the settings shared by all machines of a cloud.
//
// +kubebuilder:validation:XValidation:rule="!has(self.settings) || !has(self.settings.ip)",message="an address belongs to one machine: set it in spec.settings of the OnecloudMachine",fieldPath=".settings"
type CloudMachines struct {
	// Settings of ocadm join for each OnecloudMachine of the cloud. The machine's own settings take precedence.
	Settings MachineSettings `json:"settings,omitzero"`
}

// DeletionPolicy decides what happens to a cloud's data when the cloud is deleted.
type DeletionPolicy string

// The deletion policies; Retain is the default.
const (
	Retain DeletionPolicy = "Retain"
	Delete DeletionPolicy = "Delete"
)

// OnecloudClusterSpec describes a cloud. Only the database server and its password are required; everything else has a default.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="has(self.mysql) && has(self.mysql.host) && !self.mysql.host.matches(r'^$')",message="name the database server",fieldPath=".mysql.host"
// +kubebuilder:validation:XValidation:rule="!has(self.mysql) || !has(self.mysql.host) || !self.mysql.host.matches(r'^[^:]*:[0-9]*$')",message="give the port in mysql.port",fieldPath=".mysql.host"
// +kubebuilder:validation:XValidation:rule=`self.?mysql.?password.orValue("") != "" || self.?mysql.?passwordSecretRef.?name.orValue("") != ""`,message="give password, or passwordSecretRef",fieldPath=".mysql.password"
// +kubebuilder:validation:XValidation:rule=`self.?mysql.?password.orValue("") == "" || self.?mysql.?passwordSecretRef.?name.orValue("") == ""`,message="give either password or passwordSecretRef: with both, a change of one would have no effect",fieldPath=".mysql.password"
// +kubebuilder:validation:XValidation:rule=`!has(self.mysql) || !has(self.mysql.password) || !self.mysql.password.matches(r'[\r\n]')`,message="it contains a line break: remove it",fieldPath=".mysql.password"
// +kubebuilder:validation:XValidation:rule="!has(self.mysql) || !has(self.mysql.passwordSecretRef) || !has(self.mysql.passwordSecretRef.name) || self.mysql.passwordSecretRef.name.matches(r'^$|^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')",message="it must be the name of a Secret in the cloud's namespace: lower-case letters, digits, '-' and '.'",fieldPath=".mysql.passwordSecretRef.name"
// +kubebuilder:validation:XValidation:rule="!has(self.db_engine) || self.db_engine.matches(r'^(mysql)?$')",message="only mysql is supported: move the data to MySQL or MariaDB, and omit db_engine",fieldPath=".db_engine"
// +kubebuilder:validation:XValidation:rule="!has(self.clickhouse) || !has(self.clickhouse.host) || !self.clickhouse.host.matches(r'^[^:]*:[0-9]*$')",message="give the port in clickhouse.port",fieldPath=".clickhouse.host"
// +kubebuilder:validation:XValidation:rule=`self.?clickhouse.?password.orValue("") == "" || self.?clickhouse.?passwordSecretRef.?name.orValue("") == ""`,message="give either password or passwordSecretRef: with both, a change of one would have no effect",fieldPath=".clickhouse.password"
// +kubebuilder:validation:XValidation:rule=`!has(self.clickhouse) || !has(self.clickhouse.password) || !self.clickhouse.password.matches(r'[\r\n]')`,message="it contains a line break: remove it",fieldPath=".clickhouse.password"
// +kubebuilder:validation:XValidation:rule="!has(self.clickhouse) || !has(self.clickhouse.passwordSecretRef) || !has(self.clickhouse.passwordSecretRef.name) || self.clickhouse.passwordSecretRef.name.matches(r'^$|^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')",message="it must be the name of a Secret in the cloud's namespace: lower-case letters, digits, '-' and '.'",fieldPath=".clickhouse.passwordSecretRef.name"
// +kubebuilder:validation:XValidation:rule=`self.?clickhouse.?host.orValue("") == "" || oldSelf.?clickhouse.?host.orValue("") == "" || self.clickhouse.host == oldSelf.clickhouse.host`,message="clickhouse.host cannot change while services keep records there: point the old address to the new server, or remove host first and set the new one afterwards; earlier records stay on the old server",fieldPath=".clickhouse.host"
// +kubebuilder:validation:XValidation:rule=`self.?clickhouse.?host.orValue("") == "" || oldSelf.?clickhouse.?host.orValue("") == "" || (self.clickhouse.?port.orValue(0) == 0 ? 9000 : self.clickhouse.port) == (oldSelf.clickhouse.?port.orValue(0) == 0 ? 9000 : oldSelf.clickhouse.port)`,message="clickhouse.port cannot change while services keep records there: remove host first and set the new host and port afterwards; earlier records stay on the old server",fieldPath=".clickhouse.port"
// +kubebuilder:validation:XValidation:rule="!has(self.imageRepository) || !self.imageRepository.matches(r'://')",message="omit the scheme: registry.example.com/path",fieldPath=".imageRepository"
// +kubebuilder:validation:XValidation:rule="!has(self.imageRepository) || !self.imageRepository.matches(r'@|/[^/]*:[^/]*$')",message="omit the tag: it is spec.version",fieldPath=".imageRepository"
// +kubebuilder:validation:XValidation:rule="!has(self.productVersion) || self.productVersion.matches(r'^(FullStack|CMP|Edge|LightEdge|AI)?$')",message="productVersion must be one of FullStack, CMP, Edge, LightEdge, AI",fieldPath=".productVersion"
// +kubebuilder:validation:XValidation:rule="!has(self.loadBalancerEndpoint) || !self.loadBalancerEndpoint.matches(r'^[^:]*:[0-9]*$')",message="give an address or a name without a port: each service has its own",fieldPath=".loadBalancerEndpoint"
// +kubebuilder:validation:XValidation:rule="!has(self.customZones) || self.customZones.all(x, x.matches(r'^[a-zA-Z0-9][a-zA-Z0-9_.-]*$'))",message="a zone's name begins with a letter or digit and has letters, digits, '-', '_' and '.'",fieldPath=".customZones"
// +kubebuilder:validation:XValidation:rule="!has(self.customZones) || self.customZones.all(x, self.customZones.exists_one(y, x == y))",message="name each zone once",fieldPath=".customZones"
// +kubebuilder:validation:XValidation:rule="!has(self.certSANs) || self.certSANs.all(x, x.matches(r'^([*][.])?[a-zA-Z0-9]([a-zA-Z0-9.:_-]*[a-zA-Z0-9])?$|^[0-9a-fA-F:.]+$'))",message="each entry must be an IP address or a DNS name",fieldPath=".certSANs"
// +kubebuilder:validation:XValidation:rule="!has(self.components) || self.components.all(k, k.matches(r'^[a-z][a-z0-9-]{0,61}$'))",message="a component's name has lower-case letters, digits and '-', and begins with a letter",fieldPath=".components"
// +kubebuilder:validation:XValidation:rule=`!has(oldSelf.region) || oldSelf.region == "" || has(self.region) && self.region == oldSelf.region`,message="region cannot change: every service has recorded it; create another cloud for another region",fieldPath=".region"
// +kubebuilder:validation:XValidation:rule=`!has(oldSelf.zone) || oldSelf.zone == "" || has(self.zone) && self.zone == oldSelf.zone`,message="zone cannot change: hosts have recorded it; add zones in customZones",fieldPath=".zone"
// +kubebuilder:validation:XValidation:rule=`!has(oldSelf.mysql) || !has(oldSelf.mysql.host) || oldSelf.mysql.host == "" || has(self.mysql) && has(self.mysql.host) && (self.mysql.host == oldSelf.mysql.host || has(self.mysql.movedFrom) && self.mysql.movedFrom == oldSelf.mysql.host)`,message="mysql.host cannot change while services use the databases there: ocadm cluster move-database copies them and changes it",fieldPath=".mysql.host"
// +kubebuilder:validation:XValidation:rule="(self.?mysql.?port.orValue(0) == 0 ? 3306 : self.mysql.port) == (oldSelf.?mysql.?port.orValue(0) == 0 ? 3306 : oldSelf.mysql.port) || has(self.mysql) && has(self.mysql.movedFrom) && has(oldSelf.mysql) && has(oldSelf.mysql.host) && self.mysql.movedFrom == oldSelf.mysql.host",message="mysql.port cannot change while services use the databases there: ocadm cluster move-database copies them and changes it",fieldPath=".mysql.port"
// +kubebuilder:validation:XValidation:rule="has(self.storageClassName) == has(oldSelf.storageClassName) && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",message="storageClassName cannot change while the cloud exists: it would get new, empty volumes; for one component, set storageClassName in its block",fieldPath=".storageClassName"
// +kubebuilder:validation:XValidation:rule="oldSelf.?etcd.?disable.orValue(false) == true || self.?etcd.?disable.orValue(false) == true || oldSelf.?etcd.?size.orValue(0) == 0 || self.?etcd.?size.orValue(0) == 0 || self.etcd.size == oldSelf.etcd.size",message="etcd.size cannot change while etcd runs: its members learn of each other only at their first start; set etcd.disable, delete the claims of etcd (they hold only leases and caches), then set the size and unset disable",fieldPath=".etcd.size"
// +kubebuilder:validation:XValidation:rule="self.?etcd.?size.orValue(0) == 0 || self.etcd.size % 2 != 0",message="an even number of members survives no more failures than one less: give 1, 3 or 5",fieldPath=".etcd.size"
// +kubebuilder:validation:XValidation:rule="self.?etcd.?etcdBackendQuotaSize.orValue(0) <= 8192",message="the unit is MB, and etcd does not work well with more than 8192",fieldPath=".etcd.etcdBackendQuotaSize"
// +kubebuilder:validation:XValidation:rule=`!has(self.keystone) || !has(self.keystone.bootstrapPassword) || !self.keystone.bootstrapPassword.matches(r'[\r\n]')`,message="it contains a line break: remove it",fieldPath=".keystone.bootstrapPassword"
// +kubebuilder:validation:XValidation:rule="!has(self.regionServer) || !has(self.regionServer.dnsServer) || self.regionServer.dnsServer.matches(r'^[A-Za-z0-9.:,_-]*$')",message="give addresses, separated by commas",fieldPath=".regionServer.dnsServer"
// +kubebuilder:validation:XValidation:rule="!has(self.regionServer) || !has(self.regionServer.dnsDomain) || self.regionServer.dnsDomain.matches(r'^([a-zA-Z0-9_]([a-zA-Z0-9_-]*[a-zA-Z0-9])?([.][a-zA-Z0-9_]([a-zA-Z0-9_-]*[a-zA-Z0-9])?)*[.]?)?$')",message="it must be a DNS name: cloud.example.com",fieldPath=".regionServer.dnsDomain"
// +kubebuilder:validation:XValidation:rule=`!has(self.regionDNS) || !has(self.regionDNS.proxies) || self.regionDNS.proxies.all(p, has(p.from) && p.from.matches(r'^[^\s]+$') && has(p.to) && size(p.to) > 0)`,message="each entry must have a domain in from, and at least one address in to",fieldPath=".regionDNS.proxies"
// +kubebuilder:validation:XValidation:rule="!has(self.hostagent) || !has(self.hostagent.defaultQemuVersion) || self.hostagent.defaultQemuVersion.matches(r'^([0-9]+[.][0-9]+[.][0-9]+)?$')",message="it must be a version of three numbers: 10.0.7",fieldPath=".hostagent.defaultQemuVersion"
// +kubebuilder:validation:XValidation:rule="!has(self.telegraf) || !has(self.telegraf.telegrafConfigDir) || self.telegraf.telegrafConfigDir.matches(r'^(/+[^/.][^/]*|/+[.][^/.][^/]*)*/*$')",message="it must be a directory of the node: /etc/telegraf",fieldPath=".telegraf.telegrafConfigDir"
// +kubebuilder:validation:XValidation:rule=`!has(self.apiGateway) || !has(self.apiGateway.corsHosts) || self.apiGateway.corsHosts.all(x, x.matches(r'^[^\s,]+$'))`,message="each entry must be one host, without spaces or commas",fieldPath=".apiGateway.corsHosts"
// +kubebuilder:validation:XValidation:rule="!has(self.backup) || !has(self.backup.schedule) || self.backup.schedule.matches(r'^(@(annually|yearly|monthly|weekly|daily|midnight|hourly)|@every [0-9a-z.]+|[0-9*,/?LW#a-zA-Z-]+( +[0-9*,/?LW#a-zA-Z-]+){4})?$')",message="give minute, hour, day, month and weekday: 0 2 * * *",fieldPath=".backup.schedule"
type OnecloudClusterSpec struct {
	// MySQL or MariaDB server that holds the databases of the services.
	// +required
	MySQL DatabaseServer `json:"mysql"`
	// ClickHouse server for operation logs.
	Clickhouse DatabaseServer `json:"clickhouse,omitzero"`
	// Ignored; Dameng is not supported.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Dameng DatabaseServer `json:"dameng,omitzero"`
	// Only mysql is accepted.
	// +kubebuilder:validation:MaxLength=16
	DBEngine string `json:"db_engine,omitempty"`

	// Release of the cloud: the tag of every image without a version of its own; latest by default.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_][A-Za-z0-9_.-]*)?$`
	Version string `json:"version,omitempty"`
	// Registry and path of every image, without a scheme or a tag; registry.cn-beijing.aliyuncs.com/yunionio by default.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^\S*$`
	ImageRepository string `json:"imageRepository,omitempty"`
	// Secrets of type kubernetes.io/dockerconfigjson for pulling the images of all components. A component can have its own.
	// +nullable
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// Storage class of the volumes of components that do not set their own; local-path by default. It cannot change while the cloud exists.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$`
	StorageClassName string `json:"storageClassName,omitempty"`
	// Ingress class of the cloud's Ingresses; by default the default class of the cluster.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$`
	IngressClassName string `json:"ingressClassName,omitempty"`
	// Set of components: FullStack (default), CMP, Edge, LightEdge or AI.
	// +kubebuilder:validation:MaxLength=32
	ProductVersion string `json:"productVersion,omitempty"`
	// Size of the cloud: small (default) runs one copy of each service; ha runs two copies of the services that support it, on different nodes, and three
	// members of etcd.
	// +kubebuilder:validation:Enum="";small;ha
	Profile string `json:"profile,omitempty"`
	// Run most components from one combined image, cloudpods.
	UseHyperImage bool `json:"useHyperImage,omitempty"`

	// Name of the region; region0 by default. It cannot change.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^([a-zA-Z0-9][a-zA-Z0-9_.-]*)?$`
	Region string `json:"region,omitempty"`
	// Name of the first zone; zone0 by default. It cannot change.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^([a-zA-Z0-9][a-zA-Z0-9_.-]*)?$`
	Zone string `json:"zone,omitempty"`
	// Further zones, for components that run once per zone.
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	CustomZones []string `json:"customZones,omitempty"`
	// Address or name at which users and hosts reach the cloud, without a port; by default the address of a controller node.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9.:-]*$`
	LoadBalancerEndpoint string `json:"loadBalancerEndpoint,omitempty"`
	// Additional names and addresses in the certificate of the services.
	// +nullable
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	CertSANs []string `json:"certSANs,omitempty"`

	// Omit resource requests and limits of the components.
	DisableResourceManagement bool `json:"disableResourceManagement,omitempty"`
	// Run no local VPC: no OVN and no VPC agent.
	DisableLocalVpc bool `json:"disableLocalVpc,omitempty"`
	// Run component cloudnet.
	EnableCloudNet bool `json:"enableCloudNet,omitempty"`
	// Run component s3gateway.
	EnableS3Gateway bool `json:"enableS3Gateway,omitempty"`
	// Let etcd and VictoriaMetrics listen on IPv6 as well.
	IPv6Cluster bool `json:"ipv6Cluster,omitempty"`

	// What happens to the data when the cloud is deleted: Retain (default) keeps databases and volumes, Delete removes them.
	// +kubebuilder:validation:Enum="";Retain;Delete
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// Settings shared by all machines of the cloud.
	Machines CloudMachines `json:"machines,omitzero"`

	// Ignored.
	// +nullable
	Services []NamedService `json:"services,omitempty"`
	// Object store for images.
	Minio MinioSpec `json:"minio,omitzero"`

	Etcd                    EtcdSpec            `json:"etcd,omitzero"`
	Keystone                KeystoneSpec        `json:"keystone,omitzero"`
	RegionServer            RegionSpec          `json:"regionServer,omitzero"`
	RegionDNS               RegionDNSSpec       `json:"regionDNS,omitzero"`
	Scheduler               ComponentSpec       `json:"scheduler,omitzero"`
	Glance                  GlanceSpec          `json:"glance,omitzero"`
	Climc                   ComponentSpec       `json:"climc,omitzero"`
	Logger                  ComponentSpec       `json:"logger,omitzero"`
	Yunionconf              ComponentSpec       `json:"yunionconf,omitzero"`
	Yunionagent             ComponentSpec       `json:"yunionagent,omitzero"`
	APIGateway              APIGatewaySpec      `json:"apiGateway,omitzero"`
	Web                     WebSpec             `json:"web,omitzero"`
	Webconsole              WebconsoleSpec      `json:"webconsole,omitzero"`
	Hostagent               HostAgentSpec       `json:"hostagent,omitzero"`
	Hostdeployer            ComponentSpec       `json:"hostdeployer,omitzero"`
	Hostimage               ComponentSpec       `json:"hostimage,omitzero"`
	OvnNorth                OvnNorthSpec        `json:"ovnNorth,omitzero"`
	VpcAgent                ComponentSpec       `json:"vpcAgent,omitzero"`
	Lbagent                 LbagentSpec         `json:"lbagent,omitzero"`
	Baremetalagent          ComponentSpec       `json:"baremetalagent,omitzero"`
	Esxiagent               ComponentSpec       `json:"esxiagent,omitzero"`
	Influxdb                ComponentSpec       `json:"influxdb,omitzero"`
	VictoriaMetrics         VictoriaMetricsSpec `json:"victoriaMetrics,omitzero"`
	Telegraf                TelegrafSpec        `json:"telegraf,omitzero"`
	Monitor                 ComponentSpec       `json:"monitor,omitzero"`
	Cloudmon                CloudmonSpec        `json:"cloudmon,omitzero"`
	MonitorStack            MonitorStackSpec    `json:"monitorStack,omitzero"`
	Kubeserver              ComponentSpec       `json:"kubeserver,omitzero"`
	Ansibleserver           ComponentSpec       `json:"ansibleserver,omitzero"`
	Cloudnet                ComponentSpec       `json:"cloudnet,omitzero"`
	Cloudproxy              ComponentSpec       `json:"cloudproxy,omitzero"`
	Cloudevent              ComponentSpec       `json:"cloudevent,omitzero"`
	Cloudid                 ComponentSpec       `json:"cloudid,omitzero"`
	Cloudmux                ComponentSpec       `json:"cloudmux,omitzero"`
	Notify                  NotifySpec          `json:"notify,omitzero"`
	S3gateway               ComponentSpec       `json:"s3gateway,omitzero"`
	Devtool                 ComponentSpec       `json:"devtool,omitzero"`
	Meter                   ComponentSpec       `json:"meter,omitzero"`
	Billing                 ComponentSpec       `json:"billing,omitzero"`
	Autoupdate              ComponentSpec       `json:"autoupdate,omitzero"`
	Itsm                    ComponentSpec       `json:"itsm,omitzero"`
	OnecloudServiceOperator ComponentSpec       `json:"onecloudServiceOperator,omitzero"`
	Suggestion              ComponentSpec       `json:"suggestion,omitzero"`
	Scheduledtask           ComponentSpec       `json:"scheduledtask,omitzero"`
	APIMap                  ComponentSpec       `json:"apiMap,omitzero"`
	Report                  ComponentSpec       `json:"report,omitzero"`
	EchartsSSR              ComponentSpec       `json:"echartsSSR,omitzero"`
	BastionHost             ComponentSpec       `json:"bastionHost,omitzero"`
	Extdb                   ComponentSpec       `json:"extdb,omitzero"`
	LLM                     ComponentSpec       `json:"llm,omitzero"`
	McpServer               ComponentSpec       `json:"mcpServer,omitzero"`
	Aiproxy                 ComponentSpec       `json:"aiproxy,omitzero"`
	Backup                  BackupSpec          `json:"backup,omitzero"`

	// Blocks of the components that have no field of their own, by component name.
	// +nullable
	// +kubebuilder:validation:MaxProperties=100
	Components map[string]ComponentSpec `json:"components,omitempty"`
}
