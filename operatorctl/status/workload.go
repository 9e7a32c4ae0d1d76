// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/operatorctl/component"
)

// Workload is the state of a live Deployment, StatefulSet, DaemonSet or CronJob in a common form.
type Workload struct {
	Kind string
	// Generation is the object's, ObservedGeneration the one its controller has seen.
	Generation, ObservedGeneration int64
	Wanted, Updated, Ready         int32
	// Begun counts the pods that are ready, for however short a time.
	Begun int32
	// Answering counts the pods of any version that are ready and do not keep terminating.
	Answering int32
	// Stalled is the controller's message if it cannot create pods, or has given up waiting for them. For a CronJob, it explains that the last run
	// failed, or that none ran for long.
	Stalled string
	// Suspended is true for a suspended CronJob.
	Suspended bool
	// Pods describes the pods that do not run properly.
	Pods []string
	// Starting describes the containers that have been starting for a while, and pods that do not exist yet.
	Starting []string
	// Loops describes the containers that keep terminating, also while they run in between.
	Loops []string
	// Due is the earliest time at which these descriptions change although nothing happens, because a container has run long enough or has been starting
	// for long; zero if there is none.
	Due time.Time
	// NoNode is true if no node has the labels that its pods require; Label describes them.
	NoNode bool
	Label  string
	// Lost lists the nodes for it that are not Ready. Excused is how many of its pods are not expected meanwhile.
	Lost    []string
	Excused int32
}

// Seen is the context in which a workload is judged.
type Seen struct {
	// Pods are those of the cloud, including those of other workloads.
	Pods []corev1.Pod
	// Nodes are those of the Kubernetes cluster, nil while they are unknown.
	Nodes []Node
	Now   time.Time
}

// WorkloadOf evaluates a live object and its pods. It returns nil for nil, and for an object of another kind.
func WorkloadOf(o client.Object, seen Seen) *Workload {
	w := &Workload{}
	switch t := o.(type) {
	case *appsv1.Deployment:
		w.Kind, w.Generation, w.ObservedGeneration = "Deployment", t.Generation, t.Status.ObservedGeneration
		w.Wanted, w.Updated = ptr.Deref(t.Spec.Replicas, 1), t.Status.UpdatedReplicas
		// Pods of an old revision may still serve; the rollout is complete only when they are gone.
		old := max(0, t.Status.Replicas-t.Status.UpdatedReplicas)
		w.Ready, w.Begun = t.Status.AvailableReplicas-old, t.Status.ReadyReplicas-old
		w.Answering = t.Status.AvailableReplicas
		w.Stalled = stalled(t.Status.Conditions)
	case *appsv1.StatefulSet:
		w.Kind, w.Generation, w.ObservedGeneration = "StatefulSet", t.Generation, t.Status.ObservedGeneration
		w.Wanted, w.Updated, w.Ready = ptr.Deref(t.Spec.Replicas, 1), t.Status.UpdatedReplicas, t.Status.AvailableReplicas
		w.Begun, w.Answering = t.Status.ReadyReplicas, t.Status.AvailableReplicas
		if t.Status.CurrentRevision != "" && t.Status.CurrentRevision == t.Status.UpdateRevision {
			w.Updated = w.Wanted // a missing pod has no old version
		}
		if t.Status.Replicas == t.Status.ReadyReplicas { // otherwise the next one may have to wait
			w.lacks(t, w.Wanted-t.Status.Replicas)
		}
	case *appsv1.DaemonSet:
		w.Kind, w.Generation, w.ObservedGeneration = "DaemonSet", t.Generation, t.Status.ObservedGeneration
		w.Wanted, w.Updated, w.Ready = t.Status.DesiredNumberScheduled, t.Status.UpdatedNumberScheduled, t.Status.NumberAvailable
		w.Begun, w.Answering = t.Status.NumberReady, t.Status.NumberAvailable
		if t.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType {
			w.Updated = w.Wanted // users replace these pods when they like
		}
		w.lacks(t, w.Wanted-t.Status.CurrentNumberScheduled)
	case *batchv1.CronJob:
		w.Kind, w.Generation, w.ObservedGeneration = "CronJob", t.Generation, t.Generation
		w.Suspended = t.Spec.Suspend != nil && *t.Spec.Suspend
		if w.Stalled = lastRun(t.Status); w.Stalled == "" && !w.Suspended {
			w.Stalled, w.Due = stale(t, seen.Now)
		}
		for _, p := range seen.Pods {
			if trouble := Trouble(p, seen.Now); trouble != "" && runs(p, t) {
				w.Stalled = "the run of " + t.Status.LastScheduleTime.UTC().Format(time.RFC3339) + " cannot continue; " + trouble
			}
		}
		return w
	default:
		return nil
	}
	w.place(o, placeOf(o, seen))
	leaves := leaving(o, seen)
	for _, p := range seen.Pods {
		if !owned(p, o) || slices.Contains(w.Lost, p.Spec.NodeName) {
			continue
		}
		var left time.Time
		if unschedulable(p) != "" && !leaves.IsZero() {
			left = leaves
		} else if trouble := Trouble(p, seen.Now); trouble != "" {
			w.Pods = append(w.Pods, trouble)
		} else if w.Kind == "DaemonSet" && p.Status.Phase == corev1.PodFailed && p.Status.Reason != "" { // of a Deployment, it may be an old record
			w.Pods = append(w.Pods, p.Status.Reason+": "+p.Status.Message)
		}
		loops, due := looping(p, seen.Now)
		slow, slowDue := starting(p, seen.Now)
		w.Loops, w.Starting = append(w.Loops, loops...), append(w.Starting, slow...)
		if len(loops) > 0 && kube.PodReady(&p) {
			w.Answering = max(0, w.Answering-1)
		}
		w.Due = wait.Earliest(w.Due, left, due, slowDue)
	}
	w.Pods, w.Loops, w.Starting = each(w.Pods), each(w.Loops), each(w.Starting)
	return w
}

// lacks notes pods that do not exist. Unlike that of Deployments, the controllers of these workloads report what refuses them only in events.
func (w *Workload) lacks(o client.Object, pods int32) {
	if pods > 0 {
		w.Starting = append(w.Starting, fmt.Sprintf("%d not created yet (kubectl -n %s describe %s %s)", pods, o.GetNamespace(), strings.ToLower(w.Kind), o.GetName()))
	}
}

// leaving returns when the first terminating pod of a workload must be gone, zero if there is none. Until then a new pod may wait for what the old one
// holds, such as a port of the node.
func leaving(o client.Object, seen Seen) (end time.Time) {
	for _, p := range seen.Pods {
		if at := p.DeletionTimestamp; at != nil && owned(p, o) && at.After(seen.Now) {
			end = wait.Earliest(end, at.Time)
		}
	}
	return end
}

// place records where the workload may run.
func (w *Workload) place(o client.Object, p *place) {
	d, everywhere := o.(*appsv1.DaemonSet)
	switch {
	case p != nil:
		w.NoNode, w.Label = p.noNode, p.label
	case everywhere && w.ObservedGeneration >= w.Generation:
		w.NoNode, w.Label = w.Wanted == 0, labelsWanted(d.Spec.Template.Spec)
	}
	if everywhere && p != nil {
		w.Lost = p.lost
		// Kubernetes counts the pods on a node that is not Ready, unless their tolerations say otherwise: then Wanted is lower already.
		w.Excused = max(0, min(int32(len(p.lost)), w.Wanted-int32(p.ready))) //nolint:gosec // nodes are counted, a cluster has thousands at most
	}
}

// stalled returns the error message of a Deployment's controller. Refused pods, for instance because of a quota, come first: they are the cause of a
// missed deadline.
func stalled(all []appsv1.DeploymentCondition) string {
	late := ""
	for _, c := range all {
		switch {
		case c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue:
			return c.Message
		case c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse:
			late = c.Message
		}
	}
	return late
}

// runs reports whether a pod belongs to an active run of a CronJob.
func runs(p corev1.Pod, c *batchv1.CronJob) bool {
	return c.Status.LastScheduleTime != nil && p.DeletionTimestamp == nil &&
		slices.ContainsFunc(c.Status.Active, func(job corev1.ObjectReference) bool { return p.Labels[batchv1.JobNameLabel] == job.Name })
}

// lastRun describes the failure of a CronJob whose last run has ended without success, "" otherwise.
func lastRun(s batchv1.CronJobStatus) string {
	if s.LastScheduleTime == nil || len(s.Active) > 0 || s.LastSuccessfulTime != nil && !s.LastSuccessfulTime.Before(s.LastScheduleTime) {
		return ""
	}
	text := "the run of " + s.LastScheduleTime.UTC().Format(time.RFC3339) + " failed; "
	if s.LastSuccessfulTime == nil {
		return text + "none has succeeded yet"
	}
	return text + "the last success was at " + s.LastSuccessfulTime.UTC().Format(time.RFC3339)
}

// owned reports whether a pod carries the labels that the workload selects.
func owned(p corev1.Pod, o client.Object) bool {
	_, s := component.PodOf(o)
	if s == nil {
		return false
	}
	for k, v := range s.MatchLabels { // a labels.Selector would be built for each pod of each workload
		if have, ok := p.Labels[k]; !ok || have != v {
			return false
		}
	}
	return true
}

// Scalable reports whether the workload has a number of replicas.
func (w *Workload) Scalable() bool { return w.Kind == "Deployment" || w.Kind == "StatefulSet" }

// judge judges a workload on its own.
func (w *Workload) judge() (v1alpha1.State, string, string) {
	count := fmt.Sprintf("%d of %d pods ready", max(0, w.Ready), w.Wanted)
	switch {
	case w.Kind == "CronJob" && w.Suspended:
		return v1alpha1.Degraded, ReasonStalled, "the CronJob is suspended"
	case w.Kind == "CronJob" && w.Stalled != "":
		return v1alpha1.Degraded, ReasonLastRunFailed, w.Stalled
	case w.Kind == "CronJob":
		return v1alpha1.Available, ReasonAsScheduled, ""
	case w.NoNode && w.Ready <= 0:
		return v1alpha1.Idle, ReasonNoNodes, "no node has " + w.Label
	case w.ObservedGeneration < w.Generation:
		return v1alpha1.Progressing, ReasonRollout, "Kubernetes has not processed the change yet"
	case w.complete() && len(w.Loops) > 0:
		return v1alpha1.Degraded, ReasonPods, strings.Join(w.Loops, "; ")
	case w.complete() && len(w.Lost) > 0:
		return v1alpha1.Available, ReasonAvailable, "not on " + strings.Join(w.Lost, ", ") + ": not Ready"
	case w.complete():
		return v1alpha1.Available, ReasonAvailable, ""
	case w.Kind == "DaemonSet" && w.Wanted <= w.Excused && len(w.Lost) > 0:
		return v1alpha1.Degraded, ReasonNodesNotReady, "no node with " + w.Label + " is Ready: " + strings.Join(w.Lost, ", ")
	case w.Kind == "DaemonSet" && w.Wanted == 0:
		return v1alpha1.Progressing, ReasonRollout, "a node has " + w.Label + ", but no pod is scheduled there yet; if this persists, check the taints of the node"
	case w.Wanted == 0:
		return v1alpha1.Degraded, ReasonStalled, "it is scaled to zero"
	case len(w.Pods) > 0:
		return v1alpha1.Degraded, ReasonPods, count + "; " + strings.Join(w.Pods, "; ")
	case w.Stalled != "":
		return v1alpha1.Degraded, ReasonStalled, count + "; " + w.Stalled
	case w.Updated < w.Wanted:
		count = fmt.Sprintf("%d of %d pods moved to the new version", w.Updated, w.Wanted)
	}
	if len(w.Starting) > 0 {
		count += "; " + strings.Join(w.Starting, "; ")
	}
	if len(w.Lost) > 0 {
		count += "; not Ready: " + strings.Join(w.Lost, ", ")
	}
	return v1alpha1.Progressing, ReasonRollout, count
}

// complete reports whether all pods run the desired version and have been ready for long enough.
func (w *Workload) complete() bool { return w.all(w.Ready) }

func (w *Workload) all(ready int32) bool {
	wanted := w.Wanted - w.Excused
	return w.Updated >= wanted && ready >= wanted && wanted > 0
}

// Started reports whether all pods run the desired version and are ready, for however short a time.
func (w *Workload) Started() bool {
	return w != nil && w.ObservedGeneration >= w.Generation && w.all(w.Begun)
}

// Serving reports whether the workload serves the desired version. A workload whose pods keep terminating serves while they are ready: it is Degraded,
// but its dependents need not wait until it recovers.
func (w *Workload) Serving() bool {
	if w == nil {
		return false
	}
	if w.ObservedGeneration >= w.Generation && w.complete() {
		return true
	}
	state, _, _ := w.judge()
	return state == v1alpha1.Available || state == v1alpha1.Idle
}

// each sorts the words and removes duplicates.
func each(words []string) []string {
	slices.Sort(words)
	return slices.Compact(words)
}

// Absent counts the pods of a DaemonSet that hold up its rollout without being part of it: those that were deleted on a node that was already not Ready.
// They end when their node comes back. Until then Kubernetes counts each as unavailable, so maxUnavailable 1 would stop the rollout. A pod on a node
// that was lost after its pod was deleted or replaced does not count: the new version may be the cause, and the next node must not follow.
func Absent(o client.Object, seen Seen) int32 {
	lost := map[string]time.Time{}
	for _, n := range seen.Nodes {
		if !n.Ready {
			lost[n.Name] = n.Since
		}
	}
	nodes := map[string]bool{}
	for i := range seen.Pods {
		p := &seen.Pods[i]
		since, isLost := lost[p.Spec.NodeName]
		if isLost && owned(*p, o) && p.DeletionTimestamp != nil && !deleted(p).Before(since) {
			nodes[p.Spec.NodeName] = true
		}
	}
	return int32(len(nodes)) //nolint:gosec // a cluster has thousands of nodes at most
}

// deleted returns when the deletion of a pod was requested: its timestamp is when it should have ended.
func deleted(p *corev1.Pod) time.Time {
	return p.DeletionTimestamp.Add(-time.Duration(ptr.Deref(p.DeletionGracePeriodSeconds, 0)) * time.Second)
}
