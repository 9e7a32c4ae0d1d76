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

// LabelOperation on a Job and its pods holds the name of the operation that they run.
const LabelOperation = "onecloud.yunion.io/work-of"

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
	// Those that the program runs which asks for them, not the operator.
	ActionBackup       = "Backup"
	ActionRestore      = "Restore"
	ActionMoveDatabase = "MoveDatabase"
	// That of the control-plane nodes.
	ActionRenewCertificates = "RenewCertificates"
	// Those of one machine.
	ActionPrecheckMachine = "PrecheckMachine"
	ActionJoinMachine     = "JoinMachine"
	ActionRemoveMachine   = "RemoveMachine"
	// That of several machines.
	ActionCompareMachines = "CompareMachines"
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
	// Revision of the release. When absent, the latest before the one in force that has other contents, and that no operation made which went back.
	// +kubebuilder:validation:Minimum=1
	Revision int `json:"revision,omitempty"`
	// Bring back the databases whose tables were changed since, from the copies that the update away from that release made. What was written
	// since is lost to the cloud; it is saved beside.
	RestoreDatabases bool `json:"restoreDatabases,omitempty"`
	// Leave the databases as they are, although their tables were changed since.
	KeepDatabases bool `json:"keepDatabases,omitempty"`
}

// BackupParameters are what a backup goes to.
type BackupParameters struct {
	// Directory or bucket that the file goes to, or - for a stream.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Place string `json:"place"`
}

// RestoreParameters are what a restore reads.
type RestoreParameters struct {
	// Name of the file.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	File string `json:"file"`
	// Directory or bucket of the file.
	// +kubebuilder:validation:MaxLength=2048
	Place string `json:"place,omitempty"`
}

// MoveDatabaseParameters are where the databases of a cloud go.
type MoveDatabaseParameters struct {
	// Host and port of the new server.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=260
	To string `json:"to"`
}

// RenewCertificatesParameters are what a renewal of the certificates of the control-plane nodes renews.
type RenewCertificatesParameters struct {
	// Renew also what is valid for long.
	All bool `json:"all,omitempty"`
}

// MachineParameters are what an operation on a machine works on.
type MachineParameters struct {
	// Name of the OnecloudMachine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	Name string `json:"name"`
	// The machine is, or becomes, a control-plane node: one of them joins or leaves at a time.
	ControlPlane bool `json:"controlPlane,omitempty"`
	// Other OnecloudMachines with which action CompareMachines compares it.
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=40
	Others []string `json:"others,omitempty"`
}

// OnecloudOperationSpec is what an operation does. It cannot change.
//
// +kubebuilder:validation:XValidation:rule="!has(self.update) || self.action in ['Check', 'Update', 'Rehearse']",message="update belongs to actions Check, Update and Rehearse",fieldPath=".update"
// +kubebuilder:validation:XValidation:rule="!has(self.rollback) || self.action == 'Rollback'",message="rollback belongs to action Rollback",fieldPath=".rollback"
// +kubebuilder:validation:XValidation:rule="has(self.machine) == (self.action in ['PrecheckMachine', 'CompareMachines', 'JoinMachine', 'RemoveMachine'])",message="an action of a machine has machine, and no other has",fieldPath=".machine"
// +kubebuilder:validation:XValidation:rule="!has(self.machine) || !has(self.machine.others) || self.action == 'CompareMachines'",message="others belongs to action CompareMachines",fieldPath=".machine.others"
// +kubebuilder:validation:XValidation:rule="!has(self.backup) || self.action == 'Backup'",message="backup belongs to action Backup",fieldPath=".backup"
// +kubebuilder:validation:XValidation:rule="has(self.restore) == (self.action == 'Restore')",message="action Restore has restore, and no other has",fieldPath=".restore"
// +kubebuilder:validation:XValidation:rule="has(self.moveDatabase) == (self.action == 'MoveDatabase')",message="action MoveDatabase has moveDatabase, and no other has",fieldPath=".moveDatabase"
// +kubebuilder:validation:XValidation:rule="!has(self.renewCertificates) || self.action == 'RenewCertificates'",message="renewCertificates belongs to action RenewCertificates",fieldPath=".renewCertificates"
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of an operation cannot change: cancel the operation and create another one"
type OnecloudOperationSpec struct {
	// Name of the cloud, in the namespace of the operation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=30
	Cloud string `json:"cloud"`
	// What to do.
	// +required
	// +kubebuilder:validation:Enum=Check;Update;Rollback;Rehearse;Backup;Restore;MoveDatabase;RenewCertificates;PrecheckMachine;CompareMachines;JoinMachine;RemoveMachine
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
	// Parameters of action Backup. Without them the operator makes the backup that the schedule of the cloud makes.
	// +nullable
	Backup *BackupParameters `json:"backup,omitempty"`
	// Parameters of action Restore.
	// +nullable
	Restore *RestoreParameters `json:"restore,omitempty"`
	// Parameters of action MoveDatabase.
	// +nullable
	MoveDatabase *MoveDatabaseParameters `json:"moveDatabase,omitempty"`
	// Parameters of action RenewCertificates. Without them it renews what is to be renewed by now.
	// +nullable
	RenewCertificates *RenewCertificatesParameters `json:"renewCertificates,omitempty"`
	// Machine of the actions PrecheckMachine, CompareMachines, JoinMachine and RemoveMachine.
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
