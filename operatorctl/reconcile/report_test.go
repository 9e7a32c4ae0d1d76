// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/status"
	"yunion.io/x/ocadm/test/require"
)

// The reconcile that sees the last component on the new release reports it: there may be no other before the next audit.
func TestUpgradeEndsInTheReconcileThatSeesItsEnd(t *testing.T) {
	cr := newCloud()
	cr.Status.Version, cr.Status.Phase = "v4.0.0", v1alpha1.PhaseUpgrading
	table, err := newCatalogue("", nil)
	require.NoError(t, err)
	d := &Desired{catalog: table, Cluster: component.Cluster{Version: "v4.0.4"}}
	for _, c := range table.components {
		d.Components = append(d.Components, &target{Resolved: component.Resolved{Component: c, DisabledReason: "disabled in spec"}})
	}
	s, _, _ := report(State{Cloud: cr, Done: nothingDone()}, d)
	if s.Version != "v4.0.4" || s.Phase != v1alpha1.PhaseRunning {
		t.Errorf("version %s, phase %s", s.Version, s.Phase)
	}
}

// TestEventsAboutBackups checks that an outdated or unproven backup causes one warning, and a proven one clears it.
func TestEventsAboutBackups(t *testing.T) {
	now := b0.Add(1000 * time.Hour)
	cr := newCloud()
	job := &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: "@daily"}}
	job.Namespace, job.Name, job.CreationTimestamp = cr.Namespace, cr.Name+"-backup", metav1.NewTime(b0)
	proven := func(hoursAgo int) backup.Record {
		at := now.Add(-time.Duration(hoursAgo) * time.Hour)
		return backup.Record{Name: "n", Place: "p", Time: at, Proven: &at}
	}
	for _, c := range []struct {
		name         string
		history      backup.History
		kind, reason string
	}{
		{"proven last night", backup.History{proven(10)}, corev1.EventTypeNormal, status.ReasonProven},
		{"still proven", backup.History{proven(10)}, "", ""},
		{"stale", backup.History{proven(60)}, corev1.EventTypeWarning, status.ReasonStale},
		{"still stale", backup.History{proven(61)}, "", ""},
		{"another one that could not be proven", backup.History{{Time: now, Problem: "no room"}, proven(60)}, corev1.EventTypeWarning, status.ReasonUnproven},
		{"a failed one", backup.History{{Time: now, Error: "no bucket"}, proven(60)}, corev1.EventTypeWarning, status.ReasonFailed},
		{"proven again", backup.History{proven(1)}, corev1.EventTypeNormal, status.ReasonProven},
	} {
		cm := &corev1.ConfigMap{Data: map[string]string{backup.HistoryKey: c.history.String()}}
		cm.Namespace, cm.Name = cr.Namespace, backup.HistoryName
		s := State{Cloud: cr, Now: now, Live: Live{namespace: cr.Namespace, objects: map[engine.Key]client.Object{}}}
		for _, o := range []client.Object{job, cm} {
			s.Live.objects[engine.KeyOf(render.Kind(o))] = o
		}
		out := status.Of(cr, now)
		surroundings(s, out)
		events := conditionEvents(cr.Status, out.OnecloudClusterStatus)
		cr.Status = out.OnecloudClusterStatus
		switch {
		case c.reason == "" && len(events) == 0:
		case c.reason == "" || len(events) != 1 || events[0].kind != c.kind || events[0].reason != c.reason || events[0].about != "Backup":
			t.Errorf("%s: %+v, want %s %s", c.name, events, c.kind, c.reason)
		}
	}
}

// Messages are truncated before they are redacted; truncation within a secret must not leave its beginning.
func TestRedactedSecretThatWasCut(t *testing.T) {
	secrets := component.Credentials{"a": "abcdefghijklmnopqrstuvwx"}
	for in, want := range map[string]string{
		"dsn root:abcdefghijklmnopqrstuvwx@db": "dsn root:***@db",
		"dsn root:abcdefghijklm…":              "dsn root:***…",
		"dsn root:abcdefghijklmnopqrstuvw…; b": "dsn root:***…; b",
		"an alphabet…":                         "an alphabet…",
	} {
		if got := redact(in, secrets); got != want {
			t.Errorf("redact(%q) = %q, want %q", in, got, want)
		}
	}
}
