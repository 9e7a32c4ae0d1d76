// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kind and resource name of an operation.
const (
	OperationKind     = "OnecloudOperation"
	OperationResource = "onecloudoperations"
)

// AnnotationControl on an operation pauses it (OperationPause) or cancels it (OperationCancel). Removing the annotation resumes a paused operation.
// The spec of an operation never changes.
const AnnotationControl = "onecloud.yunion.io/control"

// The values of AnnotationControl.
const (
	// OperationPause pauses the operation after the current step, until the annotation is removed.
	OperationPause = "pause"
	// OperationCancel stops the operation now and reverts its changes. It is final.
	OperationCancel = "cancel"
)

// LabelOperationCloud on an operation holds the name of its cloud.
const LabelOperationCloud = "onecloud.yunion.io/cloud"

// LabelOperation on a Job and its pods holds the name of their operation.
const LabelOperation = "onecloud.yunion.io/work-of"

// OnecloudOperation is a one-time change of a cloud that runs in steps.
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

// OnFailure decides what happens to an operation when a step fails.
type OnFailure string

// Rollback reverts the operation's changes. Pause keeps them until the operation is resumed or cancelled.
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
	// The client that requests these actions runs them, not the operator.
	ActionBackup       = "Backup"
	ActionRestore      = "Restore"
	ActionMoveDatabase = "MoveDatabase"
	// This action works on the control-plane nodes.
	ActionRenewCertificates = "RenewCertificates"
	// These actions work on one machine.
	ActionPrecheckMachine = "PrecheckMachine"
	ActionJoinMachine     = "JoinMachine"
	ActionRemoveMachine   = "RemoveMachine"
	// This action works on several machines.
	ActionCompareMachines = "CompareMachines"
)

// UpdateParameters holds the values that an update changes. Empty fields keep their value. If all are empty, the operator renders the cloud again.
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
	// Omit resource requests and limits of the components.
	DisableResourceManagement *bool `json:"disableResourceManagement,omitempty"`
	// Allow an update to an earlier release, whose services change the databases back and may lose data.
	AllowDowngrade bool `json:"allowDowngrade,omitempty"`
	// Copies of the services: small runs one of each, ha two on different nodes.
	// +kubebuilder:validation:Enum="";small;ha
	Profile string `json:"profile,omitempty"`
	// Do not copy the databases first. If the update fails, the services roll back, but their changes in the databases remain.
	NoBackup bool `json:"noBackup,omitempty"`
}

// RollbackParameters selects the target of a rollback.
type RollbackParameters struct {
	// Revision of the release. By default the latest release before the current one that has different contents and was not created by a rollback.
	// +kubebuilder:validation:Minimum=1
	Revision int `json:"revision,omitempty"`
	// Restore the databases whose tables have changed since, from the copies made by the update away from that release. The cloud loses what was
	// written since; a copy of it is kept.
	RestoreDatabases bool `json:"restoreDatabases,omitempty"`
	// Keep the databases as they are, although their tables have changed since.
	KeepDatabases bool `json:"keepDatabases,omitempty"`
}

// BackupParameters holds the destination of a backup.
type BackupParameters struct {
	// Directory or bucket for the file, or - for a stream.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	Place string `json:"place"`
}

// RestoreParameters names the backup to restore.
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

// MoveDatabaseParameters holds the destination of a cloud's databases.
type MoveDatabaseParameters struct {
	// Host and port of the new server.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=260
	To string `json:"to"`
}

// RenewCertificatesParameters selects which certificates of the control-plane nodes to renew.
type RenewCertificatesParameters struct {
	// Renew all certificates, even those that are not due.
	All bool `json:"all,omitempty"`
}

// MachineParameters selects the machine of an operation.
type MachineParameters struct {
	// Name of the OnecloudMachine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	Name string `json:"name"`
	// The machine is, or becomes, a control-plane node. Control-plane nodes join and leave one at a time.
	ControlPlane bool `json:"controlPlane,omitempty"`
	// Other OnecloudMachines that action CompareMachines compares it with.
	// +listType=set
	// +kubebuilder:validation:MaxItems=1000
	// +kubebuilder:validation:items:MaxLength=40
	Others []string `json:"others,omitempty"`
}

// OnecloudOperationSpec describes the task of an operation. It cannot change.
//
// +kubebuilder:validation:XValidation:rule="!has(self.update) || self.action in ['Check', 'Update', 'Rehearse']",message="update belongs to actions Check, Update and Rehearse",fieldPath=".update"
// +kubebuilder:validation:XValidation:rule="!has(self.rollback) || self.action == 'Rollback' || self.action == 'Check' && !has(self.update)",message="rollback belongs to action Rollback, or to Check without update",fieldPath=".rollback"
// +kubebuilder:validation:XValidation:rule="has(self.machine) == (self.action in ['PrecheckMachine', 'CompareMachines', 'JoinMachine', 'RemoveMachine'])",message="machine belongs to the actions of machines, which require it",fieldPath=".machine"
// +kubebuilder:validation:XValidation:rule="!has(self.machine) || !has(self.machine.others) || self.action == 'CompareMachines'",message="others belongs to action CompareMachines",fieldPath=".machine.others"
// +kubebuilder:validation:XValidation:rule="!has(self.backup) || self.action == 'Backup'",message="backup belongs to action Backup",fieldPath=".backup"
// +kubebuilder:validation:XValidation:rule="has(self.restore) == (self.action == 'Restore')",message="restore belongs to action Restore, which requires it",fieldPath=".restore"
// +kubebuilder:validation:XValidation:rule="has(self.moveDatabase) == (self.action == 'MoveDatabase')",message="moveDatabase belongs to action MoveDatabase, which requires it",fieldPath=".moveDatabase"
// +kubebuilder:validation:XValidation:rule="!has(self.renewCertificates) || self.action == 'RenewCertificates'",message="renewCertificates belongs to action RenewCertificates",fieldPath=".renewCertificates"
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the spec of an operation cannot change: cancel the operation and create another one"
type OnecloudOperationSpec struct {
	// Name of the cloud, in the namespace of the operation.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=30
	Cloud string `json:"cloud"`
	// Action to run.
	// +required
	// +kubebuilder:validation:Enum=Check;Update;Rollback;Rehearse;Backup;Restore;MoveDatabase;RenewCertificates;PrecheckMachine;CompareMachines;JoinMachine;RemoveMachine
	Action string `json:"action"`
	// Time limit, for example 2h, after which the operation fails; each action has a default.
	// +kubebuilder:validation:MaxLength=30
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="give a positive duration, for example 2h"
	Timeout string `json:"timeout,omitempty"`
	// User or program that requested the operation.
	// +kubebuilder:validation:MaxLength=253
	Requester string `json:"requester,omitempty"`
	// What to do when a step fails: rollback (the default) or pause.
	// +kubebuilder:validation:Enum=rollback;pause
	OnFailure OnFailure `json:"onFailure,omitempty"`
	// Parameters of actions Update and Rehearse.
	// +nullable
	Update *UpdateParameters `json:"update,omitempty"`
	// Parameters of action Rollback.
	// +nullable
	Rollback *RollbackParameters `json:"rollback,omitempty"`
	// Parameters of action Backup. Without them the operator makes the same backup as the cloud's schedule.
	// +nullable
	Backup *BackupParameters `json:"backup,omitempty"`
	// Parameters of action Restore.
	// +nullable
	Restore *RestoreParameters `json:"restore,omitempty"`
	// Parameters of action MoveDatabase.
	// +nullable
	MoveDatabase *MoveDatabaseParameters `json:"moveDatabase,omitempty"`
	// Parameters of action RenewCertificates. Without them it renews the certificates that are due.
	// +nullable
	RenewCertificates *RenewCertificatesParameters `json:"renewCertificates,omitempty"`
	// Machine for the actions PrecheckMachine, CompareMachines, JoinMachine and RemoveMachine.
	// +nullable
	Machine *MachineParameters `json:"machine,omitempty"`
}

// MachineName returns the name of the operation's machine, or "" if the operation works on the cloud.
func (o *OnecloudOperation) MachineName() string {
	if o.Spec.Machine == nil {
		return ""
	}
	return o.Spec.Machine.Name
}
