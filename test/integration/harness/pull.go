// SPDX-License-Identifier: Apache-2.0

package harness

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/ptr"
)

// Withdraw removes from all registries the images whose names contain a text; "" restores all images.
func (k *Kubelet) Withdraw(text string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.gone = append(k.gone, text); text == "" {
		k.gone = nil
	}
}

func (k *Kubelet) withdrawn(image string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.gone, func(text string) bool { return strings.Contains(image, text) })
}

// neverStarts reports whether the kubelet refuses to start the containers of a pod after it has pulled the images, because they must not run as root but have user 0.
func neverStarts(p *corev1.Pod) bool {
	s := p.Spec.SecurityContext
	return s != nil && ptr.Deref(s.RunAsNonRoot, false) && s.RunAsUser != nil && *s.RunAsUser == 0
}

// pull reports on a pod that only pulls images, as a kubelet does: k8s.io/kubernetes/pkg/kubelet/images and .../kuberuntime, with containerd's messages.
func (k *Kubelet) pull(ctx context.Context, object any, held bool) error {
	p := object.(*corev1.Pod)
	if p.DeletionTimestamp != nil || p.Spec.NodeName == "" || !neverStarts(p) || held || k.lost(p.Spec.NodeName) {
		return nil
	}
	status := corev1.PodStatus{Phase: corev1.PodPending, StartTime: p.Status.StartTime, HostIP: "127.0.0.1"}
	status.StartTime = cmp.Or(status.StartTime, ptr.To(Now()))
	for _, c := range p.Spec.Containers {
		one := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Started: ptr.To(false)}
		waits := &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError",
			Message: fmt.Sprintf("container's runAsUser breaks non-root policy (pod: %q, container: %s)", p.Name+"_"+p.Namespace+"("+string(p.UID)+")", c.Name)}
		if k.withdrawn(c.Image) {
			answer := fmt.Sprintf("rpc error: code = NotFound desc = failed to pull and unpack image %q: failed to resolve reference %q: %s: not found", c.Image, c.Image, c.Image)
			waits = &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: answer}
			if len(p.Status.ContainerStatuses) > 0 { // it has tried once
				waits.Reason, waits.Message = "ImagePullBackOff", fmt.Sprintf("Back-off pulling image %q: ErrImagePull: %s", c.Image, answer)
			}
		}
		one.State.Waiting = waits
		status.ContainerStatuses = append(status.ContainerStatuses, one)
	}
	if equality.Semantic.DeepEqual(status.ContainerStatuses, p.Status.ContainerStatuses) {
		return nil
	}
	return ReportStatus(ctx, k.client, p, status)
}
