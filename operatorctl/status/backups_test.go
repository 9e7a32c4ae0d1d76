// SPDX-License-Identifier: Apache-2.0

package status_test

import (
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/operatorctl/status"
)

func TestBackupProven(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	ago := func(hours int) time.Time { return now.Add(-time.Duration(hours) * time.Hour) }
	daily := func(hours int) *batchv1.CronJob {
		j := &batchv1.CronJob{}
		j.CreationTimestamp, j.Spec.Schedule = metav1.NewTime(ago(hours)), "0 2 * * *"
		return j
	}
	ahead := daily(99)
	ahead.Namespace, ahead.Name, ahead.Status.LastScheduleTime = "onecloud", "default-backup", &metav1.Time{Time: ago(-48)}
	madeAhead := daily(-48)
	proven := func(hours int) backup.Record {
		at := ago(hours)
		return backup.Record{Name: "n", Place: "p", Time: at, Proven: &at}
	}
	failed := func(hours int) backup.Record { return backup.Record{Time: ago(hours), Error: "bucket unreachable"} }
	judged := func(history backup.History, job *batchv1.CronJob) *status.Cloud {
		out := status.Of(&v1alpha1.OnecloudCluster{}, now)
		out.ProveBackups(history, job)
		return out
	}
	for name, c := range map[string]struct {
		history backup.History
		job     *batchv1.CronJob
		is      metav1.ConditionStatus
		reason  string
		says    string
	}{
		"nothing":                           {nil, nil, metav1.ConditionUnknown, "NoBackup", "none is scheduled"},
		"scheduled just now":                {nil, daily(1), metav1.ConditionUnknown, "NoBackup", "has not run yet"},
		"scheduled, none for two periods":   {nil, daily(50), metav1.ConditionFalse, "NoBackup", "2026-11-21T10:00:00Z"},
		"last night":                        {backup.History{proven(10)}, daily(99), metav1.ConditionTrue, "Proven", "n in p"},
		"last night failed, before did not": {backup.History{failed(10), proven(34)}, daily(99), metav1.ConditionTrue, "Proven", "n in p"},
		"two nights failed":                 {backup.History{failed(10), failed(34), proven(58)}, daily(99), metav1.ConditionFalse, "Failed", "bucket unreachable"},
		"the first one failed":              {backup.History{failed(1)}, daily(2), metav1.ConditionFalse, "Failed", "no backup was ever proven"},
		"not proven":                        {backup.History{{Time: ago(1), Problem: "no room"}, proven(58)}, daily(99), metav1.ConditionFalse, "Unproven", "no room"},
		"proof left out":                    {backup.History{{Time: ago(1)}}, daily(99), metav1.ConditionFalse, "Unproven", "was not proven"},
		"nothing runs any more":             {backup.History{proven(50)}, daily(99), metav1.ConditionFalse, "Stale", "2026-11-21T10:00:00Z"},
		"by hand, this week":                {backup.History{proven(100)}, nil, metav1.ConditionTrue, "Proven", ""},
		"by hand, long ago":                 {backup.History{proven(200)}, nil, metav1.ConditionUnknown, "Stale", "none is scheduled"},
		"by hand, failed":                   {backup.History{failed(1)}, nil, metav1.ConditionUnknown, "Failed", "bucket unreachable"},
		"a clock was ahead":                 {backup.History{proven(-9000), proven(50)}, daily(99), metav1.ConditionFalse, "Stale", "a clock was ahead"},
		"the schedule waits":                {backup.History{proven(-48), proven(50)}, ahead, metav1.ConditionFalse, "Stale", "before 2026-11-25T12:00:00Z, because a clock was ahead; to start them again: kubectl -n onecloud delete cronjob default-backup"},
		"the schedule was created then":     {nil, madeAhead, metav1.ConditionFalse, "Stale", "before 2026-11-25T12:00:00Z, because a clock was ahead"},
		"it waits, last night did not":      {backup.History{proven(10)}, ahead, metav1.ConditionTrue, "Proven", "n in p"},
		"ahead by a minute":                 {backup.History{{Name: "n", Place: "p", Time: now.Add(time.Minute), Proven: &now}}, daily(99), metav1.ConditionTrue, "Proven", "n in p"},
	} {
		got := meta.FindStatusCondition(judged(c.history, c.job).Conditions, v1alpha1.ConditionBackupProven)
		if got.Status != c.is || got.Reason != c.reason || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %s %s %q", name, got.Status, got.Reason, got.Message)
		}
	}
	if judged(nil, nil).Backups != nil {
		t.Error("a cloud without backups has a status of them")
	}
	if b := judged(backup.History{proven(-9000), failed(1), proven(9)}, nil).Backups; !b.Last.Time.Equal(ago(1)) || !b.Proven.Time.Equal(ago(9)) || b.Name != "n" {
		t.Errorf("%+v", b)
	}
}
