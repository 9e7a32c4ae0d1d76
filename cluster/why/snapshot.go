// SPDX-License-Identifier: Apache-2.0

// Package why finds the cause of a symptom. It works on a Snapshot alone: it calls no API server, reads no file and uses no clock, so that the same
// analysis runs on a live cluster and on a support bundle from another site. Package gather takes snapshots.
//
// Three things are values: the snapshot, the causes (files causes_*.go, an entry for each) and the report. A cause that matches yields a Hit on a
// Subject, such as a node, a pod or the database. Subjects depend on each other (file graph.go). The report starts with the hit that no other hit
// explains.
package why

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/operatorctl/component"
)

// Format is the version of Snapshot's serialised form. Readers refuse any other.
const Format = 1

// Snapshot is the state of a cloud, its Kubernetes cluster and its machines at one time. It holds no secret.
type Snapshot struct {
	Format int       `json:"format"`
	Time   time.Time `json:"time"`
	// Program is the version of ocadm that took it, Host the machine on which it ran.
	Program string `json:"program"`
	Host    string `json:"host,omitempty"`
	// Namespace and Name of the requested cloud.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Refused explains why the API server, or the cloud, could not be read; nil if they could.
	Refused *finding.Finding `json:"refused,omitempty"`
	// Silent explains why the cluster's endpoint did not answer, so that the API server of control-plane node Host was used; "" if it did.
	Silent string `json:"silent,omitempty"`
	// Cloud is nil if there is none.
	Cloud      *v1alpha1.OnecloudCluster    `json:"cloud,omitempty"`
	Operations []v1alpha1.OnecloudOperation `json:"operations,omitempty"`
	Nodes      []corev1.Node                `json:"nodes,omitempty"`
	// Pods and the other objects are from the namespaces of the cloud, of its operator and of what a cluster needs to run pods.
	Pods         []corev1.Pod                   `json:"pods,omitempty"`
	Deployments  []appsv1.Deployment            `json:"deployments,omitempty"`
	StatefulSets []appsv1.StatefulSet           `json:"statefulSets,omitempty"`
	DaemonSets   []appsv1.DaemonSet             `json:"daemonSets,omitempty"`
	Claims       []corev1.PersistentVolumeClaim `json:"claims,omitempty"`
	Volumes      []corev1.PersistentVolume      `json:"volumes,omitempty"`
	Classes      []storagev1.StorageClass       `json:"classes,omitempty"`
	Leases       []coordinationv1.Lease         `json:"leases,omitempty"`
	Events       []corev1.Event                 `json:"events,omitempty"`
	// Logs are the last lines of containers: for "ocadm why" of the unhealthy ones, in a support bundle of all.
	Logs []Log `json:"logs,omitempty"`
	// Disks are the file systems reported by the kubelets.
	Disks []Disk `json:"disks,omitempty"`
	// Machines are those inspected from within: the one on which ocadm ran as root in full, of the others only the journals; for "ocadm why"
	// only those that are not Ready.
	Machines []Machine `json:"machines,omitempty"`
	// Missing lists what could not be read, and why.
	Missing []string `json:"missing,omitempty"`
}

// NotAsked lists the codes of Refused for which only ocadm's own machine was inspected: a worker has no kubeconfig.
var NotAsked = []string{"OCA-4201", "OCA-4202"}

func (s *Snapshot) notAsked() bool {
	return s.Refused != nil && slices.Contains(NotAsked, s.Refused.Code)
}

// Log is the end of a container's log.
type Log struct {
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	// Previous is true for the container's previous run.
	Previous bool     `json:"previous,omitempty"`
	Lines    []string `json:"lines"`
}

// Units lists the units of a node whose journals are read.
var Units = []string{"containerd", "kubelet"}

// foreign reports whether a pod is not to blame for this cloud: it belongs to another one, or to an operation, which reports its failure itself.
func (s *Snapshot) foreign(p corev1.Pod) bool {
	ofOperation := slices.ContainsFunc(p.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == v1alpha1.OperationKind })
	ofCloud := p.Labels[v1alpha1.LabelName] == v1alpha1.ValueName && p.Labels[v1alpha1.LabelComponent] != ""
	return ofOperation || ofCloud && (p.Namespace != s.Namespace || !component.OfCloud(&p, s.Name))
}
