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

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/kubernetes"
)

const (
	// rootMap is the ConfigMap in each namespace from which pods read the CAs.
	rootMap = "kube-root-ca.crt"
	// restarted is the annotation of a pod template that was restarted for a stage.
	restarted   = "ocadm.yunion.io/authorities"
	askInterval = time.Second
	// podsPatience is how long the step over all pods may go without progress.
	podsPatience = 10 * time.Minute
)

// accountsStep waits until the controller manager has published the CAs of a stage in every namespace.
func accountsStep(stage Stage) Step {
	return Step{Name: "accounts", Short: "Wait until every namespace has the authorities", Timeout: 5 * time.Minute, Skip: beyond(following(stage)),
		Plan: workflow.Says[*Rotation]("wait until ConfigMap " + rootMap + " of every namespace has the authorities of stage " + string(stage)),
		Check: func(_ context.Context, n *Rotation) (bool, error) {
			return n.Record != nil && !n.Record.Published[stage].IsZero(), nil
		},
		Run: connected(func(ctx context.Context, c client.WithWatch, n *Rotation, r workflow.Reporter) error {
			want := bytes.TrimSpace(n.material.bundle(stage, kubernetes.ClusterAuthority))
			err := wait.Until(ctx, "the namespaces", askInterval, func(ctx context.Context) (bool, string, error) {
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
		})}
}

// unpublished returns the namespaces whose pods would get other CAs.
func unpublished(ctx context.Context, c client.Reader, want []byte) ([]string, error) {
	var namespaces corev1.NamespaceList
	if err := c.List(ctx, &namespaces); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	var maps corev1.ConfigMapList
	if err := c.List(ctx, &maps, client.MatchingFields{"metadata.name": rootMap}); err != nil {
		return nil, fmt.Errorf("listing ConfigMaps %s: %w", rootMap, err)
	}
	good := lists.Index(maps.Items, func(m corev1.ConfigMap) (string, bool) {
		return m.Namespace, bytes.Equal(bytes.TrimSpace([]byte(m.Data["ca.crt"])), want)
	})
	return lists.Pick(namespaces.Items, func(ns corev1.Namespace) (string, bool) {
		return ns.Name, ns.DeletionTimestamp == nil && !good[ns.Name]
	}), nil
}

// podsStep restarts older pods that use the API. Programs with an older client library read the CAs only when they start.
func podsStep(stage Stage) Step {
	return Step{Name: "pods", Short: "Restart the pods that use the API", Patience: podsPatience, Skip: beyond(following(stage)),
		Plan: func(ctx context.Context, n *Rotation) ([]string, error) {
			c, err := n.client()
			if err != nil {
				return nil, err
			}
			old, err := n.oldPods(ctx, c, stage)
			return lists.Map(old, func(p corev1.Pod) string { return "restart pod " + p.Namespace + "/" + p.Name }), err
		},
		Check: underway(func(ctx context.Context, c client.WithWatch, n *Rotation) (bool, error) {
			if n.Record.Published[stage].IsZero() {
				return false, nil
			}
			old, err := n.oldPods(ctx, c, stage)
			return len(old) == 0 && err == nil, err
		}),
		Run: func(ctx context.Context, n *Rotation, r workflow.Reporter) error { return n.restart(ctx, r, stage) }}
}

// oldPods returns the pods that use the API and were created before every namespace had the CAs of a stage; until then, it returns all that use the API.
func (n *Rotation) oldPods(ctx context.Context, c client.Reader, stage Stage) ([]corev1.Pod, error) {
	at, mark := time.Now(), ""
	if n.Record != nil && !n.Record.Published[stage].IsZero() {
		at, mark = n.Record.Published[stage], n.mark(stage)
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	return slices.DeleteFunc(pods.Items, func(p corev1.Pod) bool {
		// A pod of a restarted template is new even if the clock that dated it is behind this one. Another one that a clock ahead has dated is of unknown age.
		created := p.CreationTimestamp.Time
		return kube.PodEnded(&p) || !usesAPI(&p) || mark != "" && p.Annotations[restarted] == mark || !created.Before(at.Truncate(time.Second)) && !kube.Ahead(created, time.Now())
	}), nil
}

// mark returns the annotation of templates that were restarted for a stage.
func (n *Rotation) mark(stage Stage) string { return n.Record.ID + "-" + string(stage) }

// usesAPI reports whether a pod mounts the CAs of the cluster.
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

// restart makes the controllers of old pods replace them, and waits until no old pod is left.
func (n *Rotation) restart(ctx context.Context, r workflow.Reporter, stage Stage) error {
	c, err := n.client()
	if err != nil {
		return err
	}
	mark := n.mark(stage)
	done, pairs := map[string]bool{}, map[string]turn{}
	var refused error
	err = wait.Until(ctx, "the pods", askInterval, func(ctx context.Context) (bool, string, error) {
		old, err := n.oldPods(ctx, c, stage)
		if err != nil {
			return false, "", err
		}
		pods, names := inTurn(old, pairs, func(namespace string) bool { return whole(ctx, c, namespace) }, time.Now())
		refused = replaceAll(ctx, c, r, pods, mark, done)
		return len(old) == 0, strings.Join(names, ", "), nil
	}, func(why string) { r.Waiting("pods", why) })
	if err == nil || errors.Is(context.Cause(ctx), context.Canceled) {
		return err
	}
	f := finding.Errorf("OCA-4419", "Pods still trust other certificate authorities",
		"kubectl get pods -A; delete the pods that the evidence names, or let their Jobs end; then run the same command again",
		"%w", errors.Join(err, refused))
	return f.With(strings.Split(wait.Why(err), ", ")...)
}

// turn is the server of a database pair that was restarted last, "" at first, and the time.
type turn struct {
	server string
	at     time.Time
}

// pairPatience is how long a server of a database pair waits for its turn. A pair that is still not redundant was not so before, or is broken.
const pairPatience = 3 * time.Minute

// inTurn returns the old pods to restart now, and the names of all with what they wait for. Of a database pair, it restarts one server only while the
// other has every row: turns holds the state by namespace, and whole reports whether a pair is redundant.
func inTurn(old []corev1.Pod, turns map[string]turn, whole func(namespace string) bool, now time.Time) (restart []corev1.Pod, names []string) {
	for i := range old {
		p := &old[i]
		name, server := p.Namespace+"/"+p.Name, databaseServer(p)
		if last, began := turns[p.Namespace]; server != "" && server != last.server {
			if !began {
				last.at = now
				turns[p.Namespace] = last
			}
			unseen := slices.ContainsFunc(old, func(o corev1.Pod) bool {
				return last.server != "" && o.Namespace == p.Namespace && databaseServer(&o) == last.server
			})
			if now.Sub(last.at) < pairPatience && (unseen || !whole(p.Namespace)) {
				names = append(names, name+" (until the other database server has every row)")
				continue
			}
			turns[p.Namespace] = turn{server, now}
		}
		restart, names = append(restart, *p), append(names, name)
	}
	return restart, names
}

// databaseServer returns the server of a database pair that a pod belongs to, "" for other pods.
func databaseServer(p *corev1.Pod) string {
	if owner := metav1.GetControllerOf(p); owner != nil && owner.Kind == "StatefulSet" && slices.Contains(dbpair.Servers(), owner.Name) {
		return owner.Name
	}
	return ""
}

// whole reports whether each server of a namespace's embedded database can be restarted: the other one has every row, or there is no other.
func whole(ctx context.Context, c client.Reader, namespace string) bool {
	s, err := cluster.EmbeddedDatabase(ctx, c, namespace)
	return err == nil && (s.Record == nil || s.Redundant)
}

// replaceAll restarts the owners of pods. A refusal, which may be permanent, does not stop it.
func replaceAll(ctx context.Context, c client.Client, r workflow.Reporter, pods []corev1.Pod, mark string, done map[string]bool) (refused error) {
	for i := range pods {
		refused = errors.Join(refused, replace(ctx, c, r, &pods[i], mark, done))
	}
	return refused
}

// replace restarts the owner of a pod once; a refused restart is tried again. It leaves pods of a Job to end, and pods without a controller to the user.
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
