// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/test/integration/harness"
)

// workload is a Deployment, or a DaemonSet that is treated as one. It exists until the kubelet ends: a Deployment that is created again under its
// name waits for the pod of the previous one.
type workload struct {
	k     *Kubelet
	name  string
	agent bool
	wake  chan struct{}

	mu      sync.Mutex
	desired *appsv1.Deployment // nil: there is none
	// acted is the version of the Deployment that pod was created from.
	acted  *appsv1.Deployment
	pod    *pod
	starts int

	// reporting keeps reports in order.
	reporting   sync.Mutex
	reported    appsv1.DeploymentStatus
	reportedUID types.UID
}

func (w *workload) set(d *appsv1.Deployment) {
	w.mu.Lock()
	w.desired = d
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default: // it will look again anyway
	}
}

func (w *workload) run(ctx context.Context) {
	defer w.end()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
			w.follow(ctx)
		}
	}
}

// follow brings the pod to the desired state.
func (w *workload) follow(ctx context.Context) {
	w.mu.Lock()
	d, current := w.desired, w.pod
	w.mu.Unlock()
	if d == nil || ptr.Deref(d.Spec.Replicas, 1) == 0 {
		w.end()
		w.act(d)
		w.report(ctx)
		return
	}
	template, err := json.Marshal(d.Spec.Template)
	if err != nil {
		w.k.note(fmt.Errorf("reading the template of %s: %w", w.name, err))
		return
	}
	if current != nil && current.uid == d.UID && current.template == string(template) {
		w.act(d)
		w.report(ctx)
		return
	}
	w.end()
	w.act(d)
	w.report(ctx)
	next := &pod{w: w, uid: d.UID, template: string(template), name: w.k.podName(w.name), address: w.k.address(0), done: make(chan struct{})}
	next.object = &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: next.name, Namespace: d.Namespace, Labels: d.Spec.Template.Labels, Annotations: d.Spec.Template.Annotations},
		Spec:       *d.Spec.Template.Spec.DeepCopy(),
	}
	if w.agent {
		for i := range next.object.Spec.Containers {
			agentProgram(&next.object.Spec.Containers[i])
		}
	}
	next.minReady = time.Duration(d.Spec.MinReadySeconds) * time.Second
	next.object.Spec.NodeName = w.k.options.Node
	w.mu.Lock()
	w.pod = next
	w.mu.Unlock()
	ctx, next.cancel = context.WithCancel(ctx)
	go next.run(ctx)
}

func (w *workload) act(d *appsv1.Deployment) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acted = d
}

// end stops the pod and waits until it is gone.
func (w *workload) end() {
	w.mu.Lock()
	current := w.pod
	w.pod = nil
	w.mu.Unlock()
	if current != nil {
		current.cancel()
		<-current.done
	}
}

func (w *workload) kill() {
	w.mu.Lock()
	current := w.pod
	w.mu.Unlock()
	if current != nil {
		current.kill()
	}
}

// report writes the status of the Deployment, as its controller would.
func (w *workload) report(ctx context.Context) {
	w.reporting.Lock()
	defer w.reporting.Unlock()
	w.mu.Lock()
	d, current := w.acted, w.pod
	w.mu.Unlock()
	if d == nil {
		return
	}
	status := harness.DeploymentStatus(d, current != nil && current.isReady(), current != nil && current.isAvailable())
	if w.reportedUID == d.UID && equality.Semantic.DeepEqual(withoutTimes(w.reported), withoutTimes(status)) {
		return
	}
	w.reported, w.reportedUID = status, d.UID
	var object client.Object = d
	var written any = status
	if w.agent {
		object, written = agentStatus(d, status.AvailableReplicas > 0)
	}
	if err := client.IgnoreNotFound(harness.ReportStatus(ctx, w.k.client, object, written)); err != nil && ctx.Err() == nil {
		w.k.note(fmt.Errorf("reporting on %q: %w", w.name, err))
	}
}

func withoutTimes(s appsv1.DeploymentStatus) appsv1.DeploymentStatus {
	s = *s.DeepCopy()
	for i := range s.Conditions {
		s.Conditions[i].LastUpdateTime, s.Conditions[i].LastTransitionTime = metav1.Time{}, metav1.Time{}
	}
	return s
}
