// SPDX-License-Identifier: Apache-2.0

package dbpair_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/dbpair"
)

func TestRedundancy(t *testing.T) {
	for name, c := range map[string]struct {
		inSync  string
		replica dbpair.Member
		is      bool
		says    string
	}{
		"in sync": {second, dbpair.Member{Complete: true, Error: "of long ago"}, true, "replica " + dbpair.PodName(second) + " has every change"},
		"error":   {"", dbpair.Member{Complete: true, Error: "Error 1114: the table is full"}, false, "on node a continues alone: the replica cannot continue: Error 1114"},
		"copies":  {"", dbpair.Member{Doing: "12 of 40 tables"}, false, "has no complete copy"},
		"lost":    {"", dbpair.Member{Complete: true}, false, "is not in sync"},
	} {
		if got := (dbpair.Record{Primary: first, InSync: c.inSync}).Redundancy("a", c.replica); got.Redundant != c.is || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	for name, c := range map[string]struct {
		state *corev1.ConfigMap
		is    bool
		says  string
	}{
		"one server":   {nil, false, "there is one copy"},
		"new":          {&corev1.ConfigMap{}, false, "has not reported yet"},
		"redundant":    {&corev1.ConfigMap{Data: map[string]string{"redundant": "true", "message": "m"}}, true, "m"},
		"no redundant": {&corev1.ConfigMap{Data: map[string]string{"message": "m"}}, false, "m"},
	} {
		if got := dbpair.RedundancyOf(c.state); got.Redundant != c.is || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
