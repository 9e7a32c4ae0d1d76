// SPDX-License-Identifier: Apache-2.0

package nodecerts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// Action returns the action that renews the certificates of the control-plane nodes. The operator runs its steps; only the Jobs see a certificate. image is
// theirs, "" if Jobs are impossible. It runs beside the cloud's operations: certificates expire even while an update rests for weeks.
func Action(image string) operation.Action {
	return operation.Action{
		Name: v1alpha1.ActionRenewCertificates, Timeout: 2 * time.Hour, Beside: true,
		Steps: []operation.Step{
			{Name: "plan", Short: "Find the certificates to renew", ReadOnly: true, Timeout: 2 * time.Minute, Run: renewer{image}.plan},
			{Name: "renew", Short: "Renew them on one node at a time", Timeout: 100 * time.Minute, Run: renewer{image}.renew},
		},
	}
}

// renewer renews certificates with Jobs of an image, "" if Jobs are impossible.
type renewer struct{ image string }

// turn is a node and the certificates to renew on it.
type turn struct {
	node  string
	names string
}

// turns returns the nodes with certificates to renew, and those among them that are not Ready.
func turns(ctx context.Context, r *operation.Run) (due []turn, away []string, err error) {
	cm := &corev1.ConfigMap{}
	found, err := kube.Find(ctx, r.Client, client.ObjectKey{Namespace: r.Operation.Namespace, Name: certreport.ConfigMap}, cm, "the certificate reports")
	if err != nil {
		return nil, nil, err
	}
	if !found {
		return nil, nil, finding.New("OCA-4407", "The operator does not manage the certificates of this cluster",
			fmt.Sprintf("there is no ConfigMap %s/%s, which ocadm creates in clusters that it installs", r.Operation.Namespace, certreport.ConfigMap),
			"on each control-plane node: ocadm certs renew; in a cluster that ocadm installed: ocadm init phase operator, then try again")
	}
	reports := certreport.All(cm.Data)
	nodes, ready, err := controlPlane(ctx, r.Client)
	if err != nil {
		return nil, nil, err
	}
	for _, node := range nodes {
		names := certreport.Names(reports[node].Due(time.Now()))
		if everything(r.Operation) {
			names = "all that are older than " + r.Operation.CreationTimestamp.UTC().Format(time.RFC3339)
		}
		switch {
		case names == "":
		case !slices.Contains(ready, node):
			away = append(away, node)
		default:
			due = append(due, turn{node, names})
		}
	}
	return due, away, nil
}

func (w renewer) plan(ctx context.Context, r *operation.Run, report workflow.Reporter) error {
	if w.image == "" {
		return finding.New("OCA-7627", "The operator cannot work on control-plane nodes", "it is not allowed to create Jobs or does not run in a pod",
			finding.InstallOperator+"; or on each control-plane node: ocadm certs renew")
	}
	due, away, err := turns(ctx, r)
	if err != nil {
		return err
	}
	lines := lists.Map(due, func(t turn) string { return "node " + t.node + ": " + t.names })
	lines = append(lines, lists.Map(away, func(node string) string { return "node " + node + " is not Ready and is skipped" })...)
	if len(lines) == 0 {
		report.Info("no certificate is due for renewal")
	}
	return r.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) { s.Plan = lines })
}

// renew runs one Job after the other. A restarted operator skips nodes whose Job has succeeded. A failed Job leaves a control plane in an unknown state,
// so the other nodes wait. A Job that has never run has changed nothing, so the other nodes are renewed.
func (w renewer) renew(ctx context.Context, r *operation.Run, report workflow.Reporter) error {
	cloud, err := r.Cloud(ctx)
	if err != nil {
		return err
	}
	due, away, err := turns(ctx, r)
	if err != nil {
		return err
	}
	var failures finding.List
	for i, t := range due {
		report.Progress(int64(i), int64(len(due)), "nodes")
		found, err := renewOn(ctx, r, report, renewJob(cloud, r.Operation, t.node, w.image), t.node)
		if n, ok := errors.AsType[neverRan](err); ok {
			failures = append(failures, n.Finding)
			report.Info("node %s: nothing ran there; continuing with the other nodes", t.node)
			continue
		}
		if list := finding.Of(err); len(list) > 0 {
			return append(failures, list...).Err()
		}
		if err != nil {
			return errors.Join(failures.Err(), err)
		}
		if err := store(ctx, r.Client, cloud, t.node, &found); err != nil {
			return err
		}
		report.Changed("node %s: renewed %s; next renewal %s", t.node, t.names, found.RenewAt().Format(time.RFC3339))
	}
	if len(away) > 0 {
		failures = append(failures, finding.New("OCA-4408", "Control-plane nodes are not Ready, and their certificates were not renewed", strings.Join(away, ", "),
			"start the nodes; "+again(r.Operation)+". On a node whose certificates have expired: ocadm certs renew"))
	}
	return failures.Err()
}

func everything(o *v1alpha1.OnecloudOperation) bool {
	return o.Spec.RenewCertificates != nil && o.Spec.RenewCertificates.All
}

// again returns how a failed renewal is repeated. One of everything is not: it would renew and restart the nodes that are done, too.
func again(o *v1alpha1.OnecloudOperation) string {
	if everything(o) {
		return "then renew everything on the nodes that are left, with ocadm certs renew --all on each, or on all with --all-nodes"
	}
	return "the operator retries automatically"
}

// neverRan is the failure of a Job whose program never started on its node.
type neverRan struct{ finding.Finding }

// harmless reports whether a failed Job has changed nothing: none of its pods has ever started, and its node is Ready.
func harmless(ctx context.Context, r *operation.Run, j *batchv1.Job, node string) bool {
	var pods corev1.PodList
	if err := r.Pods.List(ctx, &pods, client.InNamespace(j.Namespace), client.MatchingLabels{batchv1.JobNameLabel: j.Name}); err != nil {
		return false
	}
	for _, p := range pods.Items {
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running != nil || c.State.Terminated != nil || c.LastTerminationState.Terminated != nil {
				return false
			}
		}
	}
	_, ready, err := controlPlane(ctx, r.Client)
	return err == nil && slices.Contains(ready, node)
}

func renewOn(ctx context.Context, r *operation.Run, report workflow.Reporter, j *batchv1.Job, node string) (certreport.Report, error) {
	err := r.Pods.Create(ctx, j.DeepCopy(), client.FieldOwner(v1alpha1.ManagerOperator))
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return certreport.Report{}, fmt.Errorf("creating Job %s: %w", j.Name, err)
	}
	mayHaveRun := err != nil // its earlier state is unknown
	failed := ""
	err = kube.WaitFor(ctx, r.Pods, j.DeepCopy(), func(o client.Object) (bool, string) {
		now, there := kube.As[batchv1.Job](o)
		if !there {
			failed, mayHaveRun = "it was deleted", true
			return true, ""
		}
		mayHaveRun = mayHaveRun || now.Status.Ready != nil && *now.Status.Ready > 0
		complete, why := operation.Ended(now)
		failed = why
		return complete || failed != "", "Job " + j.Name
	}, func(why string) { report.Waiting("node "+node, why) })
	if err != nil {
		return certreport.Report{}, err
	}
	if failed != "" {
		text, _ := said(ctx, r.Pods, j)
		f := finding.New("OCA-4406", "The certificates of node "+node+" were not renewed", failed,
			"on "+node+": ocadm certs renew, and read its output; "+again(r.Operation))
		if text != "" {
			f = f.With(strings.Split(text, "\n")...)
		}
		if !mayHaveRun && harmless(ctx, r, j, node) {
			return certreport.Report{}, neverRan{f}
		}
		return certreport.Report{}, f
	}
	return reportOf(ctx, r.Pods, j)
}
