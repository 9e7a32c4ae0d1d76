// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/test/require"
)

// goldenImage and goldenNamespace are the values in testdata. test/charts renders its chart with Helm and compares.
const (
	goldenImage     = "10.0.0.1:5000/mirror/ocadm:v1"
	goldenNamespace = "other"
)

func TestChart(t *testing.T) {
	files, err := Chart(goldenImage, goldenNamespace)
	require.NoError(t, err)
	golden(t, "chart", files)
}

func TestKustomization(t *testing.T) {
	files, err := Kustomization(goldenImage, goldenNamespace)
	require.NoError(t, err)
	objs, err := kube.Decode(files["operator.yaml"])
	require.NoError(t, err)
	want, err := Objects(goldenImage, goldenNamespace)
	require.NoError(t, err)
	if d := cmp.Diff(want, objs); d != "" {
		t.Error(d)
	}
	delete(files, "operator.yaml")
	golden(t, "kustomization", files)
	digest, err := Kustomization("r/ocadm@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef")
	if err != nil || !strings.Contains(string(digest["kustomization.yaml"]), "digest: \"sha256:0123") {
		t.Errorf("%s %v", digest["kustomization.yaml"], err)
	}
}

// golden compares files with those below testdata, except the definition, an unchanged file.
func golden(t *testing.T, dir string, files Files) {
	t.Helper()
	dir = filepath.Join("testdata", dir)
	maps.DeleteFunc(files, func(name string, _ []byte) bool { return strings.HasPrefix(name, "crds/") })
	for name, text := range files {
		files[name] = []byte(strings.ReplaceAll(string(text), strings.TrimPrefix(version.Version, "v"), "0.0.0-dev"))
	}
	for name, text := range files {
		require.Golden(t, filepath.Join(dir, name), string(text))
	}
	if len(files) == 0 {
		t.Error("there are no files")
	}
}

// Applied one by one, each object finds its namespace and kind.
func TestObjectsAreInOrder(t *testing.T) {
	objs, err := Objects("r/ocadm:v1", "other")
	require.NoError(t, err)
	there := map[string]bool{"": true, "kube-system": true, "kube-public": true} // created by Kubernetes
	for _, o := range objs {
		if o.GetKind() == "Namespace" {
			there[o.GetName()] = true
		}
		if !there[o.GetNamespace()] {
			t.Errorf("%s %s is before its namespace", o.GetKind(), o.GetName())
		}
	}
	text, err := YAML(objs)
	require.NoError(t, err)
	again, err := kube.Decode(text)
	require.NoError(t, err)
	if d := cmp.Diff(objs, again); d != "" {
		t.Error(d)
	}
	raw, err := JSON(objs)
	require.NoError(t, err)
	list := &unstructured.UnstructuredList{}
	if err := list.UnmarshalJSON(raw); err != nil || len(list.Items) != len(objs) || !slices.ContainsFunc(list.Items, func(u unstructured.Unstructured) bool {
		return u.GetKind() == "CustomResourceDefinition" && u.GetName() == "onecloudclusters.onecloud.yunion.io"
	}) {
		t.Errorf("%d items, %v", len(list.Items), err)
	}
}
