// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/test/integration/harness"
)

// watchAgents runs the pods of DaemonSets: one pod each, if the node has the required labels.
func (k *Kubelet) watchAgents(ctx context.Context, factory informers.SharedInformerFactory) error {
	want := func(object any) {
		if d, ok := object.(*appsv1.DaemonSet); ok {
			k.want(ctx, &appsv1.Deployment{ObjectMeta: d.ObjectMeta, Spec: appsv1.DeploymentSpec{
				Replicas: ptr.To(k.takes(ctx, d.Spec.Template.Spec)), Template: d.Spec.Template, MinReadySeconds: d.Spec.MinReadySeconds,
			}}, true)
		}
	}
	if _, err := factory.Apps().V1().DaemonSets().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: want, UpdateFunc: func(_, object any) { want(object) }, DeleteFunc: func(object any) { k.gone(object) },
	}); err != nil {
		return fmt.Errorf("watching DaemonSets: %w", err)
	}
	return nil
}

// takes returns the number of pods that the node's labels allow, 0 or 1.
func (k *Kubelet) takes(ctx context.Context, spec corev1.PodSpec) int32 {
	node := &corev1.Node{}
	if err := k.client.Get(ctx, client.ObjectKey{Name: k.options.Node}, node); err != nil {
		k.note(fmt.Errorf("reading node %s: %w", k.options.Node, err))
		return 0
	}
	if fits, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: spec}).Match(node); err != nil || !fits {
		return 0
	}
	return 1
}

// agentProgram replaces an agent's program, which needs a real machine, by one that just keeps running.
func agentProgram(c *corev1.Container) {
	c.Command, c.Args, c.ReadinessProbe = []string{binDir + "sleep"}, nil, nil
}

// agentStatus returns the status that a DaemonSet's controller would report.
func agentStatus(d *appsv1.Deployment, up bool) (client.Object, appsv1.DaemonSetStatus) {
	object := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name, Generation: d.Generation}}
	return object, harness.DaemonSetStatus(object, *d.Spec.Replicas, !up)
}
