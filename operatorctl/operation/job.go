// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/images"
)

// Job describes the pod that an operation runs in.
type Job struct {
	// Account is the service account of the pod.
	Account string
	// Secrets are mounted into the pod, because its account may not read any. A missing one becomes an empty directory.
	Secrets []string
	// ControlPlane runs the pod on a control-plane node, as root and with the Kubernetes files there: etcd accepts nothing else. Avoid is a node on which
	// it must not run.
	ControlPlane bool
	Avoid        string
	// Network runs the pod as root in the network of a control-plane node, and lets it capture packets there.
	Network bool
}

// Environment variables of a pod in the network of its node.
const (
	EnvNode    = "NODE_NAME"
	EnvAddress = "HOST_IP"
)

const (
	// SecretsDir holds a directory for each Secret of a Job.
	SecretsDir = "/etc/ocadm/secrets"
	// podTries is how many pods of a Job may end before the operation does; spare is how long the last of them has to report that.
	podTries, spare = 5, 2 * time.Minute
	// keepJob is how long an ended Job is kept. The operation keeps the log and the causes for longer.
	keepJob = 10 * time.Minute
	// graceOfPod is how many seconds a pod may take to end, awayFor how many its node may be away before another pod starts.
	graceOfPod, awayFor = 30, 30
	// nobody is the user of the pod, and the group that may read its Secrets.
	nobody = 65532
)

// jobOf returns the Job of an operation. It contains nothing secret. It is pure.
func jobOf(o *v1alpha1.OnecloudOperation, cloud *v1alpha1.OnecloudCluster, j Job, image string, timeout time.Duration) *batchv1.Job {
	pod := j.Pod(cloud, image, []string{"operator", "work", o.Name, "--secrets=" + SecretsDir})
	owner := metav1.NewControllerRef(o, v1alpha1.GroupVersion.WithKind(v1alpha1.OperationKind))
	return NewJob(o.Namespace, o.Name, labelsOf(o), *owner, pod, podTries, timeout+spare, keepJob)
}

// labelsOf returns the labels of an operation's Job and of its pods.
func labelsOf(o *v1alpha1.OnecloudOperation) map[string]string {
	return map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy, v1alpha1.LabelOperation: o.Name, v1alpha1.LabelOperationCloud: o.Spec.Cloud}
}

// NewJob returns a Job of at most so many pods, limited to timeout in total and kept for keep after its end. It is pure.
func NewJob(namespace, name string, labels map[string]string, owner metav1.OwnerReference, pod corev1.PodSpec, pods int32, timeout, keep time.Duration) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec: batchv1.JobSpec{
			BackoffLimit: new(pods - 1), ActiveDeadlineSeconds: new(int64(timeout.Seconds())), TTLSecondsAfterFinished: new(int32(keep.Seconds())),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(labels)}, Spec: pod},
		},
	}
}

// Pod returns the spec of a Job's pod that runs ocadm with arguments. It is pure.
func (j Job) Pod(cloud *v1alpha1.OnecloudCluster, image string, args []string) corev1.PodSpec {
	field := func(path string) *corev1.EnvVarSource {
		return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}
	}
	main := corev1.Container{
		Name: "ocadm", Image: image, ImagePullPolicy: corev1.PullPolicy(images.PullPolicy(image)),
		Args: args,
		Env: []corev1.EnvVar{
			{Name: "POD_NAME", ValueFrom: field("metadata.name")}, {Name: "POD_NAMESPACE", ValueFrom: field("metadata.namespace")},
		},
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("20m"), corev1.ResourceMemory: resource.MustParse("48Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("256Mi")},
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	pod := corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, ServiceAccountName: j.Account, EnableServiceLinks: new(false),
		TerminationGracePeriodSeconds: new(int64(graceOfPod)), ImagePullSecrets: cloud.Spec.ImagePullSecrets,
		NodeSelector: map[string]string{corev1.LabelOSStable: "linux"}, Affinity: nearOperator(), Tolerations: tolerations(),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), RunAsUser: new(int64(nobody)), RunAsGroup: new(int64(nobody)), FSGroup: new(int64(nobody)),
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
	for i, name := range j.Secrets {
		volume := fmt.Sprintf("secret-%d", i)
		pod.Volumes = append(pod.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: name, DefaultMode: new(int32(0o440)), Optional: new(true)},
		}})
		main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: SecretsDir + "/" + name, ReadOnly: true})
	}
	pod.Containers = []corev1.Container{main}
	switch main := &pod.Containers[0]; {
	case j.ControlPlane:
		onControlPlane(&pod, j.Avoid)
	case j.Network:
		inNetwork(&pod)
		main.Env = append(main.Env, corev1.EnvVar{Name: EnvNode, ValueFrom: field("spec.nodeName")}, corev1.EnvVar{Name: EnvAddress, ValueFrom: field("status.hostIP")})
		main.SecurityContext.Capabilities.Add = []corev1.Capability{"NET_RAW"}
	}
	return pod
}

// inNetwork makes a pod run as root in the network of a control-plane node.
func inNetwork(pod *corev1.PodSpec) {
	pod.NodeSelector[v1alpha1.LabelControlPlane] = ""
	pod.HostNetwork, pod.DNSPolicy = true, corev1.DNSDefault
	pod.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: pod.SecurityContext.SeccompProfile, RunAsUser: new(int64), RunAsGroup: new(int64)}
}

// filesOfKubernetes holds, on each control-plane node, the certificates of etcd, the CAs and an administrator's kubeconfig.
const filesOfKubernetes = "/etc/kubernetes"

// onControlPlane gives a pod the files of a control-plane node, which only root may read. In the network of the node, it reaches etcd, and the API server
// by the name that the node knows.
func onControlPlane(pod *corev1.PodSpec, avoid string) {
	inNetwork(pod)
	if avoid != "" {
		other := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpNotIn, Values: []string{avoid}}
		pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{other}}},
		}
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: "kubernetes", VolumeSource: corev1.VolumeSource{
		HostPath: &corev1.HostPathVolumeSource{Path: filesOfKubernetes, Type: new(corev1.HostPathDirectory)},
	}})
	main := &pod.Containers[0]
	main.VolumeMounts = append(main.VolumeMounts, corev1.VolumeMount{Name: "kubernetes", MountPath: filesOfKubernetes, ReadOnly: true})
	main.SecurityContext.ReadOnlyRootFilesystem = nil // kubeadm's programs write temporary files
}

// nearOperator prefers the nodes of the operator, which already have the image.
func nearOperator() *corev1.Affinity {
	role := corev1.NodeSelectorRequirement{Key: v1alpha1.NodeRolePrefix + "controller", Operator: corev1.NodeSelectorOpIn, Values: []string{v1alpha1.Enable}}
	const weight = 100
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
		{Weight: weight, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{role}}},
	}}}
}

// tolerations lets the pod run on control-plane nodes, and leave an unreachable node.
func tolerations() []corev1.Toleration {
	var out []corev1.Toleration
	for _, key := range []string{v1alpha1.LabelControlPlane, "node-role.kubernetes.io/master"} {
		out = append(out, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})
	}
	for _, key := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		out = append(out, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(awayFor))})
	}
	return out
}

// taken reports whether a pod or program runs the operation.
func taken(o *v1alpha1.OnecloudOperation) bool {
	return o.Status.Worker != nil && o.Status.Worker.Pod != "" || o.Status.Runner != nil
}

// disown revokes the right of the operation's pod to write its status.
func disown(s *v1alpha1.OnecloudOperationStatus) {
	if s.Worker != nil {
		s.Worker.Pod = ""
	}
}

// Ended reports whether a Job is complete, and returns why it failed.
func Ended(job *batchv1.Job) (complete bool, failed string) {
	for _, c := range job.Status.Conditions {
		switch {
		case c.Status != corev1.ConditionTrue:
		case c.Type == batchv1.JobComplete:
			complete = true
		case c.Type == batchv1.JobFailed:
			failed = cmp.Or(strings.TrimSuffix(c.Reason+": "+c.Message, ": "), "no reason given")
		}
	}
	return complete, failed
}
