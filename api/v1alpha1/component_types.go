// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// ContainerSpec says which image a container runs.
type ContainerSpec struct {
	// A complete image reference. Set by a person it is kept; otherwise it shows what runs.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^\S*$`
	Image string `json:"image,omitempty"`
	// Registry and path in front of the image name, instead of spec.imageRepository.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^([^\s:]|:[^/:\s])*$`
	Repository string `json:"repository,omitempty"`
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[a-z0-9]*([._/-]+[a-z0-9]+)*$`
	ImageName string `json:"imageName,omitempty"`
	// A tag, or sha256:..., instead of spec.version.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^([A-Za-z0-9_][A-Za-z0-9_.-]*)?$|^@?sha256:[a-f0-9]{64}$`
	Tag string `json:"tag,omitempty"`
	// +kubebuilder:validation:Enum="";Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// +nullable
	Requests *ResourceList `json:"requests,omitempty"`
	// +nullable
	Limits *ResourceList `json:"limits,omitempty"`
}

// ResourceList is what a container asks for; storage is the size of the component's volume.
type ResourceList struct {
	// +nullable
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|e[0-9]+)?$`
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// +nullable
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[0-9]+(\.[0-9]+)?([numkMGTPE]|[KMGTPE]i|e[0-9]+)?$`
	Memory *resource.Quantity `json:"memory,omitempty"`
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?([EPTGMk]i?|Ki|m)?)?$`
	Storage string `json:"storage,omitempty"`
}

// ServiceSpec says how a component's port is published.
type ServiceSpec struct {
	// ClusterIP instead of NodePort.
	InternalOnly bool `json:"internalOnly,omitempty"`
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	NodePort int32 `json:"nodePort,omitempty"`
}

// ComponentSpec is the block of one component. Not every field means something for every kind of component.
type ComponentSpec struct {
	ContainerSpec `json:",inline"`

	// Stop the component and release its workload; its data stays.
	// +nullable
	Disable *bool `json:"disable,omitempty"`
	// 0 and absent mean one; to stop a component set disable.
	// +nullable
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Replicas *int32 `json:"replicas,omitempty"`
	// Read-only twins, for the components that have them.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	SlaveReplicas int32 `json:"slave_replicas,omitempty"`
	// As in a pod.
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	Affinity *runtime.RawExtension `json:"affinity,omitempty"`
	// +nullable
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// +nullable
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Annotations of the pods.
	// +nullable
	Annotations map[string]string `json:"annotations,omitempty"`
	// +nullable
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// As in a pod.
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	DNSConfig *runtime.RawExtension `json:"dnsConfig,omitempty"`

	Service ServiceSpec `json:"service,omitzero"`
	// +kubebuilder:validation:Enum="";mysql
	DBEngine         string `json:"db_engine,omitempty"`
	StorageClassName string `json:"storageClassName,omitempty"`
	// Zones that get a copy of their own, out of spec.customZones.
	// +nullable
	Zones []string `json:"zones,omitempty"`

	// Of a DaemonSet.
	// +kubebuilder:validation:Enum="";RollingUpdate;OnDelete
	UpdateStrategy string `json:"updateStrategy,omitempty"`
	// +nullable
	// +kubebuilder:validation:Minimum=0
	MaxUnavailable *int32 `json:"maxUnavailable,omitempty"`
	// +nullable
	// +kubebuilder:validation:Minimum=0
	MaxUnavailableCount *int32 `json:"maxUnavailableCount,omitempty"`
	// Of a CronJob: minute hour day month weekday.
	// +kubebuilder:validation:MaxLength=100
	Schedule string `json:"schedule,omitempty"`
}

// KeystoneSpec is the identity service.
type KeystoneSpec struct {
	ComponentSpec `json:",inline"`

	DisableTLS    bool        `json:"disableTLS,omitempty"`
	PublicService ServiceSpec `json:"publicService,omitzero"`
	AdminService  ServiceSpec `json:"adminService,omitzero"`
	// The password of sysadmin. Left out it is generated into Secret <cloud>-credentials.
	// +kubebuilder:validation:MaxLength=256
	BootstrapPassword string `json:"bootstrapPassword,omitempty"`
}

// RegionSpec is the compute service.
type RegionSpec struct {
	ComponentSpec `json:",inline"`

	// +kubebuilder:validation:MaxLength=255
	DNSServer string `json:"dnsServer,omitempty"`
	// +kubebuilder:validation:MaxLength=253
	DNSDomain string `json:"dnsDomain,omitempty"`
}

// RegionDNSSpec is the name server of the cloud.
type RegionDNSSpec struct {
	ComponentSpec `json:",inline"`

	// +kubebuilder:validation:Minimum=0
	CacheTTL int32 `json:"cache_ttl,omitempty"`
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	Proxies     []DNSProxy `json:"proxies,omitempty"`
	InCloudOnly bool       `json:"in_cloud_only,omitempty"`
}

// DNSProxy forwards the names below From.
type DNSProxy struct {
	// +kubebuilder:validation:MaxLength=253
	From string `json:"from,omitempty"`
	// +nullable
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	To []string `json:"to,omitempty"`
}

// GlanceSpec is the image service.
type GlanceSpec struct {
	ComponentSpec `json:",inline"`

	SwitchToS3 bool `json:"switchToS3,omitempty"`
}

// WebSpec is the web console.
type WebSpec struct {
	ComponentSpec `json:",inline"`

	UseHTTP bool `json:"useHTTP,omitempty"`
	// Answer on ports 80 and 443 of the nodes that run the console.
	HostPorts bool          `json:"hostPorts,omitempty"`
	Overview  ContainerSpec `json:"Overview,omitzero"`
	Docs      ContainerSpec `json:"Docs,omitzero"`
}

// WebconsoleSpec serves remote consoles.
type WebconsoleSpec struct {
	ComponentSpec `json:",inline"`

	Guacd ContainerSpec `json:"Guacd,omitzero"`
}

// NotifySpec sends messages.
type NotifySpec struct {
	ComponentSpec `json:",inline"`

	Plugins ContainerSpec `json:"plugins,omitzero"`
}

// CloudmonSpec pulls metrics of public clouds.
type CloudmonSpec struct {
	ComponentSpec `json:",inline"`

	// +kubebuilder:validation:Minimum=0
	CloudmonPingDuration int64 `json:"CloudmonPingDuration,omitempty"`
}

// HostAgentSpec is shared by the agents of a compute node.
type HostAgentSpec struct {
	ComponentSpec `json:",inline"`

	SdnAgent                  ContainerSpec `json:"SdnAgent,omitzero"`
	OvnController             ContainerSpec `json:"OvnController,omitzero"`
	HostHealth                ContainerSpec `json:"HostHealth,omitzero"`
	OvnEncapIPDetectionMethod string        `json:"OvnEncapIpDetectionMethod,omitempty"`
	DisableSecurityGroup      bool          `json:"disableSecurityGroup,omitempty"`
	ManageNtpConfiguration    bool          `json:"manageNtpConfiguration,omitempty"`
	// +nullable
	HostCPUPassthrough *bool `json:"hostCpuPassthrough,omitempty"`
	// +kubebuilder:validation:MaxLength=32
	DefaultQemuVersion string `json:"defaultQemuVersion,omitempty"`
}

// OvnNorthSpec holds the networks of servers, as a whole.
type OvnNorthSpec struct {
	ComponentSpec `json:",inline"`

	// The ports of its two databases, 32241 and 32242 by default.
	NorthService ServiceSpec `json:"northService,omitzero"`
	SouthService ServiceSpec `json:"southService,omitzero"`
}

// LbagentSpec is the load balancer agent.
type LbagentSpec struct {
	ComponentSpec `json:",inline"`

	OvnController ContainerSpec `json:"OvnController,omitzero"`
}

// TelegrafSpec collects metrics of nodes.
type TelegrafSpec struct {
	ComponentSpec `json:",inline"`

	InitContainerImage string `json:"initContainerImage,omitempty"`
	EnableRaidPlugin   bool   `json:"enableRaidPlugin,omitempty"`
	// +kubebuilder:validation:MaxLength=255
	TelegrafConfigDir string        `json:"telegrafConfigDir,omitempty"`
	TelegrafRaid      ContainerSpec `json:"TelegrafRaid,omitzero"`
}

// VictoriaMetricsSpec stores metrics.
type VictoriaMetricsSpec struct {
	ComponentSpec `json:",inline"`

	// The name is misspelt for the sake of existing YAML.
	// +kubebuilder:validation:Minimum=0
	RetentionPeriodDays int32 `json:"rententionPeriodDays,omitempty"`
}

// APIGatewaySpec is the entrance of the API.
type APIGatewaySpec struct {
	ComponentSpec `json:",inline"`

	APIService ServiceSpec `json:"apiService,omitzero"`
	WSService  ServiceSpec `json:"wsService,omitzero"`
	// +nullable
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	CorsHosts []string `json:"corsHosts,omitempty"`
}

// BackupSpec is the nightly dump of the cloud's databases.
type BackupSpec struct {
	ComponentSpec `json:",inline"`

	// How many dumps are kept; 7 when absent.
	// +nullable
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000
	Keep *int32 `json:"keep,omitempty"`
}
