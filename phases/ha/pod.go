// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/internal/nodefault"
)

const (
	namespace = metav1.NamespaceSystem
	// name is that of what a test leaves in the cluster while it runs: the pod that makes a fault, and the ConfigMap that is written to meanwhile.
	name = "ocadm-ha-test"
	// podSpare is how much longer than its fault the pod may live. A node that is cut off reports its end later.
	podSpare = 2 * time.Minute
)

// pod makes a fault on a node. It sees the processes of the machine and is privileged, to reach the systemd of the machine; it stays when the node is taken for lost.
func pod(image, node string, kind nodefault.Kind, length time.Duration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Labels: map[string]string{"app": name, "app.kubernetes.io/managed-by": "ocadm"}},
		Spec: corev1.PodSpec{
			NodeName: node, HostPID: true, HostNetwork: true, RestartPolicy: corev1.RestartPolicyNever, PriorityClassName: "system-node-critical",
			Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			ActiveDeadlineSeconds:        new(int64((length + podSpare).Seconds())),
			AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			Containers: []corev1.Container{{
				Name: "fault", Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Args: []string{"ha", "fault", string(kind), "--for", length.String()},
				Env:                      []corev1.EnvVar{{Name: "PATH", Value: "/usr/sbin:/usr/bin:/sbin:/bin"}}, // of the machine
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
				SecurityContext:          &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0)), RunAsGroup: new(int64(0))},
			}},
		},
	}
}

// stuck says why a pod does not do its work, "" while it may.
func stuck(p *corev1.Pod) string {
	if p.Status.Phase == corev1.PodFailed {
		for _, c := range p.Status.ContainerStatuses {
			if t := c.State.Terminated; t != nil && t.Message != "" {
				return t.Message
			}
		}
		return "its pod failed: " + p.Status.Reason + " " + p.Status.Message
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil && (w.Reason == "ErrImagePull" || w.Reason == "ImagePullBackOff" || w.Reason == "ErrImageNeverPull" || w.Reason == "CreateContainerError") {
			return "its pod does not start: " + w.Reason + ": " + w.Message
		}
	}
	return ""
}
