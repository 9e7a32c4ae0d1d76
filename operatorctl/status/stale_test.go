// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPeriods(t *testing.T) {
	for schedule, want := range map[string]time.Duration{
		"0 2 * * *": day, "0 2,14 * * *": day, "*/5 * * * *": time.Hour, "0 * * * *": time.Hour, "0 2 * * 1": 7 * day, "0 2 1 * *": 31 * day, "0 2 1 1 *": 366 * day,
		"@daily": day, "@every 90m": 90 * time.Minute, "@every nonsense": 0, "": 0, "0 2": 0,
	} {
		if got := periodOf(schedule); got != want {
			t.Errorf("%q: %s, want %s", schedule, got, want)
		}
	}
}

func TestStale(t *testing.T) {
	made := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	job := &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: "0 2 * * *"}}
	job.CreationTimestamp = metav1.NewTime(made)
	if why, due := stale(job, made.Add(48*time.Hour)); why != "" || !due.Equal(made.Add(49*time.Hour)) {
		t.Errorf("%q %s", why, due)
	}
	if why, _ := stale(job, made.Add(49*time.Hour)); !strings.Contains(why, "none of its runs has succeeded since 2026-01-01T00:00:00Z") {
		t.Error(why)
	}
	last := metav1.NewTime(made.Add(50 * time.Hour))
	job.Status.LastSuccessfulTime = &last
	if why, due := stale(job, made.Add(60*time.Hour)); why != "" || !due.Equal(made.Add(99*time.Hour)) {
		t.Errorf("%q %s", why, due)
	}
	if w := WorkloadOf(job, Seen{Now: made.Add(200 * time.Hour)}); !strings.Contains(w.Stalled, "it has not run since its last success at 2026-01-03T02:00:00Z") {
		t.Error(w.Stalled)
	}
	job.Spec.Suspend = new(true)
	if w := WorkloadOf(job, Seen{Now: made.Add(200 * time.Hour)}); w.Stalled != "" {
		t.Error(w.Stalled)
	}
}
