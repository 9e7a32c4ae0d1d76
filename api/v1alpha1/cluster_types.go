// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OnecloudCluster is one cloud.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=onecloudclusters,scope=Namespaced,shortName=onecloud;oc
// +kubebuilder:printcolumn:name="Keystone",type=string,JSONPath=`.spec.keystone.image`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.version`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([a-z0-9-]{0,28}[a-z0-9])?$')",message="metadata.name: a cloud's name begins with a letter and has at most 30 lower-case letters, digits and dashes: the names of its Services are made of it"
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

// DatabaseServer is how the operator reaches a database server as its administrator.
type DatabaseServer struct {
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9.:_-]*$`
	Host string `json:"host,omitempty"`
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// +kubebuilder:validation:MaxLength=80
	Username string `json:"username,omitempty"`
	// +kubebuilder:validation:MaxLength=256
	Password string `json:"password,omitempty"`
	// A key of a Secret beside the cloud, instead of password.
	// +nullable
	PasswordSecretRef *SecretKeyRef `json:"passwordSecretRef,omitempty"`
	// How connections are encrypted. Of mysql only.
	TLS DatabaseTLS `json:"tls,omitzero"`
}

// DatabaseTLS is how connections to a database server are encrypted.
type DatabaseTLS struct {
	// As in MySQL's own clients; empty is preferred for the operator, and leaves the services' connections in clear.
	// +kubebuilder:validation:Enum="";disabled;preferred;required;verify-ca;verify-identity
	Mode string `json:"mode,omitempty"`
	// Certificates of authorities in PEM, for verify-ca and verify-identity; empty is those of the system.
	// +kubebuilder:validation:MaxLength=65536
	CA string `json:"ca,omitempty"`
}

// SecretKeyRef is a key of a Secret in the cloud's namespace.
type SecretKeyRef struct {
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// MinioSpec is the object store for images.
type MinioSpec struct {
	Enable bool `json:"enable,omitempty"`
	// +kubebuilder:validation:Enum="";standalone;distributed
	Mode string `json:"mode,omitempty"`
}

// NamedService is read from existing YAML and not used.
type NamedService struct {
	Name string `json:"name,omitempty"`
	Type string `json:"type,omitempty"`
}

// DeletionPolicy says what becomes of a cloud's data when the cloud is deleted.
type DeletionPolicy string

// The deletion policies; absent means Retain.
const (
	Retain DeletionPolicy = "Retain"
	Delete DeletionPolicy = "Delete"
)

// OnecloudClusterSpec describes a cloud. A minimal one names its database server; everything else has a default. What it may hold
// beyond these markers is in package admission, whose rules are written into the CRD.
//
// +kubebuilder:pruning:PreserveUnknownFields
type OnecloudClusterSpec struct {
	// +required
	MySQL      DatabaseServer `json:"mysql"`
	Clickhouse DatabaseServer `json:"clickhouse,omitzero"`
	Dameng     DatabaseServer `json:"dameng,omitzero"`
	// +kubebuilder:validation:MaxLength=16
	DBEngine string `json:"db_engine,omitempty"`

	// The release of the cloud: the tag of every image that has none of its own.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_][A-Za-z0-9_.-]*)?$`
	Version string `json:"version,omitempty"`
	// Registry and path in front of every image name that has none of its own.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^\S*$`
	ImageRepository string `json:"imageRepository,omitempty"`
	// Which set of components the cloud has.
	// +kubebuilder:validation:MaxLength=32
	ProductVersion string `json:"productVersion,omitempty"`
	UseHyperImage  bool   `json:"useHyperImage,omitempty"`

	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^([a-zA-Z0-9][a-zA-Z0-9_.-]*)?$`
	Region string `json:"region,omitempty"`
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^([a-zA-Z0-9][a-zA-Z0-9_.-]*)?$`
	Zone string `json:"zone,omitempty"`
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=64
	CustomZones []string `json:"customZones,omitempty"`
	// Address or name by which people and hosts reach the cloud.
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9.:-]*$`
	LoadBalancerEndpoint string `json:"loadBalancerEndpoint,omitempty"`
	// Further names in the certificate of the services.
	// +nullable
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	CertSANs []string `json:"certSANs,omitempty"`

	DisableResourceManagement bool `json:"disableResourceManagement,omitempty"`
	DisableLocalVpc           bool `json:"disableLocalVpc,omitempty"`
	EnableCloudNet            bool `json:"enableCloudNet,omitempty"`
	EnableS3Gateway           bool `json:"enableS3Gateway,omitempty"`
	IPv6Cluster               bool `json:"ipv6Cluster,omitempty"`

	// Retain keeps databases and volumes when the cloud is deleted, Delete removes them.
	// +kubebuilder:validation:Enum="";Retain;Delete
	DeletionPolicy DeletionPolicy `json:"deletionPolicy,omitempty"`

	// +nullable
	Services []NamedService `json:"services,omitempty"`
	Minio    MinioSpec      `json:"minio,omitzero"`

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

	// Blocks of components that have no field of their own, by component name.
	// +nullable
	// +kubebuilder:validation:MaxProperties=100
	Components map[string]ComponentSpec `json:"components,omitempty"`
}
