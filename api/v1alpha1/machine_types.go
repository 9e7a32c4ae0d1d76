// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind and resource name of a machine.
const (
	MachineKind     = "OnecloudMachine"
	MachineResource = "onecloudmachines"
)

const (
	// LabelMachine on a Node holds the UID of its machine.
	LabelMachine = "onecloud.yunion.io/machine"
	// MachineFinalizer keeps a machine until it has left the cluster.
	MachineFinalizer = "onecloud.yunion.io/machine"
	// AnnotationAbandonMachine "true" on a machine that is being deleted skips the cleanup on it, because it no longer responds.
	AnnotationAbandonMachine = "onecloud.yunion.io/abandon-machine"
	// AnnotationRetry on a machine makes the operator retry whenever its value changes.
	AnnotationRetry = "onecloud.yunion.io/retry"
)

// Names from Cluster API.
const (
	// LabelClusterName on the Secret with bootstrap data holds the name of the cloud.
	LabelClusterName = "cluster.x-k8s.io/cluster-name"
	// AnnotationPausedByClusterAPI on a machine, with any value, prevents its join, like AnnotationPaused "true".
	AnnotationPausedByClusterAPI = "cluster.x-k8s.io/paused"
)

// Values of AnnotationOperation on a machine. When the request has ended, the operator replaces the value, for example with create-finished or
// create-failed.
const (
	// RequestCreating requests the join of a machine, immediately and even if it is paused.
	RequestCreating = "creating"
	// RequestChecking requests the checks of a machine.
	RequestChecking = "prechecking"
	// RequestDeleting requests the removal of a machine.
	RequestDeleting = "deleting"
)

// Keys of the Secret with the credentials of a machine. SecretKeyPrivate is the key of type kubernetes.io/ssh-auth.
const (
	SecretKeyPrivate      = "ssh-privatekey"
	SecretKeyPassphrase   = "passphrase"
	SecretKeyPassword     = "password"
	SecretKeySudoPassword = "sudo-password"
)

// Keys of the Secret with the bootstrap data of a machine. The first two are from Cluster API.
const (
	// BootstrapValue holds the user data for cloud-init, BootstrapFormat the word cloud-config.
	BootstrapValue  = "value"
	BootstrapFormat = "format"
	// BootstrapScript holds the shell script that the user data runs.
	BootstrapScript = "script"
)

// OnecloudMachine is a machine that joins the cluster of a cloud.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=onecloudmachines,scope=Namespaced,shortName=ocm
// +kubebuilder:printcolumn:name="Cloud",type=string,JSONPath=`.spec.cloud`
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=`.spec.infrastructure.ssh.address`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeRef.name`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Roles",type=string,JSONPath=`.spec.roles`,priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$')",message="metadata.name: a machine's name begins with a letter and has at most 40 lower-case letters, digits and dashes: its Node has the same name"
// +kubebuilder:validation:XValidation:rule=`!has(oldSelf.status) || !has(oldSelf.status.phase) || !(oldSelf.status.phase in ['Provisioning', 'Provisioned', 'Running', 'Deleting', 'Deleted']) || ((has(self.spec.roles) ? self.spec.roles : []) == (has(oldSelf.spec.roles) ? oldSelf.spec.roles : []) && has(self.spec.infrastructure.callback) == has(oldSelf.spec.infrastructure.callback) && has(self.spec.infrastructure.ssh) == has(oldSelf.spec.infrastructure.ssh) && (!has(self.spec.infrastructure.ssh) || self.spec.infrastructure.ssh.address == oldSelf.spec.infrastructure.ssh.address && self.spec.infrastructure.ssh.credentialsSecretName == oldSelf.spec.infrastructure.ssh.credentialsSecretName && (has(self.spec.infrastructure.ssh.user) ? self.spec.infrastructure.ssh.user : "") == (has(oldSelf.spec.infrastructure.ssh.user) ? oldSelf.spec.infrastructure.ssh.user : "") && (has(self.spec.infrastructure.ssh.port) ? self.spec.infrastructure.ssh.port : 22) == (has(oldSelf.spec.infrastructure.ssh.port) ? oldSelf.spec.infrastructure.ssh.port : 22) && (has(self.spec.infrastructure.ssh.jumpHost) && self.spec.infrastructure.ssh.jumpHost != null) == (has(oldSelf.spec.infrastructure.ssh.jumpHost) && oldSelf.spec.infrastructure.ssh.jumpHost != null) && (!(has(self.spec.infrastructure.ssh.jumpHost) && self.spec.infrastructure.ssh.jumpHost != null) || self.spec.infrastructure.ssh.jumpHost.address == oldSelf.spec.infrastructure.ssh.jumpHost.address && self.spec.infrastructure.ssh.jumpHost.credentialsSecretName == oldSelf.spec.infrastructure.ssh.jumpHost.credentialsSecretName && (has(self.spec.infrastructure.ssh.jumpHost.user) ? self.spec.infrastructure.ssh.jumpHost.user : "") == (has(oldSelf.spec.infrastructure.ssh.jumpHost.user) ? oldSelf.spec.infrastructure.ssh.jumpHost.user : "") && (has(self.spec.infrastructure.ssh.jumpHost.port) ? self.spec.infrastructure.ssh.jumpHost.port : 22) == (has(oldSelf.spec.infrastructure.ssh.jumpHost.port) ? oldSelf.spec.infrastructure.ssh.jumpHost.port : 22))))`,message="spec: roles and infrastructure of a machine that joins or has joined cannot change, apart from hostKey: remove the machine and add it again"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.nodeRef) || !has(oldSelf.spec.providerID) || has(self.spec.providerID) && self.spec.providerID == oldSelf.spec.providerID",message="spec.providerID: the ID of a machine that has a Node cannot change: remove the machine and add it again"
type OnecloudMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   OnecloudMachineSpec   `json:"spec"`
	Status OnecloudMachineStatus `json:"status,omitzero"`
}

// OnecloudMachineList is a list of machines.
//
// +kubebuilder:object:root=true
type OnecloudMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []OnecloudMachine `json:"items"`
}

// MachineRole is a role of a machine in the cloud.
//
// +kubebuilder:validation:Enum=compute;controller;controlplane;baremetal;lbagent
type MachineRole string

// The roles. A machine without one is a plain node.
const (
	// RoleCompute runs virtual machines.
	RoleCompute MachineRole = "compute"
	// RoleController runs the services of the cloud.
	RoleController MachineRole = "controller"
	// RoleBaremetal runs the bare metal agent.
	RoleBaremetal MachineRole = "baremetal"
	// RoleLBAgent runs the load balancer agent.
	RoleLBAgent MachineRole = "lbagent"
	// RoleControlPlane is an additional control-plane node of Kubernetes. It also runs the services of the cloud.
	RoleControlPlane MachineRole = "controlplane"
)

// OnecloudMachineSpec holds the desired state of a machine.
type OnecloudMachineSpec struct {
	// Name of the cloud, in the namespace of the machine. It cannot change.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a machine cannot move to another cloud: remove it and add it again"
	Cloud string `json:"cloud"`
	// Roles of the machine in the cloud. They cannot change once the machine starts to join.
	// +listType=set
	// +kubebuilder:validation:MaxItems=5
	Roles []MachineRole `json:"roles,omitempty"`
	// Additional labels of the Node.
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`
	// Taints of the Node.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Taints []MachineTaint `json:"taints,omitempty"`
	// Networks for virtual machines, each NIC/BRIDGE/ADDRESS, as in ocadm join --host-networks.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=128
	HostNetworks []string `json:"hostNetworks,omitempty"`
	// Settings of ocadm join for the machine. spec.machines.settings of the cloud provides the defaults.
	Settings MachineSettings `json:"settings,omitzero"`
	// Location of the bootstrap data.
	Bootstrap MachineBootstrap `json:"bootstrap,omitzero"`
	// How to reach the machine.
	// +required
	Infrastructure MachineInfrastructure `json:"infrastructure"`
	// Provider ID of the Node; ocadm://NAMESPACE/NAME by default. It cannot change once the Node has it.
	// +kubebuilder:validation:MaxLength=253
	ProviderID string `json:"providerID,omitempty"`
}

// MachineTaint describes a taint of a Node.
type MachineTaint struct {
	// Key of the taint.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`
	// Value of the taint.
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`
	// Effect on pods that do not tolerate the taint.
	// +required
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect"`
}

// MachineSettings holds the settings of a node, as under node in the configuration of ocadm join. The machine chooses the defaults of empty fields.
type MachineSettings struct {
	// Address of the node for the kubelet and the cloud, as with --node-ip.
	// +kubebuilder:validation:MaxLength=45
	IP string `json:"ip,omitempty"`
	// Use only images from the depot, as with --offline.
	// +nullable
	Offline *bool `json:"offline,omitempty"`
	// Mirror of the projects' release pages, as with --mirror.
	// +kubebuilder:validation:MaxLength=253
	Mirror string `json:"mirror,omitempty"`
	// Registry mirrors, each REGISTRY=URL, as with --registry-mirror.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^[^=]+=https?://[^@]+$`
	RegistryMirrors []string `json:"registryMirrors,omitempty"`
	// HTTP proxy of ocadm and containerd, as with --http-proxy. Set a proxy with a password in the environment of the machine instead.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^@]*$`
	HTTPProxy string `json:"httpProxy,omitempty"`
	// HTTPS proxy, as with --https-proxy.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^@]*$`
	HTTPSProxy string `json:"httpsProxy,omitempty"`
	// Addresses, networks and domains to reach without a proxy, as with --no-proxy.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	NoProxy []string `json:"noProxy,omitempty"`
	// Directories for the disks of virtual machines, as with --host-local-image-path.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	HostLocalImagePath []string `json:"hostLocalImagePath,omitempty"`
	// Huge pages for virtual machines.
	// +kubebuilder:validation:Enum="";transparent;disable;native
	Hugepages string `json:"hugepages,omitempty"`
	// Allow the kubelet to run on cgroup v1.
	// +nullable
	AllowCgroupV1 *bool `json:"allowCgroupV1,omitempty"`
	// Maximum number of tracked connections per core; 0 keeps the kernel's value.
	// +nullable
	// +kubebuilder:validation:Minimum=0
	ConntrackMaxPerCore *int32 `json:"conntrackMaxPerCore,omitempty"`
}

// MachineBootstrap locates the bootstrap data of a machine.
type MachineBootstrap struct {
	// Name of the Secret for the bootstrap data; NAME-bootstrap by default.
	// +kubebuilder:validation:MaxLength=253
	DataSecretName string `json:"dataSecretName,omitempty"`
}

// MachineInfrastructure describes how to reach a machine.
//
// +kubebuilder:validation:XValidation:rule="has(self.ssh) != has(self.callback)",message="give either ssh or callback"
type MachineInfrastructure struct {
	// SSH access, with which the operator logs in to the machine.
	SSH MachineSSH `json:"ssh,omitzero"`
	// The machine boots with its bootstrap data and calls in. Nothing logs in to it.
	// +nullable
	Callback *MachineCallback `json:"callback,omitempty"`
}

// MachineCallback describes a machine that calls in.
type MachineCallback struct{}

// MachineSSH describes how to log in to a machine.
type MachineSSH struct {
	MachineLogin `json:",inline"`
	// Jump host for the connection.
	// +nullable
	JumpHost *MachineLogin `json:"jumpHost,omitempty"`
}

// MachineLogin describes an SSH server and a user on it.
type MachineLogin struct {
	// Name or IP address.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?$`
	Address string `json:"address"`
	// Port; 22 by default.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// User; root by default. Other users need sudo.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.@-]*$`
	User string `json:"user,omitempty"`
	// Secret with ssh-privatekey (and passphrase) or password, and with sudo-password if sudo requires a different password.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	CredentialsSecretName string `json:"credentialsSecretName"`
	// Host key that the machine must present: TYPE BASE64, or the fingerprint SHA256:BASE64. When empty, the key of the first contact is pinned.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(SHA256:[A-Za-z0-9+/]{43}|[a-z0-9@.-]+ [A-Za-z0-9+/=]+( .*)?)$`
	HostKey string `json:"hostKey,omitempty"`
}

// ControlPlane reports whether the machine has the control-plane role.
func (m *OnecloudMachine) ControlPlane() bool { return slices.Contains(m.Spec.Roles, RoleControlPlane) }

// CallsIn reports whether the machine calls in instead of being reached over SSH.
func (m *OnecloudMachine) CallsIn() bool { return m.Spec.Infrastructure.Callback != nil }

// CallIn returns the name of the ConfigMap in which a machine that calls in reports the progress of its join.
func (m *OnecloudMachine) CallIn() string { return m.Name + "-call-in" }

// NodeProviderID returns the provider ID for the Node of the machine.
func (m *OnecloudMachine) NodeProviderID() string {
	if m.Spec.ProviderID != "" {
		return m.Spec.ProviderID
	}
	return "ocadm://" + m.Namespace + "/" + m.Name
}

// BootstrapSecret returns the name of the Secret with the machine's bootstrap data.
func (m *OnecloudMachine) BootstrapSecret() string {
	if m.Spec.Bootstrap.DataSecretName != "" {
		return m.Spec.Bootstrap.DataSecretName
	}
	return m.Name + "-bootstrap"
}
