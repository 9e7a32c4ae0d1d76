// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"
	"net"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
)

// watchBare runs the pods that others create.
func (k *Kubelet) watchBare(ctx context.Context, factory informers.SharedInformerFactory) error {
	_, err := factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if p, ok := object.(*corev1.Pod); ok && p.Spec.NodeName == "" && len(p.OwnerReferences) > 0 && p.Status.Phase == corev1.PodPending {
				k.runBare(ctx, p.DeepCopy())
			}
		},
		UpdateFunc: func(_, object any) {
			if p, ok := object.(*corev1.Pod); ok && p.DeletionTimestamp != nil {
				k.endBare(p)
			}
		},
		DeleteFunc: func(object any) {
			if d, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = d.Obj
			}
			if p, ok := object.(*corev1.Pod); ok {
				k.endBare(p)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching pods: %w", err)
	}
	return nil
}

func (k *Kubelet) runBare(ctx context.Context, object *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.bare[object.UID] != nil || ctx.Err() != nil {
		return
	}
	k.serial++
	p := &pod{
		w: &workload{k: k, name: object.Name}, uid: object.UID, name: object.Name, object: object, done: make(chan struct{}), bare: true,
		address: k.address(k.serial),
	}
	ctx, p.cancel = context.WithCancel(ctx)
	k.bare[object.UID] = p
	k.workers.Go(func() { p.run(ctx) })
}

func (k *Kubelet) endBare(object *corev1.Pod) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if p := k.bare[object.UID]; p != nil {
		p.cancel()
	}
}

// dial connects a pod to other hosts.
func (p *pod) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	for _, alias := range p.object.Spec.HostAliases {
		if slices.Contains(alias.Hostnames, host) {
			address = net.JoinHostPort(alias.IP, port)
		}
	}
	return p.w.k.Dial(ctx, network, address)
}

// barePhase returns the phase of a pod whose containers run once.
func barePhase(s corev1.PodStatus) corev1.PodPhase {
	phase := corev1.PodSucceeded
	for _, c := range s.ContainerStatuses {
		switch {
		case c.State.Waiting != nil:
			return corev1.PodPending
		case c.State.Terminated == nil:
			return corev1.PodRunning
		case c.State.Terminated.ExitCode != 0:
			phase = corev1.PodFailed
		}
	}
	return phase
}
