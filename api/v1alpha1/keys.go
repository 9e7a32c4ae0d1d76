// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Annotations of a cloud.
const (
	// AnnotationEdition holds ce, ce/support or ee; absent means ce.
	AnnotationEdition = "onecloud.yunion.io/edition"
	// AnnotationDefaultImages holds the repository and release, "REPOSITORY:VERSION", of the images that the operator wrote into the spec. Exported
	// files carry it, so that the operator recognizes these images as defaults wherever the file is applied.
	AnnotationDefaultImages = "onecloud.yunion.io/default-images"
	// AnnotationPaused "true" on a cloud or on one of its workloads stops the operator from changing it.
	AnnotationPaused = "onecloud.yunion.io/paused"
	// AnnotationPausedBefore on a stopped cloud holds the previous value of AnnotationPaused, "" if it was absent. A start restores it.
	AnnotationPausedBefore = "onecloud.yunion.io/paused-before"
	// AnnotationStoppedBy on a stopped cloud names the operation that stopped it, or is StoppedByRestore. It is absent if a user did.
	AnnotationStoppedBy = "onecloud.yunion.io/stopped-by"
	// StoppedByRestore means that a restore of etcd brought the cloud back and stopped it. No operation can have this name.
	StoppedByRestore = "etcd restore"
)

// AnnotationAbandon "databases" on a cloud that is being deleted keeps its databases and accounts, whatever the deletion policy.
const AnnotationAbandon = "onecloud.yunion.io/abandon"

// AnnotationAdoptDatabases is a comma-separated list of what the cloud may adopt on its database servers: names of existing databases and accounts that
// belong to no cloud, and other clouds as namespace/name/id, whose databases and accounts it adopts.
const AnnotationAdoptDatabases = "onecloud.yunion.io/adopt-databases"

// AnnotationDeleteBackups "true" on a cloud makes spec.deletionPolicy Delete also delete the volume with its backups.
const AnnotationDeleteBackups = "onecloud.yunion.io/delete-backups"

// AnnotationSupplied "true" on Secret <cloud>-certs means that a user provides its certificates; the operator only uses them.
const AnnotationSupplied = "onecloud.yunion.io/supplied"

// AnnotationRevision on the CRD of OnecloudCluster is its revision, a decimal number. An operator replaces only an earlier revision.
const AnnotationRevision = "onecloud.yunion.io/definition-revision"

// AnnotationUpdateFrom on a cloud holds the revision of its release. It lets the operator re-render that release with its own build.
const AnnotationUpdateFrom = "onecloud.yunion.io/update-from-release"

// AnnotationAtOnce on a cloud holds the revision of its release. It lets the operator move that release to another version without an operation: all
// components at once, without checks, database copies or rollback.
const AnnotationAtOnce = "onecloud.yunion.io/update-at-once"

// AnnotationOperation on a cloud names an action: the operator creates an operation for it and removes the annotation. On a machine it holds one of the
// Request constants, which the operator replaces with the result.
const AnnotationOperation = "onecloud.yunion.io/operation"

// LabelNoNode is a label that no node has. A DaemonSet that selects it has no pods.
const LabelNoNode = "onecloud.yunion.io/stopped"

// LabelRelease on a Secret holds the revision of the release stored in it.
const LabelRelease = "onecloud.yunion.io/release"

// Annotations of the operator's objects.
const (
	// AnnotationConfigHash on a pod template restarts the pods when their configuration changes.
	AnnotationConfigHash = "onecloud.yunion.io/config-hash"
	// AnnotationCertHash on a pod template restarts the pods when their certificates change.
	AnnotationCertHash = "onecloud.yunion.io/cert-hash"
	// AnnotationAcceptOptions on the ConfigMap of a service is a comma-separated list of options that the release supports but the operator does not know.
	AnnotationAcceptOptions = "onecloud.yunion.io/accept-options"
	// AnnotationVolumePath on a claim sets the directory on the node that the provisioner must use.
	AnnotationVolumePath = "pvc.onecloud.yunion.io/pv-path"
)

// Labels of the operator's objects. They are also selectors and must never change.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelManagedBy = "app.kubernetes.io/managed-by"
	LabelInstance  = "app.kubernetes.io/instance"
	LabelComponent = "app.kubernetes.io/component"
	LabelApp       = "app"

	ValueName      = "onecloud-cluster"
	ValueManagedBy = "onecloud-operator"
	// InstancePrefix followed by the name of the cloud is the value of LabelInstance.
	InstancePrefix = "onecloud-cluster-"
)

// NodeRolePrefix followed by a role (controller, host, baremetal, lbagent) is a node label with the value Enable.
const (
	NodeRolePrefix = "onecloud.yunion.io/"
	Enable         = "enable"
)

// LabelControlPlane is the label and taint with which kubeadm marks control-plane nodes.
const LabelControlPlane = "node-role.kubernetes.io/control-plane"

// Finalizer keeps a cloud until everything outside Kubernetes has been released.
const Finalizer = "onecloud.yunion.io/cloud"

// SecretCredentials and the others are suffixes of the names of shared objects: <cloud>-<suffix>.
const (
	SecretCredentials = "credentials"
	SecretCerts       = "certs"
	// SecretIngressCerts holds the service certificate for the Ingress if a user provides it.
	SecretIngressCerts = "ingress-certs"
	SecretEtcdServer   = "etcd-server"
	SecretEtcdPeer     = "etcd-peer"
	SecretEtcdClient   = "etcd-client"
)

// DatabaseSecret is the Secret with the administrator's password for a database server outside the cluster. ocadm init creates it.
const DatabaseSecret = "ocadm-database"

// Field managers. A field of the spec that ManagerDefaults owns is a default; a user chose any other.
const (
	ManagerOperator = "ocadm-operator"
	ManagerDefaults = "ocadm-operator-defaults"
	// ManagerEarlier is the earlier operator, which wrote its defaults into the spec.
	ManagerEarlier = "onecloud-controller-manager"
	// ManagerAdoption owns the users' options found in files of the earlier operator. They count as set by users.
	ManagerAdoption = "ocadm-adoption"
)
