// SPDX-License-Identifier: Apache-2.0

package status

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// ignoredLimit is how many fields without effect are named; a resource of the earlier operator may have many.
const ignoredLimit = 20

// Ignored are the conditions of a cloud with fields without effect. Where there are none, there is no such condition.
func Ignored(previous []metav1.Condition, reason string, fields []string, generation int64, now time.Time) []metav1.Condition {
	out := slices.Clone(previous)
	if len(fields) == 0 {
		meta.RemoveStatusCondition(&out, v1alpha1.ConditionIgnored)
		return out
	}
	message := strings.Join(fields[:min(len(fields), ignoredLimit)], "; ")
	if more := len(fields) - ignoredLimit; more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	meta.SetStatusCondition(&out, metav1.Condition{
		Type: v1alpha1.ConditionIgnored, Status: metav1.ConditionTrue, Reason: reason, Message: message, ObservedGeneration: generation,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	})
	return out
}

// Message of a condition, "" if there is no such one.
func Message(conditions []metav1.Condition, kind string) string {
	if c := meta.FindStatusCondition(conditions, kind); c != nil {
		return c.Message
	}
	return ""
}
