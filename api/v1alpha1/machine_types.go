// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.phase) || !(oldSelf.status.phase in ['Provisioning', 'Provisioned', 'Running', 'Deleting', 'Deleted']) || ((has(self.spec.roles) ? self.spec.roles : []) == (has(oldSelf.spec.roles) ? oldSelf.spec.roles : []) && self.spec.infrastructure == oldSelf.spec.infrastructure)",message="spec: roles and infrastructure of a machine that joins or has joined cannot change: remove the machine and add it again"
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
// +kubebuilder:validation:Enum=compute;controller;baremetal;lbagent
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

// MachinePhase is a machine in one word.
type MachinePhase string

// The phases, as in Cluster API. "" is unknown.
const (
	// MachinePending machines wait for something before anything was changed on them.
	MachinePending MachinePhase = "Pending"
	// MachineProvisioning machines join.
	MachineProvisioning MachinePhase = "Provisioning"
	// MachineProvisioned machines have joined, and their Node is not Ready.
	MachineProvisioned MachinePhase = "Provisioned"
	// MachineRunning machines have a Node that is Ready.
	MachineRunning  MachinePhase = "Running"
	MachineDeleting MachinePhase = "Deleting"
	// MachineDeleted machines are out of the cluster.
	MachineDeleted MachinePhase = "Deleted"
	// MachineFailed machines need attention: failureReason and failureMessage say why.
	MachineFailed MachinePhase = "Failed"
)

// The condition types of a machine.
const (
	// ConditionInfrastructureReady is true when the cluster can take the machine, and nothing else has its address.
	ConditionInfrastructureReady = "InfrastructureReady"
	// ConditionBootstrapDataReady is true while there are data with which the machine can join.
	ConditionBootstrapDataReady = "BootstrapDataReady"
	// ConditionHostReachable is true when the last login succeeded.
	ConditionHostReachable = "HostReachable"
	// ConditionPrecheckPassed is true when the checks on the machine found no error.
	ConditionPrecheckPassed = "PrecheckPassed"
	// ConditionJoined is true when the machine has a Node.
	ConditionJoined = "Joined"
	// ConditionNodeReady is that of the Node.
	ConditionNodeReady = "NodeReady"
	// ConditionAgentsReady is true when the pods of the cloud on the Node are ready.
	ConditionAgentsReady = "AgentsReady"
)

// MachineNodeRef is the Node of a machine.
type MachineNodeRef struct {
	// Name of the Node.
	Name string `json:"name"`
	// UID of the Node.
	UID types.UID `json:"uid,omitempty"`
}

// MachineInitialization is how far a machine came the first time. What is true stays true.
type MachineInitialization struct {
	// It has joined.
	Provisioned bool `json:"provisioned,omitempty"`
	// Its bootstrap data were made.
	DataSecretCreated bool `json:"dataSecretCreated,omitempty"`
}

// MachineRequest is what an annotation asked for.
type MachineRequest struct {
	// The word: creating, prechecking or deleting.
	Operation string `json:"operation"`
	// How it ended: create-finished and the like. Empty while it goes on.
	Result string `json:"result,omitempty"`
	// Operation that does it.
	Name string `json:"name,omitempty"`
	// Why it failed.
	Message string `json:"message,omitempty"`
	// When it was asked for.
	Time metav1.Time `json:"time,omitzero"`
}

// OnecloudMachineStatus is how far a machine is.
type OnecloudMachineStatus struct {
	// How far it came the first time, as in Cluster API.
	Initialization MachineInitialization `json:"initialization,omitzero"`
	// The machine in one word.
	Phase MachinePhase `json:"phase,omitempty"`
	// What it waits for.
	Message string `json:"message,omitempty"`
	// Generation of the spec that this status was determined for.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Its Node.
	// +nullable
	NodeRef *MachineNodeRef `json:"nodeRef,omitempty"`
	// ID of its Node.
	ProviderID string `json:"providerID,omitempty"`
	// Addresses of its Node.
	// +listType=atomic
	Addresses []corev1.NodeAddress `json:"addresses,omitempty"`
	// Secret with the data with which it joins.
	DataSecretName string `json:"dataSecretName,omitempty"`
	// Key that the machine showed at the first contact. It is pinned from then on, unless the spec names one.
	HostKey string `json:"hostKey,omitempty"`
	// The same of the jump host.
	JumpHostKey string `json:"jumpHostKey,omitempty"`
	// Last operation on it.
	Operation string `json:"operation,omitempty"`
	// Number of operations that the operator has created for it.
	Tries int `json:"tries,omitempty"`
	// How many of them there were since a user last changed something.
	Attempts int `json:"attempts,omitempty"`
	// Time before which it is not tried again.
	RetryAfter metav1.Time `json:"retryAfter,omitzero"`
	// What the last try was made for: generation, retry and abandon annotations. If that changes, it is tried again at once.
	Retry string `json:"retry,omitempty"`
	// What annotation onecloud.yunion.io/operation asked for last, and what became of it.
	// +nullable
	Request *MachineRequest `json:"request,omitempty"`
	// Code of the finding for which it needs attention.
	FailureReason string `json:"failureReason,omitempty"`
	// The finding, and what to do.
	FailureMessage string `json:"failureMessage,omitempty"`
	// The steps on its way, for kubectl wait.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
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
