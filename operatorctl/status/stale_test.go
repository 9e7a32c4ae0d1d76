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
		"0 */6 * * *": 6 * time.Hour, "0 */12 * * *": 12 * time.Hour, "0 */1 * * *": time.Hour, "0 */30 * * *": day, "0 */6,3 * * *": 6 * time.Hour,
		"0 8-17/3 * * *": day, "0 ?/2 ? * ?": 2 * time.Hour, "0 */x * * *": day, "0 3 */3 * *": 3 * day, "0 3 */40 * *": 31 * day, "0 3 * * */2": 2 * day,
		"0 3 */3 * 1": 3 * day, "0 3 1 * 1": 7 * day, "0 */6 * * 1": 7 * day, "0 3 1 */3 *": 93 * day, "0 3 1 1,7 *": 366 * day,
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
	for name, change := range map[string]func(*batchv1.CronJob, *metav1.Time){
		"created": func(j *batchv1.CronJob, at *metav1.Time) { j.CreationTimestamp = *at },
		"ran": func(j *batchv1.CronJob, at *metav1.Time) {
			j.Status.LastScheduleTime, j.Status.LastSuccessfulTime = at, at
		},
	} {
		j := job.DeepCopy()
		change(j, &metav1.Time{Time: made.AddDate(1, 0, 0)})
		if w := WorkloadOf(j, Seen{Now: made.Add(60 * time.Hour)}); !strings.Contains(w.Stalled, "no run starts before 2027-01-01T00:00:00Z, because a clock was ahead") {
			t.Errorf("%s while a clock was ahead: %q", name, w.Stalled)
		}
	}
	job.Spec.Suspend = new(true)
	if w := WorkloadOf(job, Seen{Now: made.Add(200 * time.Hour)}); w.Stalled != "" {
		t.Error(w.Stalled)
	}
}

// A CronJob whose runs all succeed is stale at no time.
func TestHealthySteps(t *testing.T) {
	last := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for schedule, next := range map[string]time.Duration{"0 */6 * * *": 6 * time.Hour, "0 */12 * * *": 12 * time.Hour, "0 3 */3 * *": 72 * time.Hour, "0 3 1 */3 *": 90 * day} {
		job := &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: schedule}}
		job.CreationTimestamp = metav1.NewTime(last.Add(-1000 * time.Hour))
		at := metav1.NewTime(last)
		job.Status.LastSuccessfulTime, job.Status.LastScheduleTime = &at, &at
		if why, _ := stale(job, last.Add(next-time.Minute)); why != "" {
			t.Errorf("%q, a minute before its next run: %s", schedule, why)
		}
		if why, _ := stale(job, last.Add(3*next+24*time.Hour)); why == "" {
			t.Errorf("%q stopped, and is not stale", schedule)
		}
	}
}
