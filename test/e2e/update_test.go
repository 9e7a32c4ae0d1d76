// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/scenario"
)

// noImages updates to a version without images: kubelets and containerd refuse them, and nothing of the cloud has changed. Then an update brings an
// image back to a node that has lost it, before anything moves.
func (s *suite) noImages(t *testing.T) {
	ctx := t.Context()
	generations := func() string {
		out, err := s.Kubectl(ctx, "-n", "onecloud", "get", "deployments,daemonsets,oc", "-o", "jsonpath={range .items[*]}{.kind} {.metadata.name} {.metadata.generation}{\"\\n\"}{end}")
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	before := generations()
	out, err := s.On(ctx, 1, scenario.Ocadm, "cluster", "update", "--version", "v9.9.9", "--waves", "--wait", "--timeout", "10m")
	if err == nil {
		t.Fatalf("the update succeeded: %s", out)
	}
	t.Logf("%v\n%s", err, out)
	text := err.Error() + out
	for _, want := range []string{"OCA-7068", "/keystone:v9.9.9", "/region:v9.9.9", "/host:v9.9.9", "nodes node1, node2"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
	if after := generations(); after != before {
		t.Errorf("before\n%s\nafter\n%s", before, after)
	}
	pods, err := s.Kubectl(ctx, "-n", "onecloud", "get", "pods", "-l", "onecloud.yunion.io/pull", "-o", "name")
	if err != nil || pods != "" {
		t.Errorf("pods are left: %q, %v", pods, err)
	}
	s.pullsFirst(t)
}

// pullsFirst takes an image off node 1, and updates the cloud to what it runs already.
func (s *suite) pullsFirst(t *testing.T) {
	t.Helper()
	ctx := t.Context()
	const image = "registry.cn-beijing.aliyuncs.com/yunionio/climc:" + version
	if _, err := s.On(ctx, 1, "ctr", "-n", "k8s.io", "images", "rm", image); err != nil {
		t.Fatal(err)
	}
	s.until(t, "node 1 to report that an image is gone", func(ctx context.Context) (bool, string, error) {
		names, err := s.Kubectl(ctx, "get", "node", "node1", "-o", "jsonpath={.status.images[*].names}")
		return err == nil && !strings.Contains(names, image), "it still does", err
	})
	if _, err := s.Kubectl(ctx, "-n", "onecloud", "annotate", "oc", "default", "onecloud.yunion.io/operation="+v1alpha1.ActionUpdate); err != nil {
		t.Fatal(err)
	}
	var all []v1alpha1.OnecloudOperation
	list := func(ctx context.Context) (bool, string, error) {
		out, err := s.On(ctx, 1, scenario.Ocadm, "operation", "list", "-o", "json")
		if err == nil {
			all, err = nil, json.Unmarshal([]byte(out), &all)
		}
		return len(all) > 1, "there is none", err
	}
	s.until(t, "the operation", list)
	if _, err := s.Kubectl(ctx, "-n", "onecloud", "wait", "oco/"+all[0].Name, "--for=condition=Succeeded", "--timeout=10m"); err != nil {
		s.explain(t)
		t.Fatal(err)
	}
	s.until(t, "the operation", list)
	steps := all[0].Status.Steps
	at := func(name string) v1alpha1.OperationStep {
		i := slices.IndexFunc(steps, func(p v1alpha1.OperationStep) bool { return p.Name == name })
		if i < 0 {
			t.Fatalf("no step %s: %+v", name, steps)
		}
		return steps[i]
	}
	t.Logf("%+v", at("pull"))
	if p := at("pull"); p.State != v1alpha1.StepDone || p.Done != p.Total || p.Total == 0 || at("wave-identity").Start.Time.Before(p.End.Time) {
		t.Errorf("%s", fmt.Sprint(p))
	}
	if names, err := s.On(ctx, 1, "ctr", "-n", "k8s.io", "images", "ls", "-q"); err != nil || !strings.Contains(names, image) {
		t.Errorf("the image did not come back: %v\n%s", err, names)
	}
}
