// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RollbackTarget is the release that a rollback goes back to.
type RollbackTarget struct {
	// Revision of the release.
	Revision int `json:"revision"`
	// Version of the cloud in that release.
	Version string `json:"version,omitempty"`
}

// Rollout is how far an operation has moved a cloud from one release to another. The operator keeps every component of a wave that is not
// reached at the release From.
type Rollout struct {
	// Revision of the release in force when the operation began; 0 until the operator holds the cloud at it.
	From int `json:"from"`
	// Revision of the release that the cloud moves to; 0 until it exists.
	To int `json:"to,omitempty"`
	// Revision of the release whose contents the next release repeats; 0 if it is rendered.
	Of int `json:"of,omitempty"`
	// True while no release is made.
	Hold bool `json:"hold,omitempty"`
	// How often the operation has changed any of this.
	Steer int64 `json:"steer,omitempty"`
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
	// How often the operation had changed its rollout.
	Steer int64 `json:"steer,omitempty"`
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
	// Components that had neither a database nor an account on the server before something moved.
	// +listType=atomic
	Absent []string `json:"absent,omitempty"`
	// Components whose databases and accounts were removed, because this operation made them and was reverted.
	// +listType=atomic
	Removed []string `json:"removed,omitempty"`
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

// OperationRunner is the program that runs an operation which the operator does not run. Actions Backup, Restore and MoveDatabase have one.
type OperationRunner struct {
	// Machine or pod, and process.
	// +required
	Name string `json:"name"`
	// Last sign of the program, by its own clock. The operator ends an operation whose program gives none.
	Renewed metav1.MicroTime `json:"renewed,omitzero"`
	// True once it can only go on to its end: cancelling it does nothing any more.
	Final bool `json:"final,omitempty"`
}

// OperationBackup is the file that a backup made.
type OperationBackup struct {
	// Name of the file.
	Name string `json:"name,omitempty"`
	// Directory or bucket of the file.
	Place string `json:"place,omitempty"`
	// Size in bytes.
	Size int64 `json:"size,omitempty"`
	// Tables in it.
	Tables int `json:"tables,omitempty"`
	// Rows in it.
	Rows int64 `json:"rows,omitempty"`
	// Time at which it had been restored into scratch databases and compared.
	Proven metav1.Time `json:"proven,omitzero"`
	// Why it could not be proven.
	Problem string `json:"problem,omitempty"`
}

// OperationWorker is the pod that runs the steps of an operation on a machine. Only that pod reports on the steps.
type OperationWorker struct {
	// Name of the pod that began last.
	Pod string `json:"pod,omitempty"`
	// Number of pods that have begun.
	Number int `json:"number,omitempty"`
	// Pods that ended before the operation did, and why.
	// +listType=atomic
	Lost []string `json:"lost,omitempty"`
}

// OperationMachine is what an operation has seen of its machine.
type OperationMachine struct {
	// Key that the machine showed.
	HostKey string `json:"hostKey,omitempty"`
	// Where it was shown: address and port, and those of the jump host.
	Address string `json:"address,omitempty"`
	// Key that the jump host showed.
	JumpHostKey string `json:"jumpHostKey,omitempty"`
	// Where it was shown.
	JumpAddress string `json:"jumpAddress,omitempty"`
	// Which ways between machines action CompareMachines has tried.
	Ways string `json:"ways,omitempty"`
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
	// Release that a rollback goes back to, as its check has chosen it.
	// +nullable
	Target *RollbackTarget `json:"target,omitempty"`
	// How far the cloud has moved to another release.
	// +nullable
	Rollout *Rollout `json:"rollout,omitempty"`
	// Copies of databases.
	// +nullable
	Databases *OperationDatabases `json:"databases,omitempty"`
	// Program that runs it; absent if that is the operator.
	// +nullable
	Runner *OperationRunner `json:"runner,omitempty"`
	// What action Backup made.
	// +nullable
	Backup *OperationBackup `json:"backup,omitempty"`
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
	// Number of the operation among those of its cloud, in the order in which they began.
	Turn int64 `json:"turn,omitempty"`
	// Time at which it began.
	Start metav1.Time `json:"start,omitzero"`
	// How long it has run since it began or was resumed, in seconds. The time without an operator does not count.
	RanSeconds int64 `json:"ranSeconds,omitempty"`
	// Time at which it ended.
	End metav1.Time `json:"end,omitzero"`
	// ConfigMap with its log.
	Log string `json:"log,omitempty"`
	// Pod that runs it; none if the operator does.
	// +nullable
	Worker *OperationWorker `json:"worker,omitempty"`
	// What it has seen of its machine.
	// +nullable
	Machine *OperationMachine `json:"machine,omitempty"`
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
