// SPDX-License-Identifier: Apache-2.0

package nodecerts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/operatorctl/status"
)

// Keeper manages the certificates of the control-plane nodes for the cloud in whose namespace ConfigMap ocadm-node-certificates is. init creates it in
// clusters built by ocadm. Its request is the cloud.
type Keeper struct {
	// Client writes, and reads from the cache; Direct bypasses it.
	Client client.Client
	Direct client.Reader
	// Image is the Jobs' image.
	Image string
	Log   *slog.Logger
}

// Reconcile checks the nodes that are due, and requests renewals.
func (k *Keeper) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	cloud := &v1alpha1.OnecloudCluster{}
	if err := k.Client.Get(ctx, req.NamespacedName, cloud); err != nil || cloud.DeletionTimestamp != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	s, kept, err := k.see(ctx, cloud)
	if err != nil || !kept {
		return ctrl.Result{}, err
	}
	d := decide(s)
	errs := lists.Map(d.read, func(node string) error { return k.read(ctx, s, node) })
	for _, node := range d.look {
		err := k.Client.Create(ctx, lookJob(cloud, node, k.Image), client.FieldOwner(v1alpha1.ManagerOperator))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, fmt.Errorf("creating the Job that checks the certificates of node %s: %w", node, err))
		}
	}
	errs = append(errs, lists.Map(d.forget, func(node string) error { return store(ctx, k.Client, cloud, node, nil) })...)
	if d.renew != nil {
		err := k.Client.Create(ctx, d.renew, client.FieldOwner(v1alpha1.ManagerOperator))
		if err != nil && !apierrors.IsAlreadyExists(err) {
			errs = append(errs, fmt.Errorf("creating operation %s: %w", d.renew.Name, err))
		}
	}
	return ctrl.Result{RequeueAfter: d.next}, errors.Join(errs...)
}

// see reads the input of decide from the cache. kept is false if certificates are not managed.
func (k *Keeper) see(ctx context.Context, cloud *v1alpha1.OnecloudCluster) (s seen, kept bool, err error) {
	s = seen{now: time.Now(), cloud: cloud, looks: map[string]*batchv1.Job{}}
	cm := &corev1.ConfigMap{}
	kept, err = kube.Find(ctx, k.Client, client.ObjectKey{Namespace: cloud.Namespace, Name: certreport.ConfigMap}, cm, "the certificate reports")
	if !kept {
		return s, false, err
	}
	s.reports = certreport.All(cm.Data)
	if s.nodes, s.ready, err = controlPlane(ctx, k.Client); err != nil {
		return s, false, err
	}
	var jobs batchv1.JobList
	if err := k.Client.List(ctx, &jobs, client.InNamespace(cloud.Namespace), client.MatchingLabels{LabelCloud: cloud.Name}); err != nil {
		return s, false, fmt.Errorf("listing Jobs: %w", err)
	}
	for i := range jobs.Items {
		if j := &jobs.Items[i]; j.DeletionTimestamp == nil {
			s.looks[j.Annotations[AnnotationNode]] = j
		}
	}
	s.operations, err = operation.Of(ctx, k.Client, client.ObjectKeyFromObject(cloud))
	return s, err == nil, err
}

// controlPlane returns the control-plane nodes, and those of them that are Ready.
func controlPlane(ctx context.Context, c client.Reader) (all, ready []string, err error) {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes, client.HasLabels{v1alpha1.LabelControlPlane}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing control-plane nodes: %w", err)
	}
	for i := range nodes.Items {
		n := status.NodeOf(&nodes.Items[i])
		all = append(all, n.Name)
		if n.Ready {
			ready = append(ready, n.Name)
		}
	}
	slices.Sort(all)
	slices.Sort(ready)
	return all, ready, nil
}

// read stores the result of a look. A failed Job, or one whose report cannot be read, stays for a while and is created again when it is gone.
func (k *Keeper) read(ctx context.Context, s seen, node string) error {
	j := s.looks[node]
	r := s.reports[node]
	if complete, failed := operation.Ended(j); !complete {
		said, _ := said(ctx, k.Direct, j)
		r.Problem = failed // the certificates, and their time, are those of the look before
		k.Log.Warn("checking the certificates of a node failed", "node", node, "cluster", s.cloud.Name, "error", failed, "output", said)
		return store(ctx, k.Client, s.cloud, node, &r)
	}
	found, err := reportOf(ctx, k.Direct, j)
	if err != nil {
		if r.Problem != err.Error() { // otherwise it is known, and another write would start another pass
			r.Problem = err.Error()
			err = errors.Join(err, store(ctx, k.Client, s.cloud, node, &r))
		}
		return err
	}
	if err := store(ctx, k.Client, s.cloud, node, &found); err != nil {
		return err
	}
	err = k.Client.Delete(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name}},
		client.PropagationPolicy(metav1.DeletePropagationBackground))
	return client.IgnoreNotFound(err)
}

// reportOf returns the report that the pod of a Job has left. Its time is that of the operator, because the clock of its node may be wrong.
func reportOf(ctx context.Context, c client.Reader, j *batchv1.Job) (certreport.Report, error) {
	text, err := said(ctx, c, j)
	if err != nil {
		return certreport.Report{}, err
	}
	r, err := certreport.Parse(text)
	r.Time = time.Now().UTC().Truncate(time.Second)
	return r, err
}

// said returns the termination message of the last pod of a Job.
func said(ctx context.Context, c client.Reader, j *batchv1.Job) (string, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(j.Namespace), client.MatchingLabels{batchv1.JobNameLabel: j.Name}); err != nil {
		return "", fmt.Errorf("listing the pods of Job %s: %w", j.Name, err)
	}
	slices.SortFunc(pods.Items, operation.ByAge)
	for i := range slices.Backward(pods.Items) {
		for _, s := range pods.Items[i].Status.ContainerStatuses {
			if t := s.State.Terminated; t != nil {
				return strings.TrimSpace(t.Message), nil
			}
		}
	}
	return "", fmt.Errorf("reading the result of Job %s: none of its pods has ended", j.Name)
}

// store saves the report of a node; nil deletes it. The labels select the ConfigMap for the cloud, whose condition shows its contents.
func store(ctx context.Context, c client.Client, cloud *v1alpha1.OnecloudCluster, node string, r *certreport.Report) error {
	var text any
	if r != nil {
		raw, err := json.Marshal(r)
		if err != nil {
			return fmt.Errorf("writing the certificate report: %w", err)
		}
		text = string(raw)
	}
	labels := map[string]string{v1alpha1.LabelName: v1alpha1.ValueName, v1alpha1.LabelInstance: v1alpha1.InstancePrefix + cloud.Name}
	fields := map[string]any{"metadata": map[string]any{"labels": labels}, "data": map[string]any{node: text}}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cloud.Namespace, Name: certreport.ConfigMap}}
	if err := kube.Merge(ctx, c, cm, v1alpha1.ManagerOperator, fields); err != nil {
		return fmt.Errorf("writing the certificate report: %w", err)
	}
	return nil
}
