// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"encoding/json"
	"strings"
	"testing"

	"yunion.io/x/ocadm/phases/ha"
	vipphase "yunion.io/x/ocadm/phases/vip"
	"yunion.io/x/ocadm/test/require"
)

// A node whose loss stops services is no problem of the control plane, but is shown anyway: ha test may run.
func TestPrintHA(t *testing.T) {
	s := haStatus{Status: vipphase.Status{Endpoint: "10.0.0.100:6443", Tolerates: 1, Nodes: []vipphase.NodeStatus{{Name: "node1"}}},
		NotRedundant: []string{"CoreDNS runs on one node, node1: kubectl -n kube-system delete pod a"}}
	var out page
	printHA(&out, s)
	if text := out.String(); !strings.Contains(text, "survives the loss of 1 more") || strings.Contains(text, "\nProblems:\n") ||
		!strings.Contains(text, "Not redundant:\n  CoreDNS runs on one node, node1: kubectl -n kube-system delete pod a\n") {
		t.Error(text)
	}
	raw, err := json.Marshal(s)
	require.NoError(t, err)
	var got struct {
		Tolerates    int      `json:"tolerates"`
		Problems     []string `json:"problems"`
		NotRedundant []string `json:"notRedundant"`
	}
	if err := json.Unmarshal(raw, &got); err != nil || got.Tolerates != 1 || len(got.Problems) != 0 || len(got.NotRedundant) != 1 {
		t.Errorf("%s, %v", raw, err)
	}
}

func TestAfterControlPlane(t *testing.T) {
	if got := afterControlPlane(nil); got != "" {
		t.Error(got)
	}
	if got := afterControlPlane([]string{"a: ocadm a", "b: ocadm b"}); !strings.HasSuffix(got, "\n\n  a: ocadm a\n  b: ocadm b\n") {
		t.Error(got)
	}
}

func TestPrintNotCutOff(t *testing.T) {
	var out page
	printNotCutOff(&out, []ha.NotCutOff{{Node: "node1", Own: true, Runs: []string{"all pods of CoreDNS", "of cloud default: glance"}}, {Node: "node3"}})
	want := "\nnot cut off: node1; only there: all pods of CoreDNS; of cloud default: glance\n" +
		"  to test its loss, on another control-plane node: ocadm ha test --node node1\n" +
		"\nnot cut off: node3; nothing runs only there\n  to test its loss, on this or another node: ocadm ha test --node node3\n"
	if out.String() != want {
		t.Error(out.String())
	}
}
