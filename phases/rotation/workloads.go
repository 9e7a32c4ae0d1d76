// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/kubernetes"
)

const (
	// rootMap is the ConfigMap of each namespace from which pods read the authorities.
	rootMap = "kube-root-ca.crt"
	// restarted is the annotation of a pod template that was restarted for a stage.
	restarted   = "ocadm.yunion.io/authorities"
	askInterval = time.Second
	// podsPatience is how long the step over all pods may show nothing new.
	podsPatience = 10 * time.Minute
)

// accountsStep waits until the controller manager has published the authorities of a stage in every namespace.
func accountsStep(stage Stage) Step {
	return Step{Name: "accounts", Short: "Wait until every namespace has them", Timeout: 5 * time.Minute, Skip: beyond(following(stage)),
		Plan: func(context.Context, *Rotation) ([]string, error) {
			return []string{"wait until ConfigMap " + rootMap + " of every namespace has the authorities of stage " + string(stage)}, nil
		},
		Check: func(_ context.Context, n *Rotation) (bool, error) {
			return n.Record != nil && !n.Record.Published[stage].IsZero(), nil
		},
		Run: func(ctx context.Context, n *Rotation, r workflow.Reporter) error {
			c, err := n.client()
			if err != nil {
				return err
			}
			want := bytes.TrimSpace(n.material.bundle(stage, kubernetes.ClusterAuthority))
			err = wait.Until(ctx, "the namespaces", askInterval, func(ctx context.Context) (bool, string, error) {
				old, err := unpublished(ctx, c, want)
				return len(old) == 0, strings.Join(old, ", "), err
			}, func(why string) { r.Waiting("namespaces", why) })
			if err != nil {
				return err
			}
			return n.change(ctx, c, func(rec *Record) {
				if rec.Published == nil {
					rec.Published = map[Stage]time.Time{}
				}
				rec.Published[stage] = time.Now().UTC()
			})
		}}
}

// unpublished are the namespaces whose pods would get other authorities.
func unpublished(ctx context.Context, c client.Reader, want []byte) ([]string, error) {
	var namespaces corev1.NamespaceList
	if err := c.List(ctx, &namespaces); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	var maps corev1.ConfigMapList
	if err := c.List(ctx, &maps, client.MatchingFields{"metadata.name": rootMap}); err != nil {
		return nil, fmt.Errorf("listing ConfigMaps %s: %w", rootMap, err)
	}
	good := map[string]bool{}
	for _, m := range maps.Items {
		good[m.Namespace] = bytes.Equal(bytes.TrimSpace([]byte(m.Data["ca.crt"])), want)
	}
	var out []string
	for _, ns := range namespaces.Items {
		if ns.DeletionTimestamp == nil && !good[ns.Name] {
			out = append(out, ns.Name)
		}
	}
	return out, nil
}

// podsStep restarts the pods that use the API and are from before. Programs with an older client library read the authorities at their start only.
func podsStep(stage Stage) Step {
	return Step{Name: "pods", Short: "Restart the pods that use the API", Patience: podsPatience, Skip: beyond(following(stage)),
		Plan: func(ctx context.Context, n *Rotation) ([]string, error) {
			c, err := n.client()
			if err != nil {
				return nil, err
			}
			_, old, err := n.oldPods(ctx, c, stage)
			var out []string
			for _, p := range old {
				out = append(out, "restart pod "+p.Namespace+"/"+p.Name)
			}
			return out, err
		},
		Check: func(ctx context.Context, n *Rotation) (bool, error) {
			c, err := n.client()
			if err != nil || n.Record == nil || n.Record.Published[stage].IsZero() {
				return false, err
			}
			_, old, err := n.oldPods(ctx, c, stage)
			return len(old) == 0 && err == nil, err
		},
		Run: func(ctx context.Context, n *Rotation, r workflow.Reporter) error { return n.restart(ctx, r, stage) }}
}

// oldPods are those that use the API and were made before every namespace had the authorities of a stage; before that, all.
func (n *Rotation) oldPods(ctx context.Context, c client.Reader, stage Stage) (all, old []corev1.Pod, err error) {
	at := time.Now()
	if n.Record != nil && !n.Record.Published[stage].IsZero() {
		at = n.Record.Published[stage]
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods); err != nil {
		return nil, nil, fmt.Errorf("listing pods: %w", err)
	}
	return pods.Items, madeBefore(pods.Items, at), nil
}

func madeBefore(pods []corev1.Pod, at time.Time) []corev1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p corev1.Pod) bool {
		return kube.PodEnded(&p) || !usesAPI(&p) || !p.CreationTimestamp.Time.Before(at.Truncate(time.Second))
	})
}

// usesAPI reports whether a pod has the authorities of the cluster mounted.
func usesAPI(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		if v.ConfigMap != nil && v.ConfigMap.Name == rootMap {
			return true
		}
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool {
			return s.ConfigMap != nil && s.ConfigMap.Name == rootMap
		})
	})
}

// restart lets the controllers of old pods replace them, and waits until none is left.
func (n *Rotation) restart(ctx context.Context, r workflow.Reporter, stage Stage) error {
	c, err := n.client()
	if err != nil {
		return err
	}
	mark := n.Record.ID + "-" + string(stage)
	done, turn := map[string]bool{}, map[string]string{}
	var refused error
	err = wait.Until(ctx, "the pods", askInterval, func(ctx context.Context) (bool, string, error) {
		all, old, err := n.oldPods(ctx, c, stage)
		if err != nil {
			return false, "", err
		}
		refused = replaceAll(ctx, c, r, inTurn(all, old, turn), mark, done)
		return len(old) == 0, strings.Join(podNames(old), ", "), nil
	}, func(why string) { r.Waiting("pods", why) })
	if err == nil || errors.Is(context.Cause(ctx), context.Canceled) {
		return err
	}
	f := finding.Errorf("OCA-4419", "Pods still trust other certificate authorities",
		"kubectl get pods -A; delete the pods that the evidence names, or let their Jobs end; then run the same command again",
		"%w", errors.Join(err, refused))
	return f.With(strings.Split(wait.Why(err), ", ")...)
}

func podNames(pods []corev1.Pod) (names []string) {
	for _, p := range pods {
		names = append(names, p.Namespace+"/"+p.Name)
	}
	return names
}

// inTurn are the old pods to replace now. The servers of a database pair are a StatefulSet each, and one must serve: the next of such a group is replaced once the
// one before it is Ready. turn has the StatefulSet of each group that was replaced last.
func inTurn(all, old []corev1.Pod, turn map[string]string) (now []corev1.Pod) {
	isOld := func(p corev1.Pod) bool {
		return slices.ContainsFunc(old, func(o corev1.Pod) bool { return o.Namespace == p.Namespace && o.Name == p.Name })
	}
	for _, p := range old {
		group, set := server(&p)
		back, starting := false, false
		for _, o := range all {
			if g, other := server(&o); g == group && !isOld(o) {
				back = back || other == turn[group] && kube.PodReady(&o)
				starting = starting || other != set && !kube.PodReady(&o)
			}
		}
		if last := turn[group]; group != "" && (starting || last != "" && last != set && !back) {
			continue
		}
		turn[group] = set
		now = append(now, p)
	}
	return now
}

// server is the StatefulSet of a pod, and the application to which it belongs; both are empty for other pods.
func server(p *corev1.Pod) (group, set string) {
	owner, app := metav1.GetControllerOf(p), p.Labels["app"]
	if owner == nil || owner.Kind != "StatefulSet" || app == "" {
		return "", ""
	}
	return p.Namespace + "/" + app, owner.Name
}

// replaceAll restarts what pods belong to. One that is refused, for good perhaps, does not keep the others from it.
func replaceAll(ctx context.Context, c client.Client, r workflow.Reporter, pods []corev1.Pod, mark string, done map[string]bool) (refused error) {
	for i := range pods {
		refused = errors.Join(refused, replace(ctx, c, r, &pods[i], mark, done))
	}
	return refused
}

// replace restarts what a pod belongs to, once; one that was refused is tried again. A pod of a Job is left to end, and one of nothing to its owner.
func replace(ctx context.Context, c client.Client, r workflow.Reporter, p *corev1.Pod, mark string, done map[string]bool) error {
	owner := metav1.GetControllerOf(p)
	if p.DeletionTimestamp != nil || owner == nil || owner.Kind == "Job" {
		return nil
	}
	key := client.ObjectKey{Namespace: p.Namespace, Name: owner.Name}
	var object client.Object
	switch owner.Kind {
	case "DaemonSet":
		object = &appsv1.DaemonSet{}
	case "StatefulSet":
		object = &appsv1.StatefulSet{}
	case "ReplicaSet":
		var set appsv1.ReplicaSet
		if err := c.Get(ctx, key, &set); err != nil {
			return client.IgnoreNotFound(err)
		}
		if parent := metav1.GetControllerOf(&set); parent != nil && parent.Kind == "Deployment" {
			key.Name, object = parent.Name, &appsv1.Deployment{}
		}
	}
	id := owner.Kind + " " + key.String()
	if object == nil || onDelete(ctx, c, key, object) {
		id = "pod " + p.Namespace + "/" + p.Name
		if done[id] {
			return nil
		}
		if err := c.Delete(ctx, p, client.Preconditions{UID: &p.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("restarting %s: %w", id, err)
		}
		done[id] = true
		r.Changed("restarted %s", id)
		return nil
	}
	if done[id] {
		return nil
	}
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, restarted, mark)
	if err := c.Patch(ctx, object, client.RawPatch("application/merge-patch+json", []byte(patch)), client.FieldOwner(kube.FieldManager)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("restarting the pods of %s: %w", id, err)
	}
	done[id] = true
	r.Changed("restarted the pods of %s", id)
	return nil
}

// onDelete reports whether a controller replaces its pods only when they are deleted.
func onDelete(ctx context.Context, c client.Reader, key client.ObjectKey, object client.Object) bool {
	if c.Get(ctx, key, object) != nil {
		return false
	}
	switch o := object.(type) {
	case *appsv1.DaemonSet:
		return o.Spec.UpdateStrategy.Type == appsv1.OnDeleteDaemonSetStrategyType
	case *appsv1.StatefulSet:
		return o.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType
	}
	return false
}
