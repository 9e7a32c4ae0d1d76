// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Names of the resource of an operation.
const (
	OperationKind     = "OnecloudOperation"
	OperationResource = "onecloudoperations"
)

// AnnotationControl on an operation pauses it (OperationPause) or cancels it (OperationCancel). Without it, the operation goes on. The spec of an
// operation never changes.
const AnnotationControl = "onecloud.yunion.io/control"

// The values of AnnotationControl.
const (
	// OperationPause ends the operation after the step that runs, until the annotation is removed.
	OperationPause = "pause"
	// OperationCancel ends it now and reverts what it changed. It is final.
	OperationCancel = "cancel"
)

// LabelOperationCloud on an operation holds the name of its cloud.
const LabelOperationCloud = "onecloud.yunion.io/cloud"

// OnecloudOperation is something that changes a cloud in steps, once.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=onecloudoperations,scope=Namespaced,shortName=oco
// +kubebuilder:printcolumn:name="Cloud",type=string,JSONPath=`.spec.cloud`
// +kubebuilder:printcolumn:name="Action",type=string,JSONPath=`.spec.action`
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.spec.machine.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Step",type=string,JSONPath=`.status.step`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([a-z0-9-]{0,58}[a-z0-9])?$')",message="metadata.name: the name of an operation has at most 60 lower-case letters, digits and dashes"
type OnecloudOperation struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +required
	Spec   OnecloudOperationSpec   `json:"spec"`
	Status OnecloudOperationStatus `json:"status,omitzero"`
}

// OnecloudOperationList is a list of operations.
//
// +kubebuilder:object:root=true
type OnecloudOperationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []OnecloudOperation `json:"items"`
}

// OnFailure says what becomes of an operation of which a step fails.
type OnFailure string

// Rollback reverts what the operation changed; Pause leaves everything as it is until the operation is resumed or cancelled.
const (
	OnFailureRollback OnFailure = "rollback"
	OnFailurePause    OnFailure = "pause"
)

// The actions.
const (
	ActionCheck    = "Check"
	ActionUpdate   = "Update"
	ActionRollback = "Rollback"
	ActionRehearse = "Rehearse"
	// Those of one machine.
	ActionPrecheckMachine = "PrecheckMachine"
	ActionJoinMachine     = "JoinMachine"
	ActionRemoveMachine   = "RemoveMachine"
)

// UpdateParameters are what an update changes. What is empty stays; with nothing, the cloud is brought to what the operator renders now.
type UpdateParameters struct {
	// Release of the cloud.
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version,omitempty"`
	// Registry and path of the images.
	// +kubebuilder:validation:MaxLength=256
	ImageRepository string `json:"imageRepository,omitempty"`
	// Edition of the cloud.
	// +kubebuilder:validation:Enum="";ce;"ce/support";ee
	Edition string `json:"edition,omitempty"`
	// Whether requests and limits of the components are left out.
	DisableResourceManagement *bool `json:"disableResourceManagement,omitempty"`
	// Move to an earlier release although its services change the databases back, and may lose data.
	AllowDowngrade bool `json:"allowDowngrade,omitempty"`
	// Copies of the services: small is one of each, ha two on different nodes.
	// +kubebuilder:validation:Enum="";small;ha
	Profile string `json:"profile,omitempty"`
	// Do without copies of the databases. If the update fails then, its services go back and what they changed in the databases stays.
	NoBackup bool `json:"noBackup,omitempty"`
}

// RollbackParameters are what a rollback goes back to.
type RollbackParameters struct {
	// Revision of the release; the one before the release in force when absent.
	// +kubebuilder:validation:Minimum=1
	Revision int `json:"revision,omitempty"`
	// Bring back the databases whose tables were changed since, from the copies that the update away from that release made. What was written
	// since is lost to the cloud; it is saved beside.
	RestoreDatabases bool `json:"restoreDatabases,omitempty"`
	// Leave the databases as they are, although their tables were changed since.
	KeepDatabases bool `json:"keepDatabases,omitempty"`
}

// MachineParameters are what an operation on a machine works on.
type MachineParameters struct {
	// Name of the OnecloudMachine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	Name string `json:"name"`
}

// OnecloudOperationSpec is what an operation does. It cannot change.
//
// +kubebuilder:validation:XValidation:rule="!has(self.update) || self.action in ['Check', 'Update', 'Rehearse']",message="update belongs to actions Check, Update and Rehearse",fieldPath=".update"
// +kubebuilder:validation:XValidation:rule="!has(self.rollback) || self.action == 'Rollback'",message="rollback belongs to action Rollback",fieldPath=".rollback"
// +kubebuilder:validation:XValidation:rule="has(self.machine) == (self.action in ['PrecheckMachine', 'JoinMachine', 'RemoveMachine'])",message="an action of a machine has machine, and no other has",fieldPath=".machine"
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of an operation cannot change: cancel the operation and create another one"
type OnecloudOperationSpec struct {
	// Name of the cloud, in the namespace of the operation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=30
	Cloud string `json:"cloud"`
	// What to do.
	// +required
	// +kubebuilder:validation:Enum=Check;Update;Rollback;Rehearse;PrecheckMachine;JoinMachine;RemoveMachine
	Action string `json:"action"`
	// Time after which it counts as failed, for example 2h; each action has a default.
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="give a positive duration, for example 2h"
	Timeout string `json:"timeout,omitempty"`
	// User or program that asked for it.
	// +kubebuilder:validation:MaxLength=253
	Requester string `json:"requester,omitempty"`
	// What becomes of it if a step fails: rollback (the default) or pause.
	// +kubebuilder:validation:Enum=rollback;pause
	OnFailure OnFailure `json:"onFailure,omitempty"`
	// Parameters of actions Update and Rehearse.
	// +nullable
	Update *UpdateParameters `json:"update,omitempty"`
	// Parameters of action Rollback.
	// +nullable
	Rollback *RollbackParameters `json:"rollback,omitempty"`
	// Machine of the actions PrecheckMachine, JoinMachine and RemoveMachine.
	// +nullable
	Machine *MachineParameters `json:"machine,omitempty"`
}

// MachineName is the machine that the operation works on, "" if it works on the cloud.
func (o *OnecloudOperation) MachineName() string {
	if o.Spec.Machine == nil {
		return ""
	}
	return o.Spec.Machine.Name
}

// Rollout is how far an operation has moved a cloud from one release to another. The operator keeps every component of a wave that is not
// reached at the release From.
type Rollout struct {
	// Revision of the release in force when the operation began.
	From int `json:"from"`
	// Revision of the release that the cloud moves to; 0 until it exists.
	To int `json:"to,omitempty"`
	// Revision of the release whose contents the next release repeats; 0 if it is rendered.
	Of int `json:"of,omitempty"`
	// True while no release is made.
	Hold bool `json:"hold,omitempty"`
	// Number of waves that are reached.
	Reached int `json:"reached,omitempty"`
	// Largest number of waves that were reached.
	Moved int `json:"moved,omitempty"`
	// Waves in their order.
	// +listType=atomic
	Waves []Wave `json:"waves,omitempty"`
	// Components that are stopped while their databases are replaced.
	// +listType=atomic
	Stopped []string `json:"stopped,omitempty"`
	// Merge patch that brings back what the operation changed in the cloud.
	Undo string `json:"undo,omitempty"`
}

// Wave is the components that move together.
type Wave struct {
	// Name of the wave.
	Name string `json:"name"`
	// Components that change.
	// +listType=atomic
	Components []string `json:"components,omitempty"`
}

// RolloutStatus is what the operator has seen of a rollout when it determined the status of a cloud.
type RolloutStatus struct {
	// Name of the operation.
	Operation string `json:"operation"`
	// Revision of the release whose contents the release in force repeats; 0 if it was rendered.
	Of int `json:"of,omitempty"`
	// True while no release is made.
	Hold bool `json:"hold,omitempty"`
	// Number of waves that are reached.
	Reached int `json:"reached,omitempty"`
	// Components that are stopped.
	// +listType=atomic
	Stopped []string `json:"stopped,omitempty"`
}

// OperationDatabases is what an operation has done with the databases of the cloud.
type OperationDatabases struct {
	// Copies that were made before something moved.
	// +nullable
	Saved *DatabaseCopies `json:"saved,omitempty"`
	// Databases that are being replaced by their copies.
	// +listType=atomic
	Restoring []string `json:"restoring,omitempty"`
	// Databases that were replaced by their copies.
	// +listType=atomic
	Restored []string `json:"restored,omitempty"`
	// What the replaced databases held before.
	// +listType=atomic
	Replaced []DatabaseCopies `json:"replaced,omitempty"`
}

// DatabaseCopies are copies of databases on the server of the databases.
type DatabaseCopies struct {
	// Name of the set.
	Set string `json:"set"`
	// What the name of each copy begins with; the name of the database follows.
	Prefix string `json:"prefix"`
	// Time of the copies.
	Time metav1.Time `json:"time,omitzero"`
	// Databases that were copied.
	// +listType=atomic
	Databases []string `json:"databases,omitempty"`
}

// OperationPhase is an operation in one word.
type OperationPhase string

// The phases. The last four are final.
const (
	// OperationPending operations wait for another one of the same cloud.
	OperationPending OperationPhase = "Pending"
	// OperationPlanning operations check whether they can run, and have changed nothing.
	OperationPlanning OperationPhase = "Planning"
	OperationRunning  OperationPhase = "Running"
	OperationPaused   OperationPhase = "Paused"
	// OperationReverting operations take back what they changed.
	OperationReverting OperationPhase = "Reverting"
	OperationSucceeded OperationPhase = "Succeeded"
	// OperationFailed operations have changed nothing, or could not take back what they changed: the message says which.
	OperationFailed OperationPhase = "Failed"
	// OperationReverted operations failed, and what they changed is as it was before.
	OperationReverted OperationPhase = "Reverted"
	// OperationCancelled operations were ended by a user, and what they changed is as it was before.
	OperationCancelled OperationPhase = "Cancelled"
)

// Final reports whether nothing more is to come.
func (p OperationPhase) Final() bool {
	return p == OperationSucceeded || p == OperationFailed || p == OperationReverted || p == OperationCancelled
}

// Active reports whether the operation has begun and has not ended.
func (p OperationPhase) Active() bool {
	return p == OperationPlanning || p == OperationRunning || p == OperationPaused || p == OperationReverting
}

// The condition types of an operation, for kubectl wait.
const (
	// ConditionComplete is true when an operation has ended, however it did.
	ConditionComplete = "Complete"
	// ConditionSucceeded is true when it has done what was asked for, false when it has ended otherwise.
	ConditionSucceeded = "Succeeded"
)

// StepState is how far a step is.
type StepState string

// The states of a step.
const (
	StepPending   StepState = "Pending"
	StepRunning   StepState = "Running"
	StepDone      StepState = "Done"
	StepUnchanged StepState = "Unchanged"
	StepSkipped   StepState = "Skipped"
	StepFailed    StepState = "Failed"
)

// Over reports whether the step has ended well and need not run again.
func (s StepState) Over() bool { return s == StepDone || s == StepUnchanged || s == StepSkipped }

// OperationStep is one step of an operation.
type OperationStep struct {
	// Name of the step.
	// +required
	Name string `json:"name"`
	// What the step does.
	Short string `json:"short,omitempty"`
	// How far it is.
	State StepState `json:"state,omitempty"`
	// True if the step takes back what others did.
	Revert bool `json:"revert,omitempty"`
	// Time at which it started.
	Start metav1.Time `json:"start,omitzero"`
	// Time at which it ended.
	End metav1.Time `json:"end,omitzero"`
	// What it waits for, why it was skipped, or why it failed.
	Message string `json:"message,omitempty"`
	// How much of Total is done.
	Done int64 `json:"done,omitempty"`
	// How much there is to do.
	Total int64 `json:"total,omitempty"`
	// What Done and Total count; B for bytes.
	Unit string `json:"unit,omitempty"`
	// What it changed or found, a line each.
	// +listType=atomic
	Evidence []string `json:"evidence,omitempty"`
}

// OnecloudOperationStatus is how far an operation is.
type OnecloudOperationStatus struct {
	// The operation in one word.
	Phase OperationPhase `json:"phase,omitempty"`
	// What it waits for, or how it ended.
	Message string `json:"message,omitempty"`
	// Why it reverts, or has reverted, what it did.
	Cause string `json:"cause,omitempty"`
	// Step that runs, or ran last.
	Step string `json:"step,omitempty"`
	// What it will do, a line each.
	// +listType=atomic
	Plan []string `json:"plan,omitempty"`
	// How far the cloud has moved to another release.
	// +nullable
	Rollout *Rollout `json:"rollout,omitempty"`
	// Copies of databases.
	// +nullable
	Databases *OperationDatabases `json:"databases,omitempty"`
	// Its steps, in order. Those that revert come last.
	// +listType=atomic
	Steps []OperationStep `json:"steps,omitempty"`
	// What a rehearsal found out, one entry for each component with databases.
	// +listType=map
	// +listMapKey=component
	Rehearsal []Rehearsed `json:"rehearsal,omitempty"`
	// Why a check refused it or a step failed.
	// +listType=atomic
	Findings []OperationFinding `json:"findings,omitempty"`
	// Time at which it began.
	Start metav1.Time `json:"start,omitzero"`
	// Time at which it ended.
	End metav1.Time `json:"end,omitzero"`
	// ConfigMap with its log.
	Log string `json:"log,omitempty"`
	// Complete and Succeeded, for kubectl wait.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// OperationFinding is a reason that a user can act on.
type OperationFinding struct {
	// Code of the finding; ocadm explain CODE says more.
	Code string `json:"code,omitempty"`
	// True if it does not keep the operation from running.
	Warning bool `json:"warning,omitempty"`
	// What was found.
	What string `json:"what,omitempty"`
	// Why.
	Cause string `json:"cause,omitempty"`
	// What to do next.
	Remedy string `json:"remedy,omitempty"`
}

// RehearsalResult is how a rehearsed migration ended.
type RehearsalResult string

// The results.
const (
	// RehearsalPassed migrations came to their end.
	RehearsalPassed RehearsalResult = "Passed"
	// RehearsalFailed migrations did not: an update would fail there.
	RehearsalFailed RehearsalResult = "Failed"
	// RehearsalSkipped migrations were not tried; the message says why.
	RehearsalSkipped RehearsalResult = "Skipped"
)

// Rehearsed is what a component of the release to come did to a copy of its databases.
type Rehearsed struct {
	// Name of the component.
	// +required
	Component string `json:"component"`
	// Image that ran.
	Image string `json:"image,omitempty"`
	// How it ended.
	Result RehearsalResult `json:"result"`
	// Why it failed or was skipped.
	Message string `json:"message,omitempty"`
	// Databases that were copied.
	// +listType=atomic
	Databases []string `json:"databases,omitempty"`
	// Rows in these databases.
	Rows int64 `json:"rows,omitempty"`
	// Time that the migration took, for example 1.5s.
	Duration string `json:"duration,omitempty"`
	// Size of the copies before the migration, in bytes, as the server estimates it.
	BytesBefore int64 `json:"bytesBefore,omitempty"`
	// Size of the copies after the migration, in bytes.
	BytesAfter int64 `json:"bytesAfter,omitempty"`
}
