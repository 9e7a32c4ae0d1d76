// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RollbackTarget identifies the release that a rollback restores.
type RollbackTarget struct {
	// Revision of the release.
	Revision int `json:"revision"`
	// Version of the cloud in that release.
	Version string `json:"version,omitempty"`
}

// Rollout records the progress of an operation that moves a cloud from one release to another. Components of waves that have not been reached stay at
// the release From.
type Rollout struct {
	// Revision of the release that was current when the operation began; 0 until the operator holds the cloud at it.
	From int `json:"from"`
	// Revision of the release that the cloud moves to; 0 until it exists.
	To int `json:"to,omitempty"`
	// Revision of the release whose contents the next release copies; 0 if it is rendered.
	Of int `json:"of,omitempty"`
	// True while the operator must not create a release.
	Hold bool `json:"hold,omitempty"`
	// Number of times that the operation has changed this rollout.
	Steer int64 `json:"steer,omitempty"`
	// Number of waves that have been reached.
	Reached int `json:"reached,omitempty"`
	// Highest value that reached has had.
	Moved int `json:"moved,omitempty"`
	// Waves in order.
	// +listType=atomic
	Waves []Wave `json:"waves,omitempty"`
	// Components that are stopped while their databases are replaced.
	// +listType=atomic
	Stopped []string `json:"stopped,omitempty"`
	// Merge patch that reverts the operation's changes to the cloud.
	Undo string `json:"undo,omitempty"`
}

// Wave lists components that move together.
type Wave struct {
	// Name of the wave.
	Name string `json:"name"`
	// Components of the wave.
	// +listType=atomic
	Components []string `json:"components,omitempty"`
}

// RolloutStatus holds the state of a rollout on which the status of a cloud is based.
type RolloutStatus struct {
	// Name of the operation.
	Operation string `json:"operation"`
	// Revision of the release whose contents the current release copies; 0 if it was rendered.
	Of int `json:"of,omitempty"`
	// True while the operator must not create a release.
	Hold bool `json:"hold,omitempty"`
	// Number of times that the operation had changed its rollout.
	Steer int64 `json:"steer,omitempty"`
	// Number of waves that have been reached.
	Reached int `json:"reached,omitempty"`
	// Components that are stopped.
	// +listType=atomic
	Stopped []string `json:"stopped,omitempty"`
}

// OperationDatabases records what an operation has done with the databases of the cloud.
type OperationDatabases struct {
	// Copies made before any component moved.
	// +nullable
	Saved *DatabaseCopies `json:"saved,omitempty"`
	// Databases that are being replaced by their copies.
	// +listType=atomic
	Restoring []string `json:"restoring,omitempty"`
	// Databases that have been replaced by their copies.
	// +listType=atomic
	Restored []string `json:"restored,omitempty"`
	// Copies of the previous contents of the replaced databases.
	// +listType=atomic
	Replaced []DatabaseCopies `json:"replaced,omitempty"`
	// Components that had neither a database nor an account on the server before any component moved.
	// +listType=atomic
	Absent []string `json:"absent,omitempty"`
	// Components whose databases and accounts were removed because this operation created them and was reverted.
	// +listType=atomic
	Removed []string `json:"removed,omitempty"`
}

// DatabaseCopies describes a set of database copies on the same server.
type DatabaseCopies struct {
	// Name of the set.
	Set string `json:"set"`
	// Prefix of the name of each copy; the name of the database follows.
	Prefix string `json:"prefix"`
	// Time of the copies.
	Time metav1.Time `json:"time,omitzero"`
	// Databases that were copied.
	// +listType=atomic
	Databases []string `json:"databases,omitempty"`
}

// OperationPhase summarizes the state of an operation in one word.
type OperationPhase string

// The phases. The last four are final.
const (
	// OperationPending operations wait for another operation on the same cloud.
	OperationPending OperationPhase = "Pending"
	// OperationPlanning operations check whether they can run and have changed nothing.
	OperationPlanning OperationPhase = "Planning"
	OperationRunning  OperationPhase = "Running"
	OperationPaused   OperationPhase = "Paused"
	// OperationReverting operations are reverting their changes.
	OperationReverting OperationPhase = "Reverting"
	OperationSucceeded OperationPhase = "Succeeded"
	// OperationFailed operations changed nothing, or could not revert their changes; the message says which.
	OperationFailed OperationPhase = "Failed"
	// OperationReverted operations failed, and their changes were reverted.
	OperationReverted OperationPhase = "Reverted"
	// OperationCancelled operations were cancelled by a user, and their changes were reverted.
	OperationCancelled OperationPhase = "Cancelled"
)

// Final reports whether the operation has ended.
func (p OperationPhase) Final() bool {
	return p == OperationSucceeded || p == OperationFailed || p == OperationReverted || p == OperationCancelled
}

// Active reports whether the operation has begun and has not ended.
func (p OperationPhase) Active() bool {
	return p == OperationPlanning || p == OperationRunning || p == OperationPaused || p == OperationReverting
}

// The condition types of an operation, for kubectl wait.
const (
	// ConditionComplete is true when an operation has ended, whatever the result.
	ConditionComplete = "Complete"
	// ConditionSucceeded is true when an operation has succeeded and false when it has ended otherwise.
	ConditionSucceeded = "Succeeded"
)

// StepState is the state of a step.
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

// Over reports whether the step has succeeded or need not run.
func (s StepState) Over() bool { return s == StepDone || s == StepUnchanged || s == StepSkipped }

// OperationStep describes one step of an operation.
type OperationStep struct {
	// Name of the step.
	// +required
	Name string `json:"name"`
	// What the step does.
	Short string `json:"short,omitempty"`
	// State of the step.
	State StepState `json:"state,omitempty"`
	// True if the step reverts other steps.
	Revert bool `json:"revert,omitempty"`
	// Start time.
	Start metav1.Time `json:"start,omitzero"`
	// Time at which it ended.
	End metav1.Time `json:"end,omitzero"`
	// What the step is waiting for, why it was skipped, or why it failed.
	Message string `json:"message,omitempty"`
	// Completed part of Total.
	Done int64 `json:"done,omitempty"`
	// Total amount of work.
	Total int64 `json:"total,omitempty"`
	// Unit of Done and Total; B for bytes.
	Unit string `json:"unit,omitempty"`
	// What the step changed or found, one entry each.
	// +listType=atomic
	Evidence []string `json:"evidence,omitempty"`
}

// OperationRunner identifies the program that runs an operation instead of the operator. Actions Backup, Restore and MoveDatabase have one.
type OperationRunner struct {
	// Machine or pod, and process ID.
	// +required
	Name string `json:"name"`
	// Last heartbeat of the program, by its own clock. The operator ends an operation without heartbeats.
	Renewed metav1.MicroTime `json:"renewed,omitzero"`
	// True once the operation can only be completed, and can no longer be cancelled.
	Final bool `json:"final,omitempty"`
}

// OperationBackup describes the file of a backup.
type OperationBackup struct {
	// Name of the file.
	Name string `json:"name,omitempty"`
	// Directory or bucket of the file.
	Place string `json:"place,omitempty"`
	// Size in bytes.
	Size int64 `json:"size,omitempty"`
	// Number of tables in it.
	Tables int `json:"tables,omitempty"`
	// Number of rows in it.
	Rows int64 `json:"rows,omitempty"`
	// Time at which a trial restore into scratch databases and its comparison succeeded.
	Proven metav1.Time `json:"proven,omitzero"`
	// Reason why the trial restore failed.
	Problem string `json:"problem,omitempty"`
}

// OperationWorker identifies the pod that runs the steps of an operation on a machine. Only that pod reports on the steps.
type OperationWorker struct {
	// Name of the pod that started last.
	Pod string `json:"pod,omitempty"`
	// Number of pods that have started.
	Number int `json:"number,omitempty"`
	// Pods that ended before the operation did, with the reason.
	// +listType=atomic
	Lost []string `json:"lost,omitempty"`
}

// OperationMachine records what an operation has observed on its machine.
type OperationMachine struct {
	// Host key that the machine presented.
	HostKey string `json:"hostKey,omitempty"`
	// Address and port at which it was presented, and those of the jump host.
	Address string `json:"address,omitempty"`
	// Host key that the jump host presented.
	JumpHostKey string `json:"jumpHostKey,omitempty"`
	// Address and port at which it was presented.
	JumpAddress string `json:"jumpAddress,omitempty"`
	// Connections between machines that action CompareMachines has tested.
	Ways string `json:"ways,omitempty"`
}

// OnecloudOperationStatus holds the observed state of an operation.
type OnecloudOperationStatus struct {
	// State of the operation in one word.
	Phase OperationPhase `json:"phase,omitempty"`
	// What the operation is waiting for, or how it ended.
	Message string `json:"message,omitempty"`
	// Why it is reverting, or has reverted, its changes.
	Cause string `json:"cause,omitempty"`
	// Current or last step.
	Step string `json:"step,omitempty"`
	// Planned changes, one entry each.
	// +listType=atomic
	Plan []string `json:"plan,omitempty"`
	// Release that a rollback restores, as chosen by its check.
	// +nullable
	Target *RollbackTarget `json:"target,omitempty"`
	// Progress of the cloud to another release.
	// +nullable
	Rollout *Rollout `json:"rollout,omitempty"`
	// Copies of databases.
	// +nullable
	Databases *OperationDatabases `json:"databases,omitempty"`
	// Program that runs the operation; absent if the operator runs it.
	// +nullable
	Runner *OperationRunner `json:"runner,omitempty"`
	// Result of action Backup.
	// +nullable
	Backup *OperationBackup `json:"backup,omitempty"`
	// Steps in order. Those that revert come last.
	// +listType=atomic
	Steps []OperationStep `json:"steps,omitempty"`
	// Results of a rehearsal, one entry for each component with databases.
	// +listType=map
	// +listMapKey=component
	Rehearsal []Rehearsed `json:"rehearsal,omitempty"`
	// Why a check rejected the operation or a step failed.
	// +listType=atomic
	Findings []OperationFinding `json:"findings,omitempty"`
	// Sequence number of the operation among those of its cloud.
	Turn int64 `json:"turn,omitempty"`
	// Start time.
	Start metav1.Time `json:"start,omitzero"`
	// Running time since the operation began or was resumed, in seconds, without the time in which no operator was running.
	RanSeconds int64 `json:"ranSeconds,omitempty"`
	// Time at which it ended.
	End metav1.Time `json:"end,omitzero"`
	// ConfigMap with its log.
	Log string `json:"log,omitempty"`
	// Pod that runs the operation; absent if the operator runs it.
	// +nullable
	Worker *OperationWorker `json:"worker,omitempty"`
	// What the operation has observed on its machine.
	// +nullable
	Machine *OperationMachine `json:"machine,omitempty"`
	// Complete and Succeeded, for kubectl wait.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// OperationFinding describes a problem that a user can act on.
type OperationFinding struct {
	// Code of the finding; see ocadm explain CODE.
	Code string `json:"code,omitempty"`
	// True if it does not prevent the operation.
	Warning bool `json:"warning,omitempty"`
	// What was found.
	What string `json:"what,omitempty"`
	// Cause of the problem.
	Cause string `json:"cause,omitempty"`
	// What to do next.
	Remedy string `json:"remedy,omitempty"`
}

// RehearsalResult is the result of a rehearsed migration.
type RehearsalResult string

// The results.
const (
	// RehearsalPassed migrations completed.
	RehearsalPassed RehearsalResult = "Passed"
	// RehearsalFailed migrations did not complete; an update would fail there.
	RehearsalFailed RehearsalResult = "Failed"
	// RehearsalSkipped migrations were not run; the message says why.
	RehearsalSkipped RehearsalResult = "Skipped"
)

// Rehearsed records how a component of the new release migrated a copy of its databases.
type Rehearsed struct {
	// Name of the component.
	// +required
	Component string `json:"component"`
	// Image that ran.
	Image string `json:"image,omitempty"`
	// Result of the migration.
	Result RehearsalResult `json:"result"`
	// Why it failed or was skipped.
	Message string `json:"message,omitempty"`
	// Databases that were copied.
	// +listType=atomic
	Databases []string `json:"databases,omitempty"`
	// Number of rows in these databases.
	Rows int64 `json:"rows,omitempty"`
	// Duration of the migration, for example 1.5s.
	Duration string `json:"duration,omitempty"`
	// Size of the copies before the migration, in bytes, as the server estimates it.
	BytesBefore int64 `json:"bytesBefore,omitempty"`
	// Size of the copies after the migration, in bytes.
	BytesAfter int64 `json:"bytesAfter,omitempty"`
}
