// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Phase is the whole cloud in one word.
type Phase string

// The phases.
const (
	PhaseCreating  Phase = "Creating"
	PhaseRunning   Phase = "Running"
	PhaseUpgrading Phase = "Upgrading"
	// PhaseRollingBack clouds go back to an earlier release.
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
	// ConditionIgnored is there only where fields of the spec have no effect.
	ConditionIgnored = "FieldsIgnored"
	// ConditionUpdateAvailable reports whether an update would change the cloud, because another build of the operator rendered its release.
	ConditionUpdateAvailable = "UpdateAvailable"
	// ConditionUpdateFailed is there only where the last operation that was to move the cloud to another release did not: it was refused, or reverted.
	ConditionUpdateFailed = "UpdateFailed"
	// ConditionHighlyAvailable reports whether a cloud of profile ha survives the loss of a node. Other clouds do not have it.
	ConditionHighlyAvailable = "HighlyAvailable"
	// ConditionBackupProven reports whether a fresh backup was restored on trial. It is Unknown where no backup is known or scheduled.
	ConditionBackupProven = "BackupProven"
	// ConditionDatabaseRedundant reports whether the embedded database survives the loss of a node. A cloud with a server of its own does not have it.
	ConditionDatabaseRedundant = "DatabaseRedundant"
	// ConditionNodeCertificates reports whether the certificates of the control-plane nodes are valid and renewed in time. It is absent where the operator
	// does not look after them.
	ConditionNodeCertificates = "NodeCertificates"
)

// State is a component in one word.
type State string

// The states.
const (
	// Disabled components are not to run.
	Disabled State = "Disabled"
	// Waiting components have everything but something that others must bring first.
	Waiting State = "Waiting"
	// Provisioning components have their database, account or certificates made.
	Provisioning State = "Provisioning"
	// Progressing components have pods on their way.
	Progressing State = "Progressing"
	// Available components run what was asked for.
	Available State = "Available"
	// Idle components have nothing to do: no node has the role they run on.
	Idle State = "Idle"
	// Degraded components do not get there without a change from outside.
	Degraded State = "Degraded"
)

// Settled reports whether the component has reached a final state: it runs as configured, should not run, or has no node to run on.
func (s State) Settled() bool { return s == Available || s == Disabled || s == Idle }

// Settled reports whether nothing more is to come of a component.
func (c ComponentStatus) Settled() bool { return c.State.Settled() && !c.Outdated }

// ReasonInvalidOption is the reason of a component that keeps its configuration until an option in its ConfigMap is corrected.
const ReasonInvalidOption = "InvalidOption"

// ReasonWave is the reason of a component that serves as it did, until an operation moves it.
const ReasonWave = "WaitsForWave"

// ComponentStatus is the status of one component.
type ComponentStatus struct {
	// Name of the component.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// State of the component.
	// +required
	State State `json:"state"`
	// Release that it runs, read from the tag of its image.
	Version string `json:"version,omitempty"`
	// Image of its first container.
	Image string `json:"image,omitempty"`
	// True if the image was set by a user and updates do not change it.
	Pinned bool `json:"pinned,omitempty"`
	// True while it serves what it had, and waits for other components to move first.
	Outdated bool `json:"outdated,omitempty"`
	// Reason for the state, in one word.
	Reason string `json:"reason,omitempty"`
	// Reason for the state, as a sentence.
	Message string `json:"message,omitempty"`
	// Time at which it entered the state.
	Since metav1.Time `json:"since,omitzero"`
	// Components that must become Available first.
	// +listType=set
	BlockedBy []string `json:"blockedBy,omitempty"`
	// Number of pods that it should have.
	Replicas int32 `json:"replicas,omitempty"`
	// Number of pods that are ready.
	Ready int32 `json:"ready,omitempty"`
	// Generation of the resource that the state was determined for.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ImageStatus is an image and its parts.
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

// WorkloadStatus is what older tools read of a component: status.<key>.imageStatus and status.<key>.phase.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +structType=atomic
type WorkloadStatus struct {
	Phase       string       `json:"phase,omitempty"`
	ImageStatus *ImageStatus `json:"imageStatus,omitempty"`
}

// BackupsStatus is what is known of the backups of a cloud.
type BackupsStatus struct {
	// Time of the last attempt.
	Last metav1.Time `json:"last,omitzero"`
	// Time of the latest backup that was restored on trial and compared.
	Proven metav1.Time `json:"proven,omitzero"`
	// Name of its file.
	Name string `json:"name,omitempty"`
	// Place where it lies.
	Place string `json:"place,omitempty"`
}

// CertificatesStatus is the status of the certificates of a cloud.
type CertificatesStatus struct {
	// Expiry of the certificate of the services.
	NotAfter metav1.Time `json:"notAfter,omitzero"`
	// Expiry of the CA that signed it.
	CANotAfter metav1.Time `json:"caNotAfter,omitzero"`
	// Time at which the operator next renews one of them.
	RenewAt metav1.Time `json:"renewAt,omitzero"`
	// True if a user provides the certificates.
	Supplied bool `json:"supplied,omitempty"`
	// The renewal in progress, or a problem.
	Message string `json:"message,omitempty"`
}

// ReleaseStatus is which of its releases a cloud runs.
type ReleaseStatus struct {
	// Revision of the release in force.
	Revision int `json:"revision,omitempty"`
	// Revision of the last release that every component served.
	Good int `json:"good,omitempty"`
	// Version of the release in force.
	Version string `json:"version,omitempty"`
}

// OnecloudClusterStatus is the observed state of a cloud.
//
// +kubebuilder:pruning:PreserveUnknownFields
type OnecloudClusterStatus struct {
	// Generation of the resource that the status was determined for.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// The cloud in one word.
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
	// What is known of its backups.
	// +nullable
	Backups *BackupsStatus `json:"backups,omitempty"`
	// What was done outside Kubernetes: the hash of each effect, by its key.
	// +mapType=atomic
	Effects map[string]string `json:"effects,omitempty"`

	// Release in force.
	Release ReleaseStatus `json:"release,omitzero"`

	// Operation that moves the cloud to another release.
	// +nullable
	Rollout *RolloutStatus `json:"rollout,omitempty"`

	// Values of the fields that cannot change, as last applied.
	Fixed map[string]string `json:"fixed,omitempty"`

	// What older tools read, by the JSON key of the component.
	Legacy `json:",inline"`
}

// EffectServed is the key of the first effect in which the identity service takes part.
const EffectServed = "identity/policy"

// HasRun reports whether users may depend on the cloud: its identity service has served once. That is so long before every component is Available,
// and stays so.
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

// Workload returns the place of a component's WorkloadStatus by its JSON key, or nil if older tools know no such component.
func (l *Legacy) Workload(key string) **WorkloadStatus {
	return map[string]**WorkloadStatus{
		"keystone": &l.Keystone, "region": &l.Region, "glance": &l.Glance, "scheduler": &l.Scheduler, "webconsole": &l.Webconsole,
		"monitor": &l.Monitor, "logger": &l.Logger, "apiGateway": &l.APIGateway, "web": &l.Web, "yunionconf": &l.Yunionconf,
		"kubeserver": &l.Kubeserver, "ansibleserver": &l.Ansibleserver, "cloudnet": &l.Cloudnet, "cloudproxy": &l.Cloudproxy,
		"cloudevent": &l.Cloudevent, "notify": &l.Notify, "baremetalagent": &l.Baremetalagent, "s3gateway": &l.S3gateway,
		"devtool": &l.Devtool, "meter": &l.Meter, "billing": &l.Billing, "autoupdate": &l.Autoupdate, "esxiagent": &l.Esxiagent,
		"ovnNorth": &l.OvnNorth, "vpcAgent": &l.VpcAgent, "itsm": &l.Itsm, "cloudid": &l.Cloudid, "cloudmon": &l.Cloudmon,
		"scheduledtask": &l.Scheduledtask, "apiMap": &l.APIMap, "report": &l.Report, "echarts": &l.Echarts, "bastionHost": &l.BastionHost,
		"extdb": &l.Extdb, "llm": &l.LLM, "mcpServer": &l.McpServer, "aiproxy": &l.Aiproxy, "victoriaMetrics": &l.VictoriaMetrics,
	}[key]
}
