// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"yunion.io/x/ocadm/internal/kube"
)

// stale returns why a CronJob that has not succeeded for more than two of its periods is stale, although its last run did not fail: nothing starts it,
// or a run never ends. due is when that will be the case if nothing happens.
func stale(t *batchv1.CronJob, now time.Time) (why string, due time.Time) {
	if why = waiting(t, now); why != "" {
		return why, time.Time{}
	}
	period := periodOf(t.Spec.Schedule)
	since := cmp.Or(t.Status.LastSuccessfulTime, &t.CreationTimestamp).Time
	if period == 0 || since.IsZero() {
		return "", time.Time{}
	}
	due = since.Add(2*period + time.Hour)
	if now.Before(due) {
		return "", due
	}
	if t.Status.LastSuccessfulTime == nil {
		return "none of its runs has succeeded since " + stamp(since), time.Time{}
	}
	return "it has not run since its last success at " + stamp(since), time.Time{}
}

// waiting explains that Kubernetes starts no run of a CronJob for a long time, "" otherwise: it waits for the first time after the last run or the
// creation, which is in the future if a clock was ahead (k8s.io/kubernetes pkg/controller/cronjob: mostRecentScheduleTime).
func waiting(t *batchv1.CronJob, now time.Time) string {
	from := cmp.Or(t.Status.LastScheduleTime, &t.CreationTimestamp)
	if !kube.Ahead(from.Time, now) {
		return ""
	}
	return fmt.Sprintf("no run starts before %s, because a clock was ahead; to start them again: kubectl -n %s delete cronjob %s, which the operator creates again",
		stamp(from.Time), t.Namespace, t.Name)
}

const day = 24 * time.Hour

// periodOf returns an upper bound of the time between two runs of a schedule, 0 if it is unknown.
func periodOf(schedule string) time.Duration {
	if every, is := strings.CutPrefix(schedule, "@every "); is {
		d, err := time.ParseDuration(every)
		if err != nil {
			return 0
		}
		return d
	}
	names := map[string]time.Duration{"@hourly": time.Hour, "@daily": day, "@midnight": day, "@weekly": 7 * day, "@monthly": 31 * day, "@yearly": 366 * day, "@annually": 366 * day}
	if d, is := names[schedule]; is {
		return d
	}
	fields := strings.Fields(schedule)
	if len(fields) != 5 {
		return 0
	}
	hours, days, months, weekdays := stepOf(fields[1], 24), stepOf(fields[2], 31), stepOf(fields[3], 12), stepOf(fields[4], 7)
	switch {
	case months == 12:
		return 366 * day
	case months > 1:
		return time.Duration(months) * 31 * day
	case days > 1 && weekdays > 1: // it runs on days of either kind
		return time.Duration(min(days, weekdays)) * day
	case days > 1 || weekdays > 1:
		return time.Duration(max(days, weekdays)) * day
	}
	return time.Duration(hours) * time.Hour
}

// stepOf returns how many units may pass between two values of a field of a schedule: 1 for "*", N for "*/N", all for other lists and ranges.
func stepOf(field string, all int) int {
	first, _, _ := strings.Cut(field, ",") // further values only add runs
	values, step, stepped := strings.Cut(first, "/")
	if values != "*" && values != "?" {
		return all
	}
	if !stepped {
		return 1
	}
	n, err := strconv.Atoi(step)
	if err != nil || n < 1 {
		return all
	}
	return min(n, all)
}
