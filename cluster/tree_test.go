// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

// The files in testdata/tree hold a cloud, its tree, and the first lines of a log. UPDATE=1 writes them.
func TestTree(t *testing.T) {
	files, err := filepath.Glob("testdata/tree/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			require.NoError(t, err)
			s, err := statusOf(resource(t, "apiVersion: onecloud.yunion.io/v1alpha1\nkind: OnecloudCluster\n"+string(a.Files[0].Data)).Object)
			require.NoError(t, err)
			for i, lines := range [][]string{s.Tree(now), s.Changes(Status{})} {
				got := strings.Join(lines, "\n") + "\n"
				if diff := cmp.Diff(string(a.Files[i+1].Data), got); diff != "" && os.Getenv("UPDATE") == "" {
					t.Errorf("%s: %s", a.Files[i+1].Name, diff)
				}
				a.Files[i+1].Data = []byte(got)
			}
			if os.Getenv("UPDATE") != "" {
				require.NoError(t, os.WriteFile(file, txtar.Format(a), 0o600))
			}
		})
	}
}

// A log shows changes only.
func TestChanges(t *testing.T) {
	at := func(state v1alpha1.State, message string, since int64) Status {
		c := v1alpha1.ComponentStatus{Name: "keystone", State: state, Message: message}
		c.Since.Time = time.Unix(since, 0)
		return Status{Name: "default", Namespace: "onecloud", Version: "v1", counted: true,
			Components: []v1alpha1.ComponentStatus{c, {Name: "web", State: v1alpha1.Disabled}}}
	}
	before := at(v1alpha1.Progressing, "0 of 1 pods ready", 1)
	for name, c := range map[string]struct {
		after Status
		want  []string
	}{
		"nothing":      {at(v1alpha1.Progressing, "0 of 1 pods ready", 2), nil},
		"the evidence": {at(v1alpha1.Progressing, "1 of 2 pods ready", 1), []string{"keystone: Progressing: 1 of 2 pods ready"}},
		"the state": {at(v1alpha1.Available, "not shown", 1), []string{
			"cloud onecloud/default, version v1: not ready, 1 of 1 components are available", "keystone: Available"}},
	} {
		if got := c.after.Changes(before); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// A watch reports each change, says when its data may be old, and ends when the cloud is deleted.
func TestWatch(t *testing.T) {
	cloud := func(version string) *unstructured.Unstructured {
		return resource(t, head+", uid: '1'}\nspec: {version: "+version+"}\nstatus: {observedGeneration: 2, conditions: [{type: Ready, status: 'True'}]}")
	}
	lists := 0
	c := interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, l client.ObjectList, _ ...client.ListOption) error {
			switch lists++; lists {
			case 2, 4: // the first asks for the permission
				l.(*unstructured.UnstructuredList).Items = []unstructured.Unstructured{*cloud("v1")} //nolint:forcetypeassert // a list of clouds
			case 3:
				return errors.New("connection refused")
			}
			return nil
		},
		Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			w := watch.NewFakeWithChanSize(2, false)
			if lists == 2 {
				w.Modify(cloud("v2"))
			} else {
				w.Delete(cloud("v2"))
			}
			w.Stop()
			return w, nil
		},
	})
	var seen []string
	err := Watch(t.Context(), c, client.ObjectKey{Namespace: DefaultNamespace, Name: DefaultName}, func(s Status) {
		seen = append(seen, strings.TrimSpace(s.Version+" "+s.Unreachable))
	})
	want := []string{"v1", "v2", "v2 the API server does not answer: connection refused", "v1"}
	if !slices.Equal(seen, want) || !errors.Is(err, errGone) || finding.ExitStatus(err) != 70 {
		t.Errorf("%q, %v", seen, err)
	}
}
