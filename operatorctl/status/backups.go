// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
)

const (
	ReasonProven   = "Proven"
	ReasonNoBackup = "NoBackup"
	ReasonStale    = "Stale"
	ReasonUnproven = "Unproven"
	ReasonFailed   = "Failed"
)

// freshByHand is how long a proven backup counts in a cloud without a schedule.
const freshByHand = 7 * day

// ProveBackups reports whether a recent backup of the cloud is known to be restorable: it was restored into scratch databases and compared at most two
// periods of the schedule ago. Without a schedule, the condition is otherwise Unknown, not False: the user may back up in another way. job is the
// CronJob of the schedule, nil if there is none.
func (c *Cloud) ProveBackups(history backup.History, job *batchv1.CronJob) {
	known := history.Until(c.now)
	is, reason, message := judgeBackups(known, job, c.now)
	if n := len(history) - len(known); n > 0 && is != metav1.ConditionTrue {
		message += fmt.Sprintf("; %d backups with a time in the future do not count: a clock was ahead", n)
	}
	c.setInFull(v1alpha1.ConditionBackupProven, is, reason, clip(message))
	if c.Backups = nil; len(known) == 0 {
		return
	}
	c.Backups = &v1alpha1.BackupsStatus{Last: metav1.NewTime(known[0].Time)}
	if p := known.Proven(); p != nil {
		c.Backups.Proven, c.Backups.Name, c.Backups.Place = metav1.NewTime(p.Time), p.Name, p.Place
	}
}

func judgeBackups(history backup.History, job *batchv1.CronJob, now time.Time) (metav1.ConditionStatus, string, string) {
	const schedule = "ocadm cluster backup schedule"
	proven := history.Proven()
	limit, bad, since, waits := freshByHand, metav1.ConditionUnknown, time.Time{}, ""
	if job != nil {
		bad, since, waits = metav1.ConditionFalse, job.CreationTimestamp.Time, waiting(job, now)
		if period := periodOf(job.Spec.Schedule); period > 0 {
			limit = 2*period + time.Hour
		}
	}
	switch {
	case proven != nil && now.Before(proven.Time.Add(limit)):
		return metav1.ConditionTrue, ReasonProven, fmt.Sprintf("%s in %s, from %s, was restored into scratch databases and compared", proven.Name, proven.Place, stamp(proven.Time))
	case waits != "":
		return bad, ReasonStale, waits
	case len(history) == 0 && job == nil:
		return metav1.ConditionUnknown, ReasonNoBackup, "no backup is known, and none is scheduled: " + schedule
	case proven == nil && job != nil && now.Before(since.Add(limit)) && (len(history) == 0 || history[0].Time.Before(since)):
		return metav1.ConditionUnknown, ReasonNoBackup, "the first scheduled backup has not run yet"
	case len(history) == 0:
		return bad, ReasonNoBackup, "no backup has been made since the schedule was set " + stamp(since)
	}
	last, latest := history[0], "no backup was ever proven"
	if proven != nil {
		latest = "the last proven backup is from " + stamp(proven.Time)
	}
	switch {
	case last.Error != "":
		return bad, ReasonFailed, fmt.Sprintf("the backup from %s failed: %s; %s", stamp(last.Time), last.Error, latest)
	case last.Problem != "":
		return bad, ReasonUnproven, fmt.Sprintf("the backup from %s could not be proven: %s; %s", stamp(last.Time), last.Problem, latest)
	case last.Proven == nil:
		return bad, ReasonUnproven, fmt.Sprintf("the backup from %s was not proven; %s: ocadm cluster backup verify %s --restore",
			stamp(last.Time), latest, cmp.Or(last.Name, "FILE"))
	case job == nil:
		return bad, ReasonStale, latest + ", and none is scheduled: " + schedule
	}
	return bad, ReasonStale, latest
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
