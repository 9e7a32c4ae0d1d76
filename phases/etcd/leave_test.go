// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"fmt"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/finding"
)

func TestMayLeave(t *testing.T) {
	for members, want := range map[string]string{ // the first member leaves; each is up, down or a learner
		"u":   "",
		"uu":  "",
		"uuu": "",
		"ul":  "", // the last voter: reset asks about that
		"lu":  "",
		"duu": "",
		"ud":  "1 of 2",
		"uud": "that would remain",
		"udd": "1 of 3",
		"ddd": "0 of 3", // it sees no leader: the others may be lost
	} {
		var all []etcd.Observed
		for i, kind := range members {
			all = append(all, etcd.Observed{ID: fmt.Sprint(i), Name: fmt.Sprint("m", i), Peer: fmt.Sprint("https://", i), Answers: kind == 'u', Learner: kind == 'l', Problem: "x"})
		}
		found := finding.Of(mayLeave(all, "https://0"))
		if want == "" && len(found) > 0 || want != "" && (len(found) != 1 || !strings.Contains(found[0].Cause, want) || len(found[0].Evidence) != len(members)) {
			t.Errorf("%s: %+v", members, found)
		}
	}
	if err := mayLeave([]etcd.Observed{{Peer: "https://1"}}, "https://0"); err != nil {
		t.Errorf("one that is no member: %v", err)
	}
}
