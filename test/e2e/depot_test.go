// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/test/scenario"
)

// The second machine has neither a bundle nor a way out: ocadm, programs and images come from the depot of the first, before the join and
// when a pod needs another image.
func TestDepot(t *testing.T) {
	if err := scenario.Root(); err != nil {
		if os.Getenv("OCADM_TEST_REQUIRE") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	ctx := t.Context()
	s := &suite{Journey: &scenario.Journey{Lab: machines(t), Story: testWriter{t}}, fresh: map[int]map[string]string{}}
	for i := range 2 {
		s.fresh[i+1] = s.look(t, i+1)
	}
	if err := s.Init(ctx); err != nil {
		t.Fatal(err)
	}
	out, err := s.On(ctx, 1, scenario.Ocadm, "depot", "status", "-o", "json")
	var st depot.Status
	if err != nil || json.Unmarshal([]byte(out), &st) != nil || len(st.Roots) != 2 || !st.Roots[0].Complete || !st.Roots[1].Complete || st.Free == 0 {
		t.Fatalf("depot status: %s, %v", out, err)
	}
	// Nothing is unused, so nothing goes.
	if out, err := s.On(ctx, 1, scenario.Ocadm, "depot", "prune", "-o", "json"); err != nil || !strings.Contains(out, `"freed": 0`) {
		t.Errorf("depot prune: %s, %v", out, err)
	}
	s.download(t)
	const image = "registry.cn-beijing.aliyuncs.com/yunionio/keystone:" + version
	if had, err := s.On(ctx, 2, "ctr", "-n", "k8s.io", "images", "ls", "-q"); err != nil || strings.Contains(had, image) {
		t.Fatalf("node 2 has %s already (%v)", image, err)
	}
	if _, err := s.Kubectl(ctx, "run", "pulled", "--image="+image, "--restart=Never", "--overrides", `{"spec":{"nodeName":"node2"}}`, "--command", "--", "/bin/sh"); err != nil {
		t.Fatal(err)
	}
	pulled := []string{"-n", "default", "wait", "pod/pulled", "--for", "jsonpath={.status.containerStatuses[0].imageID}", "--timeout=90s"}
	if _, err := s.Kubectl(ctx, pulled...); err != nil {
		events, _ := s.Kubectl(ctx, "get", "events", "--sort-by=.lastTimestamp")
		t.Errorf("the depot did not serve a pull: %v\n%s", err, events)
	}
	s.takeBack(t, 2)
	s.takeBack(t, 1)
}

// download runs the line for machines without ocadm, which are told to put it elsewhere: the lab's is mounted.
func (s *suite) download(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	line, err := s.On(ctx, 1, scenario.Ocadm, "token", "create", "--print-join-command", "--with-download")
	if err != nil {
		t.Fatal(err)
	}
	const program = "/root/downloaded"
	if n := strings.Count(line, " "+scenario.Ocadm); n != 5 {
		t.Fatalf("the line is %s", line)
	}
	line = strings.ReplaceAll(line, " "+scenario.Ocadm, " "+program)
	// The wrong server gets neither token nor trust.
	wrong := regexp.MustCompile(`echo "[0-9a-f]{64} `).ReplaceAllLiteralString(line, `echo "`+strings.Repeat("0", 64)+" ")
	if _, err := s.On(ctx, 2, "sh", "-c", strings.TrimSpace(wrong)); err == nil || wrong == line {
		t.Error("another authority was accepted")
	}
	err = s.Timed("join node 2 by download", func() error {
		_, err := s.On(ctx, 2, "sh", "-c", strings.TrimSpace(line)+" "+strings.Join(s.JoinFlags(2), " "))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.On(ctx, 2, "cmp", program, scenario.Ocadm); err != nil {
		t.Errorf("what was downloaded is another program: %v", err)
	}
	if _, err := s.On(ctx, 2, "rm", program); err != nil {
		t.Error(err)
	}
	if _, err := s.Kubectl(ctx, "wait", "node/node2", "--for=condition=Ready", "--timeout=120s"); err != nil {
		t.Error(err)
	}
}
