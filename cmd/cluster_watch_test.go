// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ui"
)

// states returns a client of a cloud whose component web goes through states, and stays in the last one.
func states(all ...string) client.WithWatch {
	cloud := func(state string) *unstructured.Unstructured {
		ready := "False"
		if state == "Available" {
			ready = "True"
		}
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "onecloud.yunion.io/v1alpha1", "kind": "OnecloudCluster",
			"metadata": map[string]any{"namespace": cluster.DefaultNamespace, "name": cluster.DefaultName, "uid": "1"},
			"spec":     map[string]any{"version": "v1"},
			"status": map[string]any{
				"conditions": []any{map[string]any{"type": "Ready", "status": ready, "reason": "Components"}},
				"components": []any{map[string]any{"name": "web", "state": state}},
			},
		}}
	}
	return interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
			o.(*unstructured.Unstructured).Object = cloud(all[0]).Object //nolint:forcetypeassert // a cloud
			return nil
		},
		List: func(_ context.Context, _ client.WithWatch, l client.ObjectList, _ ...client.ListOption) error {
			l.(*unstructured.UnstructuredList).Items = []unstructured.Unstructured{*cloud(all[0])} //nolint:forcetypeassert // a list of clouds
			return nil
		},
		Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			w := watch.NewFakeWithChanSize(len(all), false)
			for _, state := range all[1:] {
				w.Modify(cloud(state))
			}
			return w, nil
		},
	})
}

// until signals when a word has been written.
type until struct {
	bytes.Buffer
	word string
	end  context.CancelCauseFunc
}

func (u *until) Write(p []byte) (int, error) {
	if u.word != "" && strings.Contains(string(p), u.word) {
		u.end(Interrupted(os.Interrupt))
	}
	return u.Buffer.Write(p)
}

func TestWatchCloud(t *testing.T) {
	const head = "cloud onecloud/default, version v1: "
	document := func(ready, state string) string {
		return `{"name":"default","namespace":"onecloud","version":"v1","ready":` + ready + `,"degraded":false,"components":[{"name":"web","state":"` + state + `"}]}` + "\n"
	}
	for name, c := range map[string]struct {
		states []string
		format string
		wait   bool
		word   string // to wait for before Ctrl-C
		status int
		want   string
	}{
		"Ctrl-C, not ready": {[]string{"Waiting", "Waiting", "Progressing"}, "table", false, "Progressing", 73,
			head + "not ready, 0 of 1 components are available\nweb: Waiting\nweb: Progressing\n"},
		"Ctrl-C, ready": {[]string{"Waiting", "Available"}, "table", false, "web: Available", 0,
			head + "not ready, 0 of 1 components are available\nweb: Waiting\n" + head + "ready, 1 of 1 components are available\nweb: Available\n"},
		"Ctrl-C during --wait": {[]string{"Waiting"}, "table", true, "Waiting", finding.ExitInterrupted,
			head + "not ready, 0 of 1 components are available\nweb: Waiting\n"},
		"documents": {[]string{"Waiting", "Waiting", "Available"}, "json", true, "", 0,
			document("false", "Waiting") + document("true", "Available")},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, end := context.WithCancelCause(t.Context())
			defer end(nil)
			out := &until{word: c.word, end: end}
			f := &cloudFlags{name: cluster.DefaultName, namespace: cluster.DefaultNamespace, output: ui.NewFormat(c.format), wait: c.wait}
			err := newApp(Streams{Out: out, Err: io.Discard}).watchCloud(ctx, states(c.states...), f)
			if out.String() != c.want || finding.ExitStatus(err) != c.status {
				t.Errorf("status %d, %v, wrote\n%s", finding.ExitStatus(err), err, out.String())
			}
		})
	}
}

// The exit status follows the conditions.
func TestUnwell(t *testing.T) {
	for name, c := range map[string]struct {
		is   cluster.Status
		want int
	}{
		"ready":                  {cluster.Status{Ready: true}, 0},
		"degraded":               {cluster.Status{Degraded: true, Message: "region failed"}, 72},
		"degraded but serving":   {cluster.Status{Degraded: true, Ready: true}, 0},
		"on its way":             {cluster.Status{Message: "the operator has not reconciled it yet"}, 73},
		"ready when heard last":  {cluster.Status{Ready: true, Unreachable: "no answer"}, 73},
		"degraded when heard so": {cluster.Status{Degraded: true, Unreachable: "no answer"}, 72},
	} {
		if got := finding.ExitStatus(unwell(c.is)); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// When the reader of the output is gone, the watch ends.
func TestWatchThatCannotWrite(t *testing.T) {
	for _, format := range []string{"table", "json"} {
		f := &cloudFlags{name: cluster.DefaultName, namespace: cluster.DefaultNamespace, output: ui.NewFormat(format)}
		if err := newApp(Streams{Out: full{}, Err: io.Discard}).watchCloud(t.Context(), states("Waiting"), f); err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Errorf("%s: %v", format, err)
		}
	}
}
