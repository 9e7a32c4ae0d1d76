// SPDX-License-Identifier: Apache-2.0

package nodecerts

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/operation"
)

const (
	// Account is the service account of the pods. It has no permissions, and they get no token.
	Account = "onecloud-node-certificates"
	// LabelCloud is the Job label with the cloud that manages the certificates, AnnotationNode the annotation with the node.
	LabelCloud     = "onecloud.yunion.io/certificates-of"
	AnnotationNode = "onecloud.yunion.io/node"

	lookTimeout, renewTimeout = 5 * time.Minute, 15 * time.Minute
	// keepLook is how long an ended Job is kept: a failed one is then created again. keepRenewal is longer than an operation.
	keepLook, keepRenewal = 10 * time.Minute, 4 * time.Hour
	tries                 = 3
	reportFile            = "/dev/termination-log"

	kubernetesDir = "/etc/kubernetes"
	kubeletDir    = "/var/lib/kubelet/pki"
	runtimeSocket = "/run/containerd/containerd.sock"
	lockFile      = "/run/ocadm.lock"
)

// digest shortens a node's name so that it fits into another name.
func digest(node string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(node)))[:8]
}

// lookJob returns the Job that reads the certificates of a node. It is pure.
func lookJob(cloud *v1alpha1.OnecloudCluster, node, image string) *batchv1.Job {
	pod := podOn(cloud, node, image, []string{"--report=" + reportFile})
	mount(&pod, kubeletDir, corev1.HostPathDirectory, true)
	owner := metav1.NewControllerRef(cloud, v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	j := job(cloud.Namespace, cloud.Name+"-certificates-"+digest(node), *owner, node, pod, lookTimeout, keepLook)
	j.Labels[LabelCloud] = cloud.Name
	return j
}

// renewJob returns the Job that renews the certificates of a node. From the operation it uses the name, the creation time set by the API server, and
// whether to renew all; no text of the user enters. It is pure.
func renewJob(cloud *v1alpha1.OnecloudCluster, o *v1alpha1.OnecloudOperation, node, image string) *batchv1.Job {
	args := []string{"--report=" + reportFile, "--renew"}
	if everything(o) {
		args = append(args, "--since="+o.CreationTimestamp.UTC().Format(time.RFC3339))
	}
	pod := podOn(cloud, node, image, args)
	for i := range pod.Containers[0].VolumeMounts {
		if m := &pod.Containers[0].VolumeMounts[i]; m.MountPath == kubernetesDir {
			m.ReadOnly = false
		}
	}
	mount(&pod, kubeletDir, corev1.HostPathDirectory, false)
	mount(&pod, runtimeSocket, corev1.HostPathSocket, false)
	mount(&pod, lockFile, corev1.HostPathFileOrCreate, false)
	owner := metav1.NewControllerRef(o, v1alpha1.GroupVersion.WithKind(v1alpha1.OperationKind))
	return job(cloud.Namespace, o.Name+"-"+digest(node), *owner, node, pod, renewTimeout, keepRenewal)
}

func job(namespace, name string, owner metav1.OwnerReference, node string, pod corev1.PodSpec, timeout, keep time.Duration) *batchv1.Job {
	j := operation.NewJob(namespace, name, map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy}, owner, pod, tries, timeout, keep)
	j.Annotations = map[string]string{AnnotationNode: node}
	return j
}

// podOn returns a pod on a control-plane node. It runs as root, which owns these files, without capabilities or a token: with the files of the node, it
// has an administrator's permissions anyway.
func podOn(cloud *v1alpha1.OnecloudCluster, node, image string, args []string) corev1.PodSpec {
	how := operation.Job{Account: Account, ControlPlane: true}
	pod := how.Pod(cloud, image, append([]string{"operator", "node-certificates"}, args...))
	pod.AutomountServiceAccountToken = new(false)
	pod.Containers[0].SecurityContext.ReadOnlyRootFilesystem = new(true)
	pod.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
		}}},
	}}}
	return pod
}

func mount(pod *corev1.PodSpec, path string, kind corev1.HostPathType, readOnly bool) {
	name := "host-" + digest(path)
	pod.Volumes = append(slices.Clone(pod.Volumes), corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: path, Type: &kind},
	}})
	main := &pod.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: readOnly})
}
