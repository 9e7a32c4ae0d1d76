// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MachinePhase summarizes the state of a machine in one word.
type MachinePhase string

// The phases, as in Cluster API; "" means unknown.
const (
	// MachinePending machines are waiting; nothing has been changed on them yet.
	MachinePending MachinePhase = "Pending"
	// MachineProvisioning machines are joining.
	MachineProvisioning MachinePhase = "Provisioning"
	// MachineProvisioned machines have joined, but their Node is not Ready.
	MachineProvisioned MachinePhase = "Provisioned"
	// MachineRunning machines have a Ready Node.
	MachineRunning  MachinePhase = "Running"
	MachineDeleting MachinePhase = "Deleting"
	// MachineDeleted machines have left the cluster.
	MachineDeleted MachinePhase = "Deleted"
	// MachineFailed machines need attention; see failureReason and failureMessage.
	MachineFailed MachinePhase = "Failed"
)

// The condition types of a machine.
const (
	// ConditionInfrastructureReady is true when the cluster can accept the machine and its address is not in use elsewhere.
	ConditionInfrastructureReady = "InfrastructureReady"
	// ConditionBootstrapDataReady is true while valid bootstrap data exists.
	ConditionBootstrapDataReady = "BootstrapDataReady"
	// ConditionHostReachable is true when the last login succeeded.
	ConditionHostReachable = "HostReachable"
	// ConditionPrecheckPassed is true when the checks on the machine found no error.
	ConditionPrecheckPassed = "PrecheckPassed"
	// ConditionJoined is true when the machine has a Node.
	ConditionJoined = "Joined"
	// ConditionNodeReady is the Ready condition of the Node.
	ConditionNodeReady = "NodeReady"
	// ConditionAgentsReady is true when the cloud's pods on the Node are ready.
	ConditionAgentsReady = "AgentsReady"
)

// MachineNodeRef identifies the Node of a machine.
type MachineNodeRef struct {
	// Name of the Node.
	Name string `json:"name"`
	// UID of the Node.
	UID types.UID `json:"uid,omitempty"`
}

// MachineInitialization records which steps of the first join have completed. A field that is true stays true.
type MachineInitialization struct {
	// The machine has joined.
	Provisioned bool `json:"provisioned,omitempty"`
	// The bootstrap data was created.
	DataSecretCreated bool `json:"dataSecretCreated,omitempty"`
}

// MachineRequest records a request made with the annotation onecloud.yunion.io/operation.
type MachineRequest struct {
	// Request: creating, prechecking or deleting.
	Operation string `json:"operation"`
	// Result, such as create-finished; empty while the request is being processed.
	Result string `json:"result,omitempty"`
	// Name of the operation that carries it out.
	Name string `json:"name,omitempty"`
	// Reason for a failure.
	Message string `json:"message,omitempty"`
	// Time of the request.
	Time metav1.Time `json:"time,omitzero"`
}

// OnecloudMachineStatus holds the observed state of a machine.
type OnecloudMachineStatus struct {
	// Completed steps of the first join, as in Cluster API.
	Initialization MachineInitialization `json:"initialization,omitzero"`
	// State of the machine in one word.
	Phase MachinePhase `json:"phase,omitempty"`
	// What the machine is waiting for.
	Message string `json:"message,omitempty"`
	// Generation of the spec that this status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Node of the machine.
	// +nullable
	NodeRef *MachineNodeRef `json:"nodeRef,omitempty"`
	// Provider ID of the Node.
	ProviderID string `json:"providerID,omitempty"`
	// Addresses of the Node.
	// +listType=atomic
	Addresses []corev1.NodeAddress `json:"addresses,omitempty"`
	// Secret with the bootstrap data.
	DataSecretName string `json:"dataSecretName,omitempty"`
	// Host key that the machine presented at the first contact. It is pinned from then on, unless the spec sets one.
	HostKey string `json:"hostKey,omitempty"`
	// Address and port at which the key was presented, and those of the jump host. If the spec changes them, the key is no longer used.
	HostKeyAddress string `json:"hostKeyAddress,omitempty"`
	// Host key of the jump host.
	JumpHostKey string `json:"jumpHostKey,omitempty"`
	// Address and port at which it was presented.
	JumpHostKeyAddress string `json:"jumpHostKeyAddress,omitempty"`
	// Address and port at which a join began to make changes, and those of the jump host. Removing a machine without a Node resets only the machine there.
	JoinBegun string `json:"joinBegun,omitempty"`
	// Last operation on the machine.
	Operation string `json:"operation,omitempty"`
	// Number of operations that the operator has created for the machine.
	Tries int `json:"tries,omitempty"`
	// Number of operations since the last change by a user.
	Attempts int `json:"attempts,omitempty"`
	// Earliest time of the next attempt.
	RetryAfter metav1.Time `json:"retryAfter,omitzero"`
	// Generation, retry annotation and abandon annotation at the last attempt. A change to them causes an immediate retry.
	Retry string `json:"retry,omitempty"`
	// Last request made with the annotation onecloud.yunion.io/operation, and its result.
	// +nullable
	Request *MachineRequest `json:"request,omitempty"`
	// Code of the finding that needs attention.
	FailureReason string `json:"failureReason,omitempty"`
	// The finding and its remedy.
	FailureMessage string `json:"failureMessage,omitempty"`
	// Conditions of the machine, for kubectl wait.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
