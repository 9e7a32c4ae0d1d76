// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the resource of a machine.
const (
	MachineKind     = "OnecloudMachine"
	MachineResource = "onecloudmachines"
)

const (
	// LabelMachine on a Node holds the UID of the machine that it is.
	LabelMachine = "onecloud.yunion.io/machine"
	// MachineFinalizer keeps a machine until it is out of the cluster.
	MachineFinalizer = "onecloud.yunion.io/machine"
	// AnnotationAbandonMachine "true" on a machine that is being deleted leaves what is on it as it is: it does not answer any more.
	AnnotationAbandonMachine = "onecloud.yunion.io/abandon-machine"
	// AnnotationRetry on a machine lets the operator try again what failed, each time that its value changes.
	AnnotationRetry = "onecloud.yunion.io/retry"
)

// Names of Cluster API.
const (
	// LabelClusterName on the Secret with bootstrap data holds the name of the cloud.
	LabelClusterName = "cluster.x-k8s.io/cluster-name"
	// AnnotationPausedByClusterAPI on a machine, with any value, keeps it from joining, as AnnotationPaused "true" does.
	AnnotationPausedByClusterAPI = "cluster.x-k8s.io/paused"
)

// What annotation AnnotationOperation on a machine may ask for. The operator writes the word with -finished or -failed in its place when that has ended.
const (
	// RequestCreating asks for the join of a machine, at once and although it is paused.
	RequestCreating = "creating"
	// RequestChecking asks for the checks of a machine.
	RequestChecking = "prechecking"
	// RequestDeleting asks for the removal of a machine.
	RequestDeleting = "deleting"
)

// Keys of the Secret with the credentials of a machine. SecretKeyPrivate is that of type kubernetes.io/ssh-auth.
const (
	SecretKeyPrivate      = "ssh-privatekey"
	SecretKeyPassphrase   = "passphrase"
	SecretKeyPassword     = "password"
	SecretKeySudoPassword = "sudo-password"
)

// Keys of the Secret with the bootstrap data of a machine. The first two are those of Cluster API.
const (
	// BootstrapValue holds user data for cloud-init, BootstrapFormat the word cloud-config.
	BootstrapValue  = "value"
	BootstrapFormat = "format"
	// BootstrapScript holds the script of sh that the user data runs.
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

// MachineRole is what a machine does for the cloud.
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
	// RoleLBAgent runs the agent of load balancers.
	RoleLBAgent MachineRole = "lbagent"
	// RoleControlPlane is a further control-plane node of Kubernetes. It runs the services of the cloud, too.
	RoleControlPlane MachineRole = "controlplane"
)

// OnecloudMachineSpec is what a machine is to be.
type OnecloudMachineSpec struct {
	// Name of the cloud, in the namespace of the machine. It cannot change.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a machine cannot move to another cloud: remove it and add it again"
	Cloud string `json:"cloud"`
	// What the machine does for the cloud; nothing when empty. It cannot change once the machine joins.
	// +listType=set
	// +kubebuilder:validation:MaxItems=5
	Roles []MachineRole `json:"roles,omitempty"`
	// Additional labels of its Node.
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`
	// Taints of its Node.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Taints []MachineTaint `json:"taints,omitempty"`
	// Networks of virtual machines, NIC/BRIDGE/ADDRESS each, as in --host-networks of ocadm join.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=128
	HostNetworks []string `json:"hostNetworks,omitempty"`
	// Settings of ocadm join on the machine. What is absent comes from spec.machines.settings of the cloud.
	Settings MachineSettings `json:"settings,omitzero"`
	// Where the data are with which the machine joins.
	Bootstrap MachineBootstrap `json:"bootstrap,omitzero"`
	// How the machine is reached.
	// +required
	Infrastructure MachineInfrastructure `json:"infrastructure"`
	// ID that its Node gets. The operator writes ocadm://NAMESPACE/NAME when it is empty. It cannot change once the Node has it.
	// +kubebuilder:validation:MaxLength=253
	ProviderID string `json:"providerID,omitempty"`
}

// MachineTaint is a taint of a Node.
type MachineTaint struct {
	// Key of the taint.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Key string `json:"key"`
	// Value of the taint.
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value,omitempty"`
	// What becomes of pods that do not tolerate it.
	// +required
	// +kubebuilder:validation:Enum=NoSchedule;PreferNoSchedule;NoExecute
	Effect corev1.TaintEffect `json:"effect"`
}

// MachineSettings are settings of a node, as ocadm join has them under node. What is empty is decided on the machine.
type MachineSettings struct {
	// Address of the node for the kubelet and the cloud, as --node-ip.
	// +kubebuilder:validation:MaxLength=45
	IP string `json:"ip,omitempty"`
	// Images come from the depot alone, as with --offline.
	// +nullable
	Offline *bool `json:"offline,omitempty"`
	// Mirror of the projects' release pages, as --mirror.
	// +kubebuilder:validation:MaxLength=253
	Mirror string `json:"mirror,omitempty"`
	// Servers that are asked for images before their registry, REGISTRY=URL each, as --registry-mirror.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:Pattern=`^[^=]+=https?://[^@]+$`
	RegistryMirrors []string `json:"registryMirrors,omitempty"`
	// Proxy for http of ocadm and containerd, as --http-proxy. One with a password belongs in the environment of the machine.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^@]*$`
	HTTPProxy string `json:"httpProxy,omitempty"`
	// Proxy for https, as --https-proxy.
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:Pattern=`^[^@]*$`
	HTTPSProxy string `json:"httpsProxy,omitempty"`
	// Addresses, networks and domains that need no proxy, as --no-proxy.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	NoProxy []string `json:"noProxy,omitempty"`
	// Directories for the disks of virtual machines, as --host-local-image-path.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=512
	HostLocalImagePath []string `json:"hostLocalImagePath,omitempty"`
	// Huge pages for virtual machines.
	// +kubebuilder:validation:Enum="";transparent;disable;native
	Hugepages string `json:"hugepages,omitempty"`
	// Let the kubelet run on cgroup v1.
	// +nullable
	AllowCgroupV1 *bool `json:"allowCgroupV1,omitempty"`
	// Tracked connections per core; 0 keeps the kernel's value.
	// +nullable
	// +kubebuilder:validation:Minimum=0
	ConntrackMaxPerCore *int32 `json:"conntrackMaxPerCore,omitempty"`
}

// MachineBootstrap is where the data are with which a machine joins.
type MachineBootstrap struct {
	// Name of the Secret that the operator writes them to; NAME-bootstrap when empty.
	// +kubebuilder:validation:MaxLength=253
	DataSecretName string `json:"dataSecretName,omitempty"`
}

// MachineInfrastructure is how a machine is reached.
//
// +kubebuilder:validation:XValidation:rule="has(self.ssh) != has(self.callback)",message="give either ssh or callback"
type MachineInfrastructure struct {
	// The operator logs in to the machine.
	SSH MachineSSH `json:"ssh,omitzero"`
	// The machine boots by itself with its bootstrap data and calls in. Nothing logs in to it.
	// +nullable
	Callback *MachineCallback `json:"callback,omitempty"`
}

// MachineCallback is a machine that calls in.
type MachineCallback struct{}

// MachineSSH is how to log in to a machine.
type MachineSSH struct {
	MachineLogin `json:",inline"`
	// Machine through which the connection goes.
	// +nullable
	JumpHost *MachineLogin `json:"jumpHost,omitempty"`
}

// MachineLogin is a machine with SSH and a user of it.
type MachineLogin struct {
	// Name or IP address.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?$`
	Address string `json:"address"`
	// Port; 22 when absent.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
	// User; root when absent. Another one uses sudo.
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_][A-Za-z0-9_.@-]*$`
	User string `json:"user,omitempty"`
	// Secret with ssh-privatekey (and passphrase) or password, and with sudo-password if sudo asks for another one.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	CredentialsSecretName string `json:"credentialsSecretName"`
	// Key that the machine must show: TYPE BASE64, or its fingerprint SHA256:BASE64. When empty, the key of the first contact is pinned.
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:Pattern=`^(SHA256:[A-Za-z0-9+/]{43}|[a-z0-9@.-]+ [A-Za-z0-9+/=]+( .*)?)$`
	HostKey string `json:"hostKey,omitempty"`
}

// ControlPlane reports whether the machine is to be a control-plane node.
func (m *OnecloudMachine) ControlPlane() bool { return slices.Contains(m.Spec.Roles, RoleControlPlane) }

// CallsIn reports whether the machine boots by itself: nothing logs in to it.
func (m *OnecloudMachine) CallsIn() bool { return m.Spec.Infrastructure.Callback != nil }

// CallIn is the name of the ConfigMap in which a machine that calls in reports how far its join is.
func (m *OnecloudMachine) CallIn() string { return m.Name + "-call-in" }

// NodeProviderID is the ID that the Node of a machine gets.
func (m *OnecloudMachine) NodeProviderID() string {
	if m.Spec.ProviderID != "" {
		return m.Spec.ProviderID
	}
	return "ocadm://" + m.Namespace + "/" + m.Name
}

// BootstrapSecret is the name of the Secret with the data with which a machine joins.
func (m *OnecloudMachine) BootstrapSecret() string {
	if m.Spec.Bootstrap.DataSecretName != "" {
		return m.Spec.Bootstrap.DataSecretName
	}
	return m.Name + "-bootstrap"
}
