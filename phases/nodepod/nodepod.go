// SPDX-License-Identifier: Apache-2.0

// Package nodepod creates pods that run this program on one control-plane node, for work that must happen on that machine.
package nodepod

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
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
	// startLimit is how long a pod may be stuck: the kubelet tries again, and the registry or the container runtime may only be restarting.
	startLimit = time.Minute
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

// Await waits until a pod has ended, and returns its message. If the pod could not do its work, the error is f, with why and what the pod said. It calls
// waiting with what it waits for.
func Await(ctx context.Context, k client.Client, name string, f finding.Finding, waiting func(why string)) (said string, err error) {
	var lacks error
	var stuck time.Time
	err = wait.Until(ctx, "pod "+name, interval, func(ctx context.Context) (bool, string, error) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		var p corev1.Pod
		there, err := kube.Find(ctx, k, client.ObjectKey{Namespace: Namespace, Name: name}, &p, "pod "+name)
		if err != nil {
			return false, "", err
		}
		if !kube.Stuck(&p) {
			stuck = time.Time{}
		} else if stuck.IsZero() {
			stuck = time.Now()
		}
		said = message(&p)
		switch {
		case !there:
			f.Cause = "its pod was deleted"
		case p.Status.Phase == corev1.PodFailed:
			first, _, _ := strings.Cut(strings.TrimSpace(said), "\n")
			f.Cause = cmp.Or(first, strings.TrimSpace("its pod failed "+p.Status.Reason+" "+p.Status.Message))
		case !stuck.IsZero() && time.Since(stuck) >= startLimit:
			f.Cause, lacks = "its pod does not start: "+kube.PodTrouble(&p), kube.NoImage(&p)
		}
		return f.Cause != "" || p.Status.Phase == corev1.PodSucceeded, cmp.Or(kube.PodTrouble(&p), "its pod is running"), nil
	}, waiting)
	if err == nil && f.Cause != "" {
		err = cmp.Or(lacks, error(f.With(strings.FieldsFunc(said, func(r rune) bool { return r == '\n' })...)))
	}
	return said, err
}

// Delete deletes a pod and waits until it is gone. It repeats a request that is not answered: an API server may restart meanwhile.
func Delete(ctx context.Context, k client.Client, name string, waiting func(why string)) error {
	var refused error
	err := wait.Until(ctx, "the end of pod "+name, interval, func(ctx context.Context) (bool, string, error) {
		ctx, cancel := context.WithTimeout(ctx, askTimeout)
		defer cancel()
		err := k.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: name}})
		if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsUnauthorized(err) {
			refused = fmt.Errorf("deleting pod %s: %w", name, err)
			return true, "", nil
		}
		return apierrors.IsNotFound(err), "its pod has not ended", client.IgnoreNotFound(err)
	}, waiting)
	return cmp.Or(refused, err)
}

// message returns what the program of a pod left when it ended.
func message(p *corev1.Pod) string {
	for _, c := range p.Status.ContainerStatuses {
		if t := c.State.Terminated; t != nil {
			return strings.TrimSpace(t.Message)
		}
	}
	return ""
}
