// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/callin"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/ssh"
)

const (
	// groupOfReports is the group that may write reports; policy onecloud-machine-call-in limits each token to its own.
	groupOfReports = bootstrapapi.BootstrapDefaultGroup + ":onecloud:machines"
	// labelReporters is the ConfigMap label with the tokens that may write it, separated by dots.
	labelReporters = "onecloud.yunion.io/call-in"
)

// listen creates the ConfigMap in which a machine reports, or lets the holder of another token write it, too. The previous token stays: a machine may
// have booted with it.
func (c *Bootstrap) listen(ctx context.Context, m *v1alpha1.OnecloudMachine, token string) error {
	live := &corev1.ConfigMap{}
	err := c.Direct.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.CallIn()}, live)
	switch {
	case err == nil && !metav1.IsControlledBy(live, m):
		return fmt.Errorf("preparing for machine %s to call in: ConfigMap %s does not belong to the operator: rename it", m.Name, live.Name)
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("preparing for machine %s to call in: %w", m.Name, err)
	}
	reporters, _, _ := strings.Cut(token, ".")
	if _, last, _ := strings.Cut("."+live.Labels[labelReporters], "."); last != "" {
		reporters = last[strings.LastIndex(last, ".")+1:] + "." + reporters
	}
	made := corev1ac.ConfigMap(m.CallIn(), m.Namespace).
		WithLabels(map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy, labelReporters: reporters}).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind(v1alpha1.MachineKind).
			WithName(m.Name).WithUID(m.UID).WithController(true))
	if err := c.Client.Apply(ctx, made, client.FieldOwner(v1alpha1.ManagerOperator), client.ForceOwnership); err != nil {
		return fmt.Errorf("preparing for machine %s to call in: %w", m.Name, err)
	}
	return nil
}

// heard reads a machine's report from the cache.
func (c *Infrastructure) heard(ctx context.Context, m *v1alpha1.OnecloudMachine) (callin.Report, error) {
	cm := &corev1.ConfigMap{}
	found, err := kube.Find(ctx, c.Client, client.ObjectKey{Namespace: m.Namespace, Name: m.CallIn()}, cm, "the report of machine "+m.Name)
	if !found || !metav1.IsControlledBy(cm, m) {
		return callin.Report{}, err // it has not reported
	}
	return callin.Read(cm.Data), nil
}

// listening decides about a machine that calls in and has no Node yet.
func (d *decision) listening(f facts) {
	s, r := &d.status, f.report
	s.FailureReason, s.FailureMessage = "", ""
	if r.State == "" {
		s.Phase, s.Message = v1alpha1.MachinePending, "waiting for the machine to call in; boot it with: ocadm machine bootstrap-data "+f.machine.Name
		d.set(f, v1alpha1.ConditionHostReachable, metav1.ConditionFalse, "NotCalledIn", s.Message)
		return
	}
	d.set(f, v1alpha1.ConditionHostReachable, metav1.ConditionTrue, "CalledIn", "")
	if r.Phase != "" && r.Phase != preflightPhase && r.State != callin.Called {
		d.set(f, v1alpha1.ConditionPrecheckPassed, metav1.ConditionTrue, "NoErrors", "")
	}
	s.Phase = v1alpha1.MachineProvisioning
	switch r.State {
	case callin.Called:
		s.Message = "the machine has called in"
	case callin.Joining:
		s.Message = "join: phase " + r.Phase
	case callin.Joined:
		s.Phase, s.Message = v1alpha1.MachineProvisioned, "waiting for its Node"
	case callin.Failed:
		d.refused(f)
	}
}

// joins reports whether a machine that has called in may still join: it has not given up. Before it joins, it needs valid data: with an expired token it
// can neither join nor report that.
func joins(f facts) bool {
	switch f.report.State {
	case "":
		return false
	case callin.Called:
		return f.data
	case callin.Failed:
		return f.data && !f.report.Last()
	default:
		return true
	}
}

// preflightPhase is the phase of ocadm join that runs the checks.
const preflightPhase = "preflight"

// refused decides about a machine that reports a failed join. It retries a few times by itself.
func (d *decision) refused(f facts) {
	r, s := f.report, &d.status
	found := bound(r.Findings)
	if len(found) == 0 {
		found = finding.Of(failed(f.machine.Name, stepJoin, ssh.Result{Exit: r.Exit, Stderr: r.Message}))
	}
	why := sentence(found[0].Code, found[0].What, found[0].Cause, found[0].Remedy)
	if r.Phase == preflightPhase {
		d.set(f, v1alpha1.ConditionPrecheckPassed, metav1.ConditionFalse, reason(found[0].Code), why)
	}
	if !r.Last() {
		s.Message = fmt.Sprintf("%s; attempt %d of %d, the machine retries automatically", why, r.Try, callin.Tries)
		return
	}
	d.fail(found[0].Code, why+"; after correcting the cause, boot it with new data: ocadm machine bootstrap-data "+f.machine.Name)
}
