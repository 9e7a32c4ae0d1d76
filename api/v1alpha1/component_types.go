// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
)

// ContainerSpec holds the image and the resources of a container.
type ContainerSpec struct {
	// Complete image reference. Set it to pin the image; otherwise it shows the current image.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^\S*$`
	Image string `json:"image,omitempty"`
	// Registry and path of the image; replaces spec.imageRepository.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^([^\s:]|:[^/:\s])*$`
	Repository string `json:"repository,omitempty"`
	// Name of the image; the name of the component by default.
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[a-z0-9]*([._/-]+[a-z0-9]+)*$`
	ImageName string `json:"imageName,omitempty"`
	// Tag, or a digest sha256:...; replaces spec.version.
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^(\w[\w.-]*)?$|^@?sha256:[a-f\d]{64}$`
	Tag string `json:"tag,omitempty"`
	// Pull policy; by default Always for moving tags such as latest, and IfNotPresent for others.
	// +kubebuilder:validation:Enum="";Always;IfNotPresent;Never
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// Resource requests; requests.storage is the size of the volume.
	// +nullable
	Requests *ResourceList `json:"requests,omitempty"`
	// Resource limits; none by default.
	// +nullable
	Limits *ResourceList `json:"limits,omitempty"`
}

// ResourceList holds amounts of resources.
type ResourceList struct {
	// CPU, for example 500m.
	// +nullable
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^\d+(\.\d+)?([numkMGTPE]|[KMGTPE]i|e\d{1,2})?$`
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// Memory, for example 256Mi.
	// +nullable
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^\d+(\.\d+)?([numkMGTPE]|[KMGTPE]i|e\d{1,2})?$`
	Memory *resource.Quantity `json:"memory,omitempty"`
	// Size of the volume, for example 100Gi; only in requests.
	// +kubebuilder:validation:Pattern=`^(\d+(\.\d+)?([EPTGMk]i?|Ki|m)?)?$`
	Storage string `json:"storage,omitempty"`
}

// ServiceSpec configures how a port of a component is published.
type ServiceSpec struct {
	// Publish the port in the cluster only, not on the nodes.
	InternalOnly bool `json:"internalOnly,omitempty"`
	// Port of the Service, of the nodes and of the listener.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	NodePort int32 `json:"nodePort,omitempty"`
}

// ComponentSpec configures one component. Condition FieldsIgnored reports fields that do not apply to it.
type ComponentSpec struct {
	ContainerSpec `json:",inline"`

	// Stop the component. Its database, account and volume are kept.
	// +nullable
	Disable *bool `json:"disable,omitempty"`
	// Number of pods of a Deployment or StatefulSet; 1 by default. 0 means 1 too; to stop a component, set disable.
	// +nullable
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Replicas *int32 `json:"replicas,omitempty"`
	// Number of read-only replicas; only for keystone, regionServer and glance.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	SlaveReplicas int32 `json:"slave_replicas,omitempty"`
	// Affinity of the pods. A node affinity replaces the default one for controller nodes.
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	Affinity *runtime.RawExtension `json:"affinity,omitempty"`
	// Node selector of the pods.
	// +nullable
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Tolerations of the pods.
	// +nullable
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// Annotations of the pods.
	// +nullable
	Annotations map[string]string `json:"annotations,omitempty"`
	// Secrets with registry credentials, in the namespace of the cloud.
	// +nullable
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`
	// DNS settings of the pods, as in a pod.
	// +nullable
	// +kubebuilder:pruning:PreserveUnknownFields
	DNSConfig *runtime.RawExtension `json:"dnsConfig,omitempty"`

	// Port of the component.
	Service ServiceSpec `json:"service,omitzero"`
	// Only mysql is accepted.
	// +kubebuilder:validation:Enum="";mysql
	DBEngine string `json:"db_engine,omitempty"`
	// Storage class of the volume; spec.storageClassName by default. Another class creates a new volume.
	StorageClassName string `json:"storageClassName,omitempty"`
	// Zones of spec.customZones in which the component runs a separate copy; only for baremetalagent and esxiagent.
	// +nullable
	Zones []string `json:"zones,omitempty"`

	// Update strategy of a DaemonSet.
	// +kubebuilder:validation:Enum="";RollingUpdate;OnDelete
	UpdateStrategy string `json:"updateStrategy,omitempty"`
	// Number of pods of a DaemonSet that may be replaced at a time; 1 by default.
	// +nullable
	// +kubebuilder:validation:Minimum=0
	MaxUnavailable *int32 `json:"maxUnavailable,omitempty"`
	// The same as maxUnavailable.
	// +nullable
	// +kubebuilder:validation:Minimum=0
	MaxUnavailableCount *int32 `json:"maxUnavailableCount,omitempty"`
	// Schedule of a CronJob: minute, hour, day, month, weekday.
	// +kubebuilder:validation:MaxLength=100
	Schedule string `json:"schedule,omitempty"`
}

// KeystoneSpec configures the identity service.
type KeystoneSpec struct {
	ComponentSpec `json:",inline"`

	// Ignored; the identity service always uses TLS.
	DisableTLS bool `json:"disableTLS,omitempty"`
	// Public port; 30500 by default.
	PublicService ServiceSpec `json:"publicService,omitzero"`
	// Administration port; 30357 by default.
	AdminService ServiceSpec `json:"adminService,omitzero"`
	// Password of sysadmin, in plain text. By default the operator generates one in Secret CLOUD-credentials.
	// +kubebuilder:validation:MaxLength=256
	BootstrapPassword string `json:"bootstrapPassword,omitempty"`
}

// RegionSpec configures the compute service.
type RegionSpec struct {
	ComponentSpec `json:",inline"`

	// Name servers of virtual machines, separated by commas; spec.loadBalancerEndpoint by default.
	// +kubebuilder:validation:MaxLength=255
	DNSServer string `json:"dnsServer,omitempty"`
	// DNS domain of virtual machines.
	// +kubebuilder:validation:MaxLength=253
	DNSDomain string `json:"dnsDomain,omitempty"`
}

// RegionDNSSpec configures the name server of the cloud.
type RegionDNSSpec struct {
	ComponentSpec `json:",inline"`

	// Cache lifetime of answers, in seconds; 300 by default.
	// +kubebuilder:validation:Minimum=0
	CacheTTL int32 `json:"cache_ttl,omitempty"`
	// Name servers for names outside the cloud; 114.114.114.114 and 223.5.5.5 by default.
	// +nullable
	// +kubebuilder:validation:MaxItems=64
	Proxies []DNSProxy `json:"proxies,omitempty"`
	// Answer only queries from machines of the cloud.
	InCloudOnly bool `json:"in_cloud_only,omitempty"`
}

// DNSProxy forwards queries for one domain.
type DNSProxy struct {
	// Domain whose names are forwarded.
	// +kubebuilder:validation:MaxLength=253
	From string `json:"from,omitempty"`
	// Addresses of the name servers.
	// +nullable
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=253
	To []string `json:"to,omitempty"`
}

// GlanceSpec configures the image service.
type GlanceSpec struct {
	ComponentSpec `json:",inline"`

	// Store the images in the object store of spec.minio.
	SwitchToS3 bool `json:"switchToS3,omitempty"`
}

// WebSpec configures the web console.
type WebSpec struct {
	ComponentSpec `json:",inline"`

	// Serve plain HTTP on port 80, behind a proxy that terminates TLS.
	UseHTTP bool `json:"useHTTP,omitempty"`
	// Listen on ports 80 and 443 of the nodes that run the console. ocadm init --ingress none sets it.
	HostPorts bool `json:"hostPorts,omitempty"`
	// Container with the overview pages.
	Overview ContainerSpec `json:"Overview,omitzero"`
	// Container with the documentation.
	Docs ContainerSpec `json:"Docs,omitzero"`
}

// WebconsoleSpec configures the service for remote consoles.
type WebconsoleSpec struct {
	ComponentSpec `json:",inline"`

	// Container of the RDP and VNC proxy.
	Guacd ContainerSpec `json:"Guacd,omitzero"`
}

// NotifySpec configures the notification service.
type NotifySpec struct {
	ComponentSpec `json:",inline"`

	// Ignored.
	Plugins ContainerSpec `json:"plugins,omitzero"`
}

// CloudmonSpec configures the collector of public cloud metrics.
type CloudmonSpec struct {
	ComponentSpec `json:",inline"`

	// Ignored.
	// +kubebuilder:validation:Minimum=0
	CloudmonPingDuration int64 `json:"CloudmonPingDuration,omitempty"`
}

// HostAgentSpec configures the agents of compute nodes.
type HostAgentSpec struct {
	ComponentSpec `json:",inline"`

	// Component host-sdnagent.
	SdnAgent ContainerSpec `json:"SdnAgent,omitzero"`
	// Components host-ovsdb-server, host-ovs-vswitchd and host-ovn-controller.
	OvnController ContainerSpec `json:"OvnController,omitzero"`
	// Component host-health.
	HostHealth ContainerSpec `json:"HostHealth,omitzero"`
	// How a node finds the address of its OVN tunnels, for example can-reach:192.0.2.1.
	OvnEncapIPDetectionMethod string `json:"OvnEncapIpDetectionMethod,omitempty"`
	// Do not apply security groups to virtual machines.
	DisableSecurityGroup bool `json:"disableSecurityGroup,omitempty"`
	// Let the host agent configure NTP on the node.
	ManageNtpConfiguration bool `json:"manageNtpConfiguration,omitempty"`
	// Pass the CPU model of the node through to virtual machines; true by default.
	// +nullable
	HostCPUPassthrough *bool `json:"hostCpuPassthrough,omitempty"`
	// Version of QEMU that the agents use; 10.0.7 by default, 4.2.0 before v4.0.0.
	// +kubebuilder:validation:MaxLength=32
	DefaultQemuVersion string `json:"defaultQemuVersion,omitempty"`
}

// OvnNorthSpec configures the OVN databases and ovn-northd.
type OvnNorthSpec struct {
	ComponentSpec `json:",inline"`

	// Port of the northbound database; 32241 by default.
	NorthService ServiceSpec `json:"northService,omitzero"`
	// Port of the southbound database; 32242 by default.
	SouthService ServiceSpec `json:"southService,omitzero"`
}

// LbagentSpec configures the load balancer agent.
type LbagentSpec struct {
	ComponentSpec `json:",inline"`

	// Ignored; spec.hostagent.OvnController applies.
	OvnController ContainerSpec `json:"OvnController,omitzero"`
}

// TelegrafSpec configures the collector of node metrics.
type TelegrafSpec struct {
	ComponentSpec `json:",inline"`

	// Ignored.
	InitContainerImage string `json:"initContainerImage,omitempty"`
	// Run the container that reads RAID controllers.
	EnableRaidPlugin bool `json:"enableRaidPlugin,omitempty"`
	// Directory of the node with the configuration of telegraf; /etc/telegraf by default.
	// +kubebuilder:validation:MaxLength=255
	TelegrafConfigDir string `json:"telegrafConfigDir,omitempty"`
	// Container that reads RAID controllers.
	TelegrafRaid ContainerSpec `json:"TelegrafRaid,omitzero"`
}

// VictoriaMetricsSpec configures the metrics store.
type VictoriaMetricsSpec struct {
	ComponentSpec `json:",inline"`

	// Retention of metrics, in days; 93 by default. The key is misspelled because existing files use it.
	// +kubebuilder:validation:Minimum=0
	RetentionPeriodDays int32 `json:"rententionPeriodDays,omitempty"`
}

// APIGatewaySpec configures the API gateway of the web console.
type APIGatewaySpec struct {
	ComponentSpec `json:",inline"`

	// API port; 30300 by default.
	APIService ServiceSpec `json:"apiService,omitzero"`
	// WebSocket port; 30443 by default.
	WSService ServiceSpec `json:"wsService,omitzero"`
	// Hosts whose pages may call the API from a browser (CORS).
	// +nullable
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=253
	CorsHosts []string `json:"corsHosts,omitempty"`
}

// BackupSpec configures the nightly backup of the cloud.
type BackupSpec struct {
	ComponentSpec `json:",inline"`

	// Number of backups to keep; 7 by default, 0 keeps all.
	// +nullable
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Keep *int32 `json:"keep,omitempty"`
	// Public keys to encrypt backups for: age1… as printed by age-keygen, or ssh-ed25519 and ssh-rsa keys. Without keys, backups are not encrypted.
	// +nullable
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=2000
	Recipients []string `json:"recipients,omitempty"`
	// Object store bucket for the backups, instead of a volume.
	// +nullable
	S3 *BackupS3 `json:"s3,omitempty"`
	// Directory on the node for the backups, instead of a volume.
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^(/.*)?$`
	HostPath string `json:"hostPath,omitempty"`
}

// BackupS3 names a bucket of an S3-compatible object store.
type BackupS3 struct {
	// Host, or host:port, of the object store.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Endpoint string `json:"endpoint"`
	// Name of the bucket, which must exist.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Bucket string `json:"bucket"`
	// Path of the backups in the bucket.
	// +kubebuilder:validation:MaxLength=1024
	Prefix string `json:"prefix,omitempty"`
	// Region of the bucket, if the object store has regions.
	// +kubebuilder:validation:MaxLength=64
	Region string `json:"region,omitempty"`
	// Use HTTP instead of HTTPS.
	Plain bool `json:"plain,omitempty"`
	// PEM-encoded CA certificates to trust in addition to the system's.
	// +kubebuilder:validation:MaxLength=65536
	CA string `json:"ca,omitempty"`
	// Secret in the namespace of the cloud with the keys access-key and secret-key.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Secret string `json:"secret"`
}

// Keys of the Secret with the credentials of an object store.
const (
	BackupAccessKey = "access-key"
	BackupSecretKey = "secret-key"
)
