// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Phase summarizes the state of a cloud in one word.
type Phase string

// The phases.
const (
	PhaseCreating  Phase = "Creating"
	PhaseRunning   Phase = "Running"
	PhaseUpgrading Phase = "Upgrading"
	// PhaseRollingBack clouds are returning to an earlier release.
	PhaseRollingBack Phase = "RollingBack"
	PhaseFailed      Phase = "Failed"
	PhaseDeleting    Phase = "Deleting"
)

// The condition types.
const (
	ConditionReady       = "Ready"
	ConditionProgressing = "Progressing"
	ConditionDegraded    = "Degraded"
	// ConditionNodesReady reports whether the nodes of the cloud are Ready. It is absent if the operator may not read nodes.
	ConditionNodesReady = "NodesReady"
	// ConditionIgnored is present only if fields of the spec have no effect.
	ConditionIgnored = "FieldsIgnored"
	// ConditionUpdateAvailable reports whether an update would change the cloud, because another build of the operator rendered its release.
	ConditionUpdateAvailable = "UpdateAvailable"
	// ConditionUpdateFailed is present only if the last operation to move the cloud to another release was rejected or reverted.
	ConditionUpdateFailed = "UpdateFailed"
	// ConditionHighlyAvailable reports whether a cloud with profile ha survives the loss of a node. Other clouds do not have it.
	ConditionHighlyAvailable = "HighlyAvailable"
	// ConditionBackupProven reports whether a trial restore of a recent backup succeeded. It is Unknown if no backup is known or scheduled.
	ConditionBackupProven = "BackupProven"
	// ConditionDatabaseRedundant reports whether the embedded database survives the loss of a node. It is absent with an external database server.
	ConditionDatabaseRedundant = "DatabaseRedundant"
	// ConditionNodeCertificates reports whether the certificates of the control-plane nodes are valid and renewed in time. It is absent if the operator
	// does not manage them.
	ConditionNodeCertificates = "NodeCertificates"
)

// State summarizes the state of a component in one word.
type State string

// The states.
const (
	// Disabled components should not run.
	Disabled State = "Disabled"
	// Waiting components wait for something else, such as another component.
	Waiting State = "Waiting"
	// Provisioning components wait for their database, account or certificates to be created.
	Provisioning State = "Provisioning"
	// Progressing components are starting or replacing pods.
	Progressing State = "Progressing"
	// Available components run as configured.
	Available State = "Available"
	// Idle components have nothing to do: no node has the role they run on.
	Idle State = "Idle"
	// Degraded components cannot recover without intervention.
	Degraded State = "Degraded"
)

// Settled reports whether the component has reached a final state: it runs as configured, should not run, or has no node to run on.
func (s State) Settled() bool { return s == Available || s == Disabled || s == Idle }

// Settled reports whether the component is in a final state and not outdated.
func (c ComponentStatus) Settled() bool { return c.State.Settled() && !c.Outdated }

// ReasonInvalidOption means that a component keeps its old configuration until an option in its ConfigMap is corrected.
const ReasonInvalidOption = "InvalidOption"

// ReasonWave means that a component stays at its release until an operation moves it.
const ReasonWave = "WaitsForWave"

// ComponentStatus holds the status of one component.
type ComponentStatus struct {
	// Name of the component.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// State of the component.
	// +required
	State State `json:"state"`
	// Current release, from the tag of the image.
	Version string `json:"version,omitempty"`
	// Image of the first container.
	Image string `json:"image,omitempty"`
	// True if a user set the image, so that updates do not change it.
	Pinned bool `json:"pinned,omitempty"`
	// True while it stays at its old release until other components have moved.
	Outdated bool `json:"outdated,omitempty"`
	// Reason for the state, in one word.
	Reason string `json:"reason,omitempty"`
	// Reason for the state, as a sentence.
	Message string `json:"message,omitempty"`
	// Time at which the component entered the state.
	Since metav1.Time `json:"since,omitzero"`
	// Components that must become Available first.
	// +listType=set
	BlockedBy []string `json:"blockedBy,omitempty"`
	// Desired number of pods.
	Replicas int32 `json:"replicas,omitempty"`
	// Number of ready pods.
	Ready int32 `json:"ready,omitempty"`
	// Generation of the resource that the state describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ImageStatus holds an image reference and its parts.
type ImageStatus struct {
	// Complete reference.
	Image string `json:"image,omitempty"`
	// Registry and path.
	Repository string `json:"repository,omitempty"`
	// Name of the image.
	ImageName string `json:"imageName,omitempty"`
	// Tag of the image.
	Tag string `json:"tag,omitempty"`
	// Pull policy.
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
}

// The phases of a WorkloadStatus.
const (
	WorkloadNormal  = "Normal"
	WorkloadUpgrade = "Upgrade"
)

// WorkloadStatus holds the fields of a component that older tools read: status.<key>.imageStatus and status.<key>.phase.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +structType=atomic
type WorkloadStatus struct {
	Phase       string       `json:"phase,omitempty"`
	ImageStatus *ImageStatus `json:"imageStatus,omitempty"`
}

// BackupsStatus holds the status of the backups of a cloud.
type BackupsStatus struct {
	// Time of the last attempt.
	Last metav1.Time `json:"last,omitzero"`
	// Time of the latest backup that passed a trial restore and its comparison.
	Proven metav1.Time `json:"proven,omitzero"`
	// Name of the file of that backup.
	Name string `json:"name,omitempty"`
	// Directory or bucket of that file.
	Place string `json:"place,omitempty"`
}

// CertificatesStatus holds the status of the certificates of a cloud.
type CertificatesStatus struct {
	// Expiry time of the certificate of the services.
	NotAfter metav1.Time `json:"notAfter,omitzero"`
	// Expiry time of the CA that signed it.
	CANotAfter metav1.Time `json:"caNotAfter,omitzero"`
	// Time at which the operator next renews one of them.
	RenewAt metav1.Time `json:"renewAt,omitzero"`
	// True if a user provides the certificates.
	Supplied bool `json:"supplied,omitempty"`
	// The renewal in progress, or a problem.
	Message string `json:"message,omitempty"`
}

// ReleaseStatus identifies the release that a cloud runs.
type ReleaseStatus struct {
	// Revision of the current release.
	Revision int `json:"revision,omitempty"`
	// Revision of the last release that every component ran.
	Good int `json:"good,omitempty"`
	// Version of the current release.
	Version string `json:"version,omitempty"`
}

// OnecloudClusterStatus holds the observed state of a cloud.
//
// +kubebuilder:pruning:PreserveUnknownFields
type OnecloudClusterStatus struct {
	// Generation of the resource that the status describes.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// State of the cloud in one word.
	Phase Phase `json:"phase,omitempty"`
	// Release of the cloud. It changes when the last component has been updated.
	Version string `json:"version,omitempty"`
	// Conditions of the cloud.
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Status of each component.
	// +listType=atomic
	Components []ComponentStatus `json:"components,omitempty"` // atomic: field ownership of fifty components would be 9 KB in every object
	// Status of the certificates.
	Certificates CertificatesStatus `json:"certificates,omitzero"`
	// Status of the backups.
	// +nullable
	Backups *BackupsStatus `json:"backups,omitempty"`
	// Effects outside Kubernetes: the hash of each effect by its key.
	// +mapType=atomic
	Effects map[string]string `json:"effects,omitempty"`

	// Current release.
	Release ReleaseStatus `json:"release,omitzero"`

	// Operation that moves the cloud to another release.
	// +nullable
	Rollout *RolloutStatus `json:"rollout,omitempty"`

	// Values of the fields that cannot change, as last applied.
	Fixed map[string]string `json:"fixed,omitempty"`

	// Fields that older tools read, by the JSON key of the component.
	Legacy `json:",inline"`
}

// EffectServed is the key of the first effect that needs the identity service.
const EffectServed = "identity/policy"

// HasRun reports whether the identity service has ever served, so that users may depend on the cloud. This is the case long before every component is
// Available, and remains so.
func (s *OnecloudClusterStatus) HasRun() bool {
	return s.Version != "" || s.Effects[EffectServed] != ""
}

// Legacy holds one WorkloadStatus per component that older tools know.
type Legacy struct {
	Keystone       *WorkloadStatus `json:"keystone,omitempty"`
	Region         *WorkloadStatus `json:"region,omitempty"`
	Glance         *WorkloadStatus `json:"glance,omitempty"`
	Scheduler      *WorkloadStatus `json:"scheduler,omitempty"`
	Webconsole     *WorkloadStatus `json:"webconsole,omitempty"`
	Monitor        *WorkloadStatus `json:"monitor,omitempty"`
	Logger         *WorkloadStatus `json:"logger,omitempty"`
	APIGateway     *WorkloadStatus `json:"apiGateway,omitempty"`
	Web            *WorkloadStatus `json:"web,omitempty"`
	Yunionconf     *WorkloadStatus `json:"yunionconf,omitempty"`
	Kubeserver     *WorkloadStatus `json:"kubeserver,omitempty"`
	Ansibleserver  *WorkloadStatus `json:"ansibleserver,omitempty"`
	Cloudnet       *WorkloadStatus `json:"cloudnet,omitempty"`
	Cloudproxy     *WorkloadStatus `json:"cloudproxy,omitempty"`
	Cloudevent     *WorkloadStatus `json:"cloudevent,omitempty"`
	Notify         *WorkloadStatus `json:"notify,omitempty"`
	Baremetalagent *WorkloadStatus `json:"baremetalagent,omitempty"`
	S3gateway      *WorkloadStatus `json:"s3gateway,omitempty"`
	Devtool        *WorkloadStatus `json:"devtool,omitempty"`
	Meter          *WorkloadStatus `json:"meter,omitempty"`
	Billing        *WorkloadStatus `json:"billing,omitempty"`
	Autoupdate     *WorkloadStatus `json:"autoupdate,omitempty"`
	Esxiagent      *WorkloadStatus `json:"esxiagent,omitempty"`
	OvnNorth       *WorkloadStatus `json:"ovnNorth,omitempty"`
	VpcAgent       *WorkloadStatus `json:"vpcAgent,omitempty"`
	Itsm           *WorkloadStatus `json:"itsm,omitempty"`
	Cloudid        *WorkloadStatus `json:"cloudid,omitempty"`
	Cloudmon       *WorkloadStatus `json:"cloudmon,omitempty"`
	Scheduledtask  *WorkloadStatus `json:"scheduledtask,omitempty"`
	APIMap         *WorkloadStatus `json:"apiMap,omitempty"`
	Report         *WorkloadStatus `json:"report,omitempty"`
	Echarts        *WorkloadStatus `json:"echarts,omitempty"`
	BastionHost    *WorkloadStatus `json:"bastionHost,omitempty"`
	Extdb          *WorkloadStatus `json:"extdb,omitempty"`
	LLM            *WorkloadStatus `json:"llm,omitempty"`
	McpServer      *WorkloadStatus `json:"mcpServer,omitempty"`
	Aiproxy        *WorkloadStatus `json:"aiproxy,omitempty"`

	VictoriaMetrics *WorkloadStatus `json:"victoriaMetrics,omitempty"`
}

// Workload returns a pointer to a component's WorkloadStatus by its JSON key, or nil if older tools do not know the component.
func (l *Legacy) Workload(key string) **WorkloadStatus {
	return field[*WorkloadStatus](l, legacyPlaces()[key])
}

// legacyPlaces returns the places of the statuses of components.
var legacyPlaces = sync.OnceValue(func() map[string][]int { return places[*WorkloadStatus](reflect.TypeFor[Legacy]()) })
