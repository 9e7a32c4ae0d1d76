// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

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
	// Where it was shown: address and port, and those of the jump host. The key is not used once the spec says another place.
	HostKeyAddress string `json:"hostKeyAddress,omitempty"`
	// The same of the jump host.
	JumpHostKey string `json:"jumpHostKey,omitempty"`
	// Where it was shown.
	JumpHostKeyAddress string `json:"jumpHostKeyAddress,omitempty"`
	// Where a join has begun to change something. The removal of a machine without a Node resets what is there, and nothing elsewhere.
	JoinBegun string `json:"joinBegun,omitempty"`
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
