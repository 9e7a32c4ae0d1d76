// SPDX-License-Identifier: Apache-2.0

package why

import (
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
)

// inTheCloud provokes the causes of the operator and of the cloud's resource.
func inTheCloud() []provocation {
	return []provocation{
		{"operator-missing", func(s *Snapshot) { s.withoutOperator() }},
		{"operator-stopped", func(s *Snapshot) {
			s.withoutOperatorPods()
			factsOf(s).operator().Spec.Replicas = new(int32(0))
		}},
		{"operator-down", func(s *Snapshot) {
			s.withoutOperatorPods()
			s.addPod("onecloud", "onecloud-operator-a", "n1", map[string]string{"app": "onecloud-operator"})
			s.ill("onecloud-operator-a", "", "")
		}},
		{"operator-behind", func(s *Snapshot) {
			s.Cloud.Generation = s.Cloud.Status.ObservedGeneration + 1
			s.Cloud.CreationTimestamp = metav1.NewTime(s.Time.Add(-time.Hour))
		}},
		{"operator-silent", func(s *Snapshot) { s.lease("onecloud", "ocadm-operator", s.Time.Add(-time.Hour)) }},
		{"operator-rights", func(s *Snapshot) {
			s.component("web", v1alpha1.Degraded, "NotApplied", `ingresses is forbidden: User "system:serviceaccount:onecloud:onecloud-operator" cannot patch resource`)
		}},
		{"cloud-paused", func(s *Snapshot) { s.Cloud.Annotations = map[string]string{v1alpha1.AnnotationPaused: "true"} }},
		{"cloud-certificates", func(s *Snapshot) { s.Cloud.Status.Certificates.NotAfter = metav1.NewTime(s.Time.Add(-day)) }},
		{"cloud-certificates-expiring", func(s *Snapshot) {
			s.Cloud.Status.Certificates = v1alpha1.CertificatesStatus{NotAfter: metav1.NewTime(s.Time.Add(5 * day)), Supplied: true}
		}},
		{"node-certificates", func(s *Snapshot) {
			meta.SetStatusCondition(&s.Cloud.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionNodeCertificates, Status: metav1.ConditionFalse,
				Reason: "NotRenewable", Message: "apiserver of node node1 ends 2027-01-02T03:04:05Z, and the key of its authority is not on the node"})
		}},
		{"cloud-ca", func(s *Snapshot) { s.degraded("Blocked", "reading the CA in Secret default-certs: no PEM") }},
		{"cloud-blocked", func(s *Snapshot) {
			s.degraded("Blocked", "the release in force, 5, is lost: restore Secret default-release-5")
		}},
		{"invalid-spec", func(s *Snapshot) { s.degraded("InvalidSpec", "spec.mysql.host is empty") }},
		{"invalid-option", func(s *Snapshot) {
			s.component("web", v1alpha1.Degraded, v1alpha1.ReasonInvalidOption, `option "x" is unknown`)
		}},
		{"field-conflict", func(s *Snapshot) {
			s.component("web", v1alpha1.Degraded, "FieldConflict", "kubectl-edit changes spec.replicas")
		}},
		{"immutable-field", func(s *Snapshot) {
			s.component("web", v1alpha1.Degraded, "ImmutableField", "spec.selector cannot change: kubectl delete …")
		}},
		{"cloud-etcd", func(s *Snapshot) {
			s.effect("etcd", "2 of 3 members have lost their disks, which leaves no majority")
		}},
		{"deletion-blocked", func(s *Snapshot) { s.Cloud.DeletionTimestamp = &metav1.Time{Time: s.Time.Add(-time.Hour)} }},
		{"update-failed", func(s *Snapshot) {
			s.operation(v1alpha1.OperationFailed)
			s.Cloud.Status.Conditions = append(s.Cloud.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionUpdateFailed, Status: metav1.ConditionTrue, Reason: "Refused",
				Message: "Update to v4.0.5 was refused: OCA-7051 Components of the cloud are not available: web is Degraded; next: ocadm cluster status; details: ocadm operation show " +
					s.Operations[len(s.Operations)-1].Name})
		}},
		{"operation-failed", func(s *Snapshot) { s.operation(v1alpha1.OperationFailed) }},
		{"operation-paused", func(s *Snapshot) { // a nightly backup waited for it, and was given up
			s.operation(v1alpha1.OperationPaused)
			s.operation(v1alpha1.OperationCancelled)
			s.Operations[1].Name, s.Operations[1].CreationTimestamp.Time = "default-backup-1", s.Time.Add(time.Minute)
		}},
		{"backup-failed", func(s *Snapshot) { s.component("web", v1alpha1.Degraded, "LastRunFailed", "the last Job failed") }},
		{"object-refused", func(s *Snapshot) { s.component("web", v1alpha1.Degraded, "NotApplied", "the object is invalid") }},
		{"effect-failed", func(s *Snapshot) { s.effect("web", "setup/web: something else") }},
		{"rollout-stalled", func(s *Snapshot) { s.component("web", v1alpha1.Degraded, "RolloutStalled", "0 of 1 pods ready") }},
		{"component-degraded", func(s *Snapshot) { s.component("web", v1alpha1.Degraded, "Other", "something new") }},
		{"fields-ignored", func(s *Snapshot) {
			s.Cloud.Status.Conditions = slices.Insert(s.Cloud.Status.Conditions, 0, metav1.Condition{Type: v1alpha1.ConditionIgnored, Status: metav1.ConditionTrue, Reason: "UnknownFields", Message: "spec.nothing"})
		}},
	}
}

func (s *Snapshot) degraded(reason, message string) {
	c := meta.FindStatusCondition(s.Cloud.Status.Conditions, v1alpha1.ConditionDegraded)
	c.Status, c.Reason, c.Message = metav1.ConditionTrue, reason, message
}

func (s *Snapshot) operation(phase v1alpha1.OperationPhase) {
	s.Operations = append(s.Operations, v1alpha1.OnecloudOperation{ObjectMeta: metav1.ObjectMeta{Name: "default-update-1", CreationTimestamp: metav1.NewTime(s.Time)}, Spec: v1alpha1.OnecloudOperationSpec{Cloud: s.Name},
		Status: v1alpha1.OnecloudOperationStatus{Phase: phase, Message: "a step failed"}})
}

func (s *Snapshot) withoutOperatorPods() {
	s.Pods = lists.Filter(s.Pods, func(p corev1.Pod) bool { return p.Labels["app"] != "onecloud-operator" })
}

func (s *Snapshot) withoutOperator() {
	s.withoutOperatorPods()
	s.Deployments = slices.DeleteFunc(slices.Clone(s.Deployments), func(d appsv1.Deployment) bool { return d.Name == "onecloud-operator" })
}
