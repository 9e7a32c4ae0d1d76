// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/status"
)

// Status is the status of a cloud.
type Status struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Version is the requested one, Running the one that every component has reached.
	Version string `json:"version"`
	Running string `json:"running,omitempty"`
	Phase   string `json:"phase,omitempty"`
	// Ready is true if the operator has seen the latest change and every component is Available or Idle.
	Ready bool `json:"ready"`
	// Degraded is true if something failed and needs attention. A cloud that is neither Ready nor Degraded is progressing.
	Degraded bool `json:"degraded"`
	// Blocked explains why the operator cannot work on the cloud, "" if it can. Everything else is then the last known state.
	Blocked string `json:"blocked,omitempty"`
	// Paused says what the operator leaves alone because of a user's annotation, "" if nothing. Ignored lists fields of the spec without effect.
	Paused  string `json:"paused,omitempty"`
	Ignored string `json:"fieldsIgnored,omitempty"`
	// Message explains why it is not Ready.
	Message    string                     `json:"message,omitempty"`
	Components []v1alpha1.ComponentStatus `json:"components"`
	// NodesNotReady lists the nodes that are not Ready, with the reason; empty if all are, or if the operator may not read nodes.
	NodesNotReady string                 `json:"nodesNotReady,omitempty"`
	Release       v1alpha1.ReleaseStatus `json:"release,omitzero"`
	// Operation is the one that changes the release of the cloud, with the waves reached so far.
	Operation string `json:"operation,omitempty"`
	// UpdateAvailable describes what another build of the operator would change, "" if nothing.
	UpdateAvailable string `json:"updateAvailable,omitempty"`
	// UpdateFailed explains why the last operation to change the release failed, "" if it did not.
	UpdateFailed string `json:"updateFailed,omitempty"`
	// NotSpread lists what a cloud of profile ha loses with one node, "" if only what must be single.
	NotSpread string `json:"notSpread,omitempty"`
	// NotProven explains why no recent backup is known to be restorable, "" if one is or no schedule asks for any.
	NotProven string `json:"notProven,omitempty"`
	// NodeCertificates explains which certificates of control-plane nodes are not renewed, "" if all are.
	NodeCertificates string `json:"nodeCertificates,omitempty"`
	// Database describes whether the embedded database survives the loss of a node; "" for a cloud with its own database server. Only "ocadm cluster
	// status" without --watch sets it.
	Database string `json:"database,omitempty"`
	// Certificates of the services, as reported by the operator.
	Certificates v1alpha1.CertificatesStatus `json:"certificates,omitzero"`
	// Unreachable explains why the API server does not answer; the rest is its last answer. Only Wait and Watch set it.
	Unreachable string `json:"unreachable,omitempty"`
	// counted is true if Message counts the components.
	counted bool
	// rollout is the name of the operation that Operation describes.
	rollout string
}

// Get reads the status of a cloud.
func Get(ctx context.Context, c client.Client, key client.ObjectKey) (Status, error) {
	u, err := get(ctx, c, key)
	if err != nil {
		return Status{}, err
	}
	s, err := statusOf(u.Object)
	if err != nil || s.rollout == "" {
		return s, err
	}
	// The operator removes it from the status of the cloud some time after its end.
	if o, err := OperationOf(ctx, c, client.ObjectKey{Namespace: key.Namespace, Name: s.rollout}); err == nil && o.Status.Phase.Final() {
		s.Operation = ""
	}
	return s, nil
}

// statusOf reads the status from the resource. It is pure.
func statusOf(object map[string]any) (Status, error) {
	var cr v1alpha1.OnecloudCluster
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &cr); err != nil {
		return Status{}, fmt.Errorf("reading the status of the cloud: %w", err)
	}
	s := Status{
		Name: cr.Name, Namespace: cr.Namespace, Version: cr.Spec.Version, Running: cr.Status.Version,
		Phase: string(cr.Status.Phase), Components: append([]v1alpha1.ComponentStatus{}, cr.Status.Components...),
		Certificates: cr.Status.Certificates, Release: cr.Status.Release,
	}
	says := func(kind string, is metav1.ConditionStatus) string {
		if c := meta.FindStatusCondition(cr.Status.Conditions, kind); c != nil && c.Status == is {
			return c.Message
		}
		return ""
	}
	s.UpdateAvailable = says(v1alpha1.ConditionUpdateAvailable, metav1.ConditionTrue)
	s.UpdateFailed = says(v1alpha1.ConditionUpdateFailed, metav1.ConditionTrue)
	s.NotSpread = says(v1alpha1.ConditionHighlyAvailable, metav1.ConditionFalse)
	s.NotProven = says(v1alpha1.ConditionBackupProven, metav1.ConditionFalse)
	s.NodeCertificates = says(v1alpha1.ConditionNodeCertificates, metav1.ConditionFalse)
	s.NodesNotReady = says(v1alpha1.ConditionNodesReady, metav1.ConditionFalse)
	s.Ignored = says(v1alpha1.ConditionIgnored, metav1.ConditionTrue)
	if what, end := pauseOf(&cr); what != "" {
		s.Paused = what + "; to continue: " + end
	}
	if c := meta.FindStatusCondition(cr.Status.Conditions, v1alpha1.ConditionDegraded); c != nil && c.Status == metav1.ConditionTrue {
		if s.Degraded = true; c.Reason == status.ReasonBlocked {
			s.Blocked = c.Message
		}
	}
	if r := cr.Status.Rollout; r != nil {
		s.rollout = r.Operation
		s.Operation = finding.Here(fmt.Sprintf("%s, wave %d: ocadm operation show %s", r.Operation, r.Reached, r.Operation), cr.Namespace, cr.Name)
	}
	unseen := func(text string) string {
		if s.Blocked != "" {
			return "the operator cannot work on it: " + s.Blocked
		}
		return text
	}
	ready := meta.FindStatusCondition(cr.Status.Conditions, v1alpha1.ConditionReady)
	switch {
	case cr.DeletionTimestamp != nil:
		s.Message = "it is being deleted"
		s.Phase = cmp.Or(s.Phase, string(v1alpha1.PhaseDeleting))
	case ready == nil:
		s.Message = unseen("the operator has not reconciled it yet")
	case cr.Status.ObservedGeneration < cr.Generation:
		s.Message = unseen("the operator has not seen the latest change yet")
	case s.UpdateAvailable != "" && cr.Annotations[v1alpha1.AnnotationUpdateFrom] == strconv.Itoa(s.Release.Revision):
		s.Message = unseen("the operator has not seen the update yet")
	case ready.Status == "True":
		s.Ready = true
	default:
		s.Message, s.counted = ready.Message, strings.HasPrefix(ready.Reason, "Components")
	}
	return s, nil
}

// pauseOf describes what the operator leaves alone because of the annotations of a cloud, "" if nothing, and returns the command that ends it.
func pauseOf(cloud metav1.Object) (what, end string) {
	annotations := cloud.GetAnnotations()
	all, names := v1alpha1.Paused(annotations[v1alpha1.AnnotationPaused])
	end = fmt.Sprintf("kubectl -n %s annotate oc %s %s-", cloud.GetNamespace(), cloud.GetName(), v1alpha1.AnnotationPaused)
	_, stopped := annotations[v1alpha1.AnnotationPausedBefore]
	switch {
	case all && stopped:
		end = "ocadm cluster start"
		if by := annotations[v1alpha1.AnnotationStoppedBy]; by != "" && by != v1alpha1.StoppedByRestore { // it refuses while the operation runs
			end = "ocadm operation show " + by + "; when that has ended: " + end
		}
		return changesNothing, finding.Here(end, cloud.GetNamespace(), cloud.GetName())
	case all:
		return changesNothing, end
	case len(names) > 0:
		return "the operator does not change " + strings.Join(names, ", "), end
	}
	return "", ""
}

const changesNothing = "the operator changes nothing"

// Unpaused returns a finding if a change of a cloud, or of a component with one of the given names, would wait for the end of a pause.
func Unpaused(ctx context.Context, c client.Client, key client.ObjectKey, component ...string) error {
	u, err := get(ctx, c, key)
	if err != nil {
		return err
	}
	all, names := v1alpha1.Paused(u.GetAnnotations()[v1alpha1.AnnotationPaused])
	if !all && !slices.ContainsFunc(component, func(name string) bool { return slices.Contains(names, name) }) {
		return nil
	}
	what, end := pauseOf(u)
	return finding.New("OCA-7022", fmt.Sprintf("Cloud %s is paused, so the change has no effect yet", key), what, end)
}

// Reason explains why it is not Ready, without the number of components: Counts returns that.
func (s Status) Reason() string {
	if _, reason, more := strings.Cut(s.Message, "; "); s.counted && more {
		return reason
	}
	return s.Message
}

func (s Status) Health() string {
	switch {
	case s.Ready && s.Blocked != "":
		return "ready when the operator last worked on it"
	case s.Ready:
		return "ready"
	}
	return "not ready"
}

// Counts returns how many components are Available and how many should run. Components without a node count as neither.
func (s Status) Counts() (available, all int) {
	all = lists.Count(s.Components, func(c v1alpha1.ComponentStatus) bool { return c.State != v1alpha1.Disabled && c.State != v1alpha1.Idle })
	return lists.Count(s.Components, func(c v1alpha1.ComponentStatus) bool { return c.State == v1alpha1.Available }), all
}

// Tally describes in words how many components are Available, and how many have no node to run on.
func (s Status) Tally() string {
	available, all := s.Counts()
	text := fmt.Sprintf("%d of %d components are available", available, all)
	if n := lists.Count(s.Components, func(c v1alpha1.ComponentStatus) bool { return c.State == v1alpha1.Idle }); n > 0 {
		text += fmt.Sprintf(", %d idle", n)
	}
	return text
}

// Why explains in one line why a component is in its state.
func Why(c v1alpha1.ComponentStatus) string {
	if len(c.BlockedBy) > 0 && !c.Outdated {
		return "waits for " + strings.Join(c.BlockedBy, ", ")
	}
	return cmp.Or(c.Message, c.Reason)
}

// Missing lists the components that should run but do not: "region: Waiting: waits for keystone".
func (s Status) Missing() []string {
	var out []string
	for _, c := range s.Components {
		if c.Settled() {
			continue
		}
		line := c.Name + ": " + string(c.State)
		if why := Why(c); why != "" {
			line += ": " + why
		}
		out = append(out, line)
	}
	return out
}
