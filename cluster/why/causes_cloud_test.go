// SPDX-License-Identifier: Apache-2.0

package why

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// TestExpiredCertificateFirst: what the services and the operator report after their certificate has expired is not the cause.
func TestExpiredCertificateFirst(t *testing.T) {
	const says = `Post "https://default-keystone:30500/v3/auth/tokens": tls: failed to verify certificate: x509: certificate has expired or is not yet valid`
	for _, c := range []struct {
		name    string
		change  func(*Snapshot)
		explain bool
	}{
		{"an option", func(s *Snapshot) { s.logs("default-region", "[fatal] Unknown optional argument no-such-option") }, false},
		{"a crash", func(s *Snapshot) { s.logs("default-region", "bye") }, false},
		{"a log", func(s *Snapshot) { s.logs("default-region", says, "[fatal] parse options") }, true},
		{"the operator", func(s *Snapshot) { s.effect("region", "account/region: "+says) }, true},
	} {
		s := healthy(t)
		s.Cloud.Status.Certificates.NotAfter = metav1.NewTime(s.Time.Add(-time.Hour))
		c.change(s)
		for _, name := range []string{"", "region"} {
			r, _ := Diagnose(s, name)
			if (name == "" || c.explain) && (r.Cause == nil || r.Cause.ID != "cloud-certificates") || c.explain && len(r.Others) > 0 {
				t.Errorf("%s, %q: %+v, not explained %+v", c.name, name, r.Cause, r.Others)
			}
		}
	}
}

// TestInvalidSpecFirst: as long as the spec is invalid, what the report of a broken pod advises has no effect.
func TestInvalidSpecFirst(t *testing.T) {
	s := healthy(t)
	s.degraded("InvalidSpec", "spec.mysql.host is empty")
	s.ill("default-region", "ImagePullBackOff", `Back-off pulling image "r/region:typo": not found`)
	for _, name := range []string{"", "region"} {
		r, _ := Diagnose(s, name)
		if r.Cause == nil || r.Cause.ID != "invalid-spec" || len(r.Others) == 0 {
			t.Errorf("%q: %+v, others %+v", name, r.Cause, r.Others)
		}
	}
	s.ready("n2", corev1.ConditionFalse, "KubeletNotReady", "container runtime is down")
	if r, _ := Diagnose(s, ""); r.Cause == nil || r.Cause.ID != "node-no-runtime" {
		t.Errorf("%+v", r.Cause)
	}
}

// TestNotReadyWithoutABrokenComponent checks that a cloud is not called healthy just because each of its components is.
func TestNotReadyWithoutABrokenComponent(t *testing.T) {
	for name, change := range map[string]func(*Snapshot){
		"the operator can do nothing": func(s *Snapshot) { s.degraded("Blocked", "operation default-update-1: release 3 no longer exists") },
		"no operation moves it": func(s *Snapshot) {
			meta.SetStatusCondition(&s.Cloud.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse,
				Reason: "WaitsForOperation", Message: "version v9 of the spec is waiting for an operation: ocadm operation list"})
		},
		"it is being deleted": func(s *Snapshot) {
			s.Cloud.DeletionTimestamp = &metav1.Time{Time: s.Time.Add(-time.Minute)}
			meta.SetStatusCondition(&s.Cloud.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse,
				Reason: "Deleting", Message: "waiting for the pods of web"})
		},
	} {
		s := healthy(t)
		change(s)
		says := meta.FindStatusCondition(s.Cloud.Status.Conditions, v1alpha1.ConditionReady).Message
		if name == "the operator can do nothing" {
			says = "release 3 no longer exists"
		}
		if r, _ := Diagnose(s, ""); r.Healthy || r.Err() == nil || !strings.Contains(r.State, says) {
			t.Errorf("%s: healthy %v, %v: %s", name, r.Healthy, r.Err(), r.State)
		}
	}
}

// TestOperatorOfAnotherNamespace: the cloud is elsewhere, and the log is that of the operator.
func TestOperatorOfAnotherNamespace(t *testing.T) {
	s := healthy(t)
	s.Namespace, s.Cloud.Namespace = "elsewhere", "elsewhere"
	s.Cloud.Generation, s.Cloud.CreationTimestamp = s.Cloud.Status.ObservedGeneration+1, metav1.NewTime(s.Time.Add(-time.Hour))
	if r, _ := Diagnose(s, ""); r.Cause == nil || r.Cause.ID != "operator-behind" || !strings.Contains(r.Cause.Remedy, "kubectl -n onecloud logs") {
		t.Errorf("%+v", r.Cause)
	}
}

// TestAddressInRemedy checks that the command finds the service: kubectl prints addresses and ports in different columns, and grep reads brackets.
func TestAddressInRemedy(t *testing.T) {
	for address, host := range map[string]string{"10.96.0.7:30500": "10.96.0.7", "[fd00::7]:30500": "fd00::7"} {
		for _, says := range []string{"connect: connection refused", "i/o timeout"} {
			s := healthy(t)
			s.logs("default-glance", "dial tcp "+address+": "+says)
			r, _ := Diagnose(s, "")
			if r.Cause == nil || !strings.Contains(r.Cause.Remedy, "grep -wF "+host+";") || !strings.Contains(r.Cause.What, address) {
				t.Errorf("%s: %+v", says, r.Cause)
			}
		}
	}
}
