// SPDX-License-Identifier: Apache-2.0

// Package nodepod creates pods that run this program on one control-plane node, for work that must happen on that machine.
package nodepod

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/wait"
)

// Namespace is the namespace of the pods.
const Namespace = metav1.NamespaceSystem

const (
	interval = time.Second
	// priority is the class of pods without which the node or the cluster does not work.
	priority = "system-node-critical"
	// askTimeout bounds a request to an API server that may be down.
	askTimeout = 5 * time.Second
)

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: Namespace, Name: name, Labels: map[string]string{"app": name, "app.kubernetes.io/managed-by": "ocadm"}}
}

// New returns a pod on a node that lives for at most life. It sees the machine's processes and is privileged, so that it can enter the machine's root, and
// it stays when the node is considered lost.
func New(name, image, node string, life time.Duration, args ...string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: named(name),
		Spec: corev1.PodSpec{
			NodeName: node, HostPID: true, HostNetwork: true, RestartPolicy: corev1.RestartPolicyNever, PriorityClassName: priority,
			Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			ActiveDeadlineSeconds:        new(int64(life.Seconds())),
			AutomountServiceAccountToken: new(false), EnableServiceLinks: new(false),
			Containers: []corev1.Container{{
				Name: "main", Image: image, ImagePullPolicy: corev1.PullIfNotPresent, Args: args,
				Env:                      []corev1.EnvVar{{Name: "PATH", Value: "/usr/sbin:/usr/bin:/sbin:/bin"}}, // the machine's
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
				SecurityContext:          &corev1.SecurityContext{Privileged: new(true), RunAsUser: new(int64(0)), RunAsGroup: new(int64(0))},
			}},
		},
	}
}

// Await waits until a pod has ended, and returns why it could not do its work, "" if it did. It calls waiting with what it waits for.
func Await(ctx context.Context, k client.Client, name string, waiting func(why string)) (string, error) {
	var why string
	var lacks error
	err := wait.Until(ctx, "pod "+name, interval, func(ctx context.Context) (bool, string, error) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		var p corev1.Pod
		if err := k.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, &p); err != nil {
			return false, "", err
		}
		why, lacks = stuck(&p), NoImage(&p)
		return why != "" || lacks != nil || p.Status.Phase == corev1.PodSucceeded, "its pod on " + p.Spec.NodeName + " is " + string(p.Status.Phase), nil
	}, waiting)
	return why, errors.Join(err, lacks)
}

// NoImage returns a finding if the pod's node cannot get ocadm's image. The kubelet would keep trying for as long as the pod lives.
func NoImage(p *corev1.Pod) error {
	for _, c := range p.Status.ContainerStatuses {
		w := c.State.Waiting
		if w == nil || w.Reason != "ErrImagePull" && w.Reason != "ImagePullBackOff" && w.Reason != "ErrImageNeverPull" {
			continue
		}
		image := p.Spec.Containers[0].Image
		return finding.New("OCA-4175", "Node "+p.Spec.NodeName+" cannot pull the image "+image, w.Reason+": "+w.Message,
			"if this control-plane node has a depot, here: ocadm depot add \"$(command -v ocadm)\" --name "+image+"; otherwise: ocadm image push "+image+
				"; then run the same command again")
	}
	return nil
}

// Delete deletes a pod and waits until it is gone.
func Delete(ctx context.Context, k client.Client, name string, waiting func(why string)) error {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}}
	if err := client.IgnoreNotFound(k.Delete(ctx, p)); err != nil {
		return fmt.Errorf("deleting pod %s: %w", name, err)
	}
	return wait.Until(ctx, "the end of pod "+name, interval, func(ctx context.Context) (bool, string, error) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		err := k.Get(ctx, client.ObjectKeyFromObject(p), p)
		return err != nil && client.IgnoreNotFound(err) == nil, "it has not ended", client.IgnoreNotFound(err)
	}, waiting)
}

// stuck returns why a pod cannot do its work, "" if it still may.
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
		if w := c.State.Waiting; w != nil && w.Reason == "CreateContainerError" {
			return "its pod does not start: " + w.Reason + ": " + w.Message
		}
	}
	return ""
}
