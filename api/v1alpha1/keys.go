// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Annotations of a cloud.
const (
	// AnnotationEdition holds ce, ce/support or ee; absent means ce.
	AnnotationEdition = "onecloud.yunion.io/edition"
	// AnnotationDefaultImages holds the repository and release, "REPOSITORY:VERSION", whose images the operator wrote into the spec. It
	// travels with a saved file, so that the images in it are known as defaults wherever the file is applied.
	AnnotationDefaultImages = "onecloud.yunion.io/default-images"
	// AnnotationPaused "true" on a cloud, or on a workload of it, makes the operator leave it as it is.
	AnnotationPaused = "onecloud.yunion.io/paused"
	// AnnotationPausedBefore on a cloud that was stopped holds what AnnotationPaused held before, "" for nothing: a start brings it back.
	AnnotationPausedBefore = "onecloud.yunion.io/paused-before"
	// AnnotationStoppedBy on a cloud that was stopped names the operation that did it, or is StoppedByRestore; absent if a person did.
	AnnotationStoppedBy = "onecloud.yunion.io/stopped-by"
	// StoppedByRestore says that a restore of etcd brought the cloud back and stopped it. No operation can have this name.
	StoppedByRestore = "etcd restore"
)

// AnnotationAbandon "databases" on a cloud that is being deleted leaves its databases and accounts where they are, whatever the policy.
const AnnotationAbandon = "onecloud.yunion.io/abandon"

// AnnotationAdoptDatabases lists, with commas, what the cloud may take over on its database servers: the names of databases and accounts that
// exist and belong to no cloud, and other clouds as namespace/name/id, whose databases and accounts it wants.
const AnnotationAdoptDatabases = "onecloud.yunion.io/adopt-databases"

// AnnotationDeleteBackups "true" on a cloud lets spec.deletionPolicy Delete delete the volume with its backups too.
const AnnotationDeleteBackups = "onecloud.yunion.io/delete-backups"

// AnnotationSupplied "true" on Secret <cloud>-certs says that a person keeps the certificates in it; the operator only uses them.
const AnnotationSupplied = "onecloud.yunion.io/supplied"

// AnnotationRevision on the definition of OnecloudCluster counts its changes, in decimal: an operator replaces only an earlier revision.
const AnnotationRevision = "onecloud.yunion.io/definition-revision"

// AnnotationUpdateFrom on a cloud holds the revision of its release. It lets the operator bring that release to what its own build renders.
const AnnotationUpdateFrom = "onecloud.yunion.io/update-from-release"

// AnnotationAtOnce on a cloud holds the revision of its release. It lets the operator move that release to another version without an operation:
// every component at once, without checks, copies of the databases or a way back.
const AnnotationAtOnce = "onecloud.yunion.io/update-at-once"

// AnnotationOperation on a cloud names an action: the operator creates an operation for it and removes the annotation. On a machine it holds one of the
// words of RequestCreating, and the operator replaces it with how that ended.
const AnnotationOperation = "onecloud.yunion.io/operation"

// LabelNoNode is a label that no node has: a DaemonSet whose selector asks for it has no pods.
const LabelNoNode = "onecloud.yunion.io/stopped"

// LabelRelease of a Secret holds the revision of the release in it.
const LabelRelease = "onecloud.yunion.io/release"

// Annotations of what the operator makes.
const (
	// AnnotationConfigHash on a pod template rolls the pods when their configuration changes.
	AnnotationConfigHash = "onecloud.yunion.io/config-hash"
	// AnnotationCertHash on a pod template rolls the pods when their certificates change.
	AnnotationCertHash = "onecloud.yunion.io/cert-hash"
	// AnnotationAcceptOptions on the ConfigMap of a service names options, with commas, that its release knows though the operator does not.
	AnnotationAcceptOptions = "onecloud.yunion.io/accept-options"
	// AnnotationVolumePath on a claim asks the provisioner for a fixed directory of the node.
	AnnotationVolumePath = "pvc.onecloud.yunion.io/pv-path"
)

// Labels of what the operator makes; they are selectors too and must never change.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelInstance  = "app.kubernetes.io/instance"
	LabelComponent = "app.kubernetes.io/component"
	LabelApp       = "app"

	ValueName      = "onecloud-cluster"
	ValueManagedBy = "onecloud-operator"
	// InstancePrefix and the name of the cloud make the value of LabelInstance.
	InstancePrefix = "onecloud-cluster-"
)

// NodeRolePrefix and a role (controller, host, baremetal, lbagent) make a node label; its value is Enable.
const (
	NodeRolePrefix = "onecloud.yunion.io/"
	Enable         = "enable"
)

// LabelControlPlane is how kubeadm marks a control-plane node, as label and as taint.
const LabelControlPlane = "node-role.kubernetes.io/control-plane"

// Finalizer keeps a cloud until everything outside Kubernetes is released.
const Finalizer = "onecloud.yunion.io/cloud"

// SecretCredentials and the like are suffixes of the names of shared objects: <cloud>-<suffix>.
const (
	SecretCredentials = "credentials"
	SecretCerts       = "certs"
	SecretEtcdServer  = "etcd-server"
	SecretEtcdPeer    = "etcd-peer"
	SecretEtcdClient  = "etcd-client"
)

// DatabaseSecret is the Secret with the administrator's password of a database server outside the cluster. ocadm init makes it.
const DatabaseSecret = "ocadm-database"

// Field managers. A field of the spec that ManagerDefaults owns is a default, any other a choice.
const (
	ManagerOperator = "ocadm-operator"
	ManagerDefaults = "ocadm-operator-defaults"
	// ManagerEarlier is the earlier operator, which wrote its defaults into the spec.
	ManagerEarlier = "onecloud-controller-manager"
	// ManagerAdoption owns the options of people that were found in files of the earlier operator: they count as people's.
	ManagerAdoption = "ocadm-adoption"
)
