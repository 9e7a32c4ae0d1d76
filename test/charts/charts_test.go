// SPDX-License-Identifier: Apache-2.0

// Package charts renders the operator's Helm chart with Helm's own engine and its kustomization with Kustomize's, and compares both with the output
// of "ocadm operator manifests". It reads the golden files of phases/operator, which that package's tests keep up to date. It is a separate module,
// so that Helm does not become a dependency of ocadm.
package charts

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const (
	goldens   = "../../phases/operator/testdata"
	crds      = "../../templates/operator/crds"
	namespace = "onecloud"
)

// chart returns a complete chart in a directory of the test: the golden files and the definitions, which are copied unchanged.
func chart(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ocadm-operator") // Helm's linter requires the chart's name
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(goldens, "chart"))); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "crds"), os.DirFS(crds)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// definitions returns the chart's files in crds/ as one stream of documents.
func definitions(t *testing.T) []byte {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no definitions: %v", err)
	}
	var out [][]byte
	for _, name := range names {
		out = append(out, read(t, name))
	}
	return bytes.Join(out, []byte("\n---\n"))
}

// render renders the chart like "helm install --namespace" and returns its objects, including those of crds/.
func render(t *testing.T, namespace string, values map[string]any) (map[string]any, error) {
	t.Helper()
	c, err := loader.Load(chart(t))
	if err != nil {
		t.Fatal(err)
	}
	all, err := util.ToRenderValues(c, values, common.ReleaseOptions{Name: "ocadm", Namespace: namespace, IsInstall: true}, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if filepath.Ext(name) == ".yaml" {
			text.WriteString("---\n" + files[name] + "\n")
		}
	}
	for _, crd := range c.CRDObjects() {
		text.WriteString("---\n")
		text.Write(crd.File.Data)
	}
	return objects(t, text.Bytes()), nil
}

// objects returns the documents by kind, namespace and name. A duplicate fails the test.
func objects(t *testing.T, text []byte) map[string]any {
	t.Helper()
	out := map[string]any{}
	d := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var o struct {
			Kind     string
			Metadata struct{ Namespace, Name string }
		}
		var content map[string]any
		err := d.Decode(&content)
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(content) == 0 {
			continue
		}
		o.Kind, _ = content["kind"].(string)
		meta, _ := content["metadata"].(map[string]any)
		o.Metadata.Namespace, _ = meta["namespace"].(string)
		o.Metadata.Name, _ = meta["name"].(string)
		key := strings.Join([]string{o.Kind, o.Metadata.Namespace, o.Metadata.Name}, " ")
		if _, twice := out[key]; twice {
			t.Errorf("%s is there twice", key)
		}
		out[key] = content
	}
}

// manifests returns the output of "ocadm operator manifests". The golden file does not contain the definition, which is a file of its own.
func manifests(t *testing.T) map[string]any {
	t.Helper()
	return objects(t, slices.Concat(read(t, filepath.Join(goldens, "operator.yaml")), []byte("\n---\n"), definitions(t)))
}

func TestChartIsWhatManifestsPrints(t *testing.T) {
	got, err := render(t, namespace, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := manifests(t)
	own := "Namespace  " + namespace
	if want[own] == nil {
		t.Fatalf("the manifests have no %s", own)
	}
	delete(want, own) // Helm creates the namespace of its release: --create-namespace
	// Helm would delete a namespace with all volumes of its cloud when it leaves the values or the release ends.
	metadata := got["Namespace  other"].(map[string]any)["metadata"].(map[string]any)
	if d := cmp.Diff(map[string]any{"helm.sh/resource-policy": "keep"}, metadata["annotations"]); d != "" {
		t.Errorf("the annotations of a namespace of clouds: %s", d)
	}
	delete(metadata, "annotations")
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestValues(t *testing.T) {
	before, err := render(t, namespace, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range map[string]map[string]any{
		"image":                 {"image": "r/ocadm:dev", "imagePullPolicy": "Always", "imagePullSecrets": []any{map[string]any{"name": "registry"}}},
		"no further namespaces": {"namespaces": []any{}},
		"the operator's own":    {"namespaces": []any{"onecloud", "b", "a", "b"}},
	} {
		got, err := render(t, namespace, values)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		pod := got["Deployment onecloud onecloud-operator"].(map[string]any)["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		container := pod["containers"].([]any)[0].(map[string]any)
		last := container["args"].([]any)[3]
		switch name {
		case "image":
			if container["image"] != "r/ocadm:dev" || container["imagePullPolicy"] != "Always" || fmt.Sprint(pod["imagePullSecrets"]) != "[map[name:registry]]" || len(got) != len(before) {
				t.Errorf("%v", pod)
			}
		case "no further namespaces":
			if last != "--namespaces=onecloud" || got["Namespace  other"] != nil || got["Role other onecloud-operator"] != nil {
				t.Errorf("%v", last)
			}
		default:
			if last != "--namespaces=onecloud,a,b" || got["Namespace  b"] == nil || got["Role a onecloud-operator"] == nil {
				t.Errorf("%v", last)
			}
		}
	}
}

func TestChartRefusesAnotherNamespace(t *testing.T) {
	_, err := render(t, "default", nil)
	if err == nil || !strings.Contains(err.Error(), "--namespace onecloud --create-namespace") {
		t.Error(err)
	}
}

func TestChartIsLinted(t *testing.T) {
	dir := chart(t)
	result := lint.RunAll(dir, nil, namespace)
	for _, m := range result.Messages {
		if m.Severity >= support.WarningSev {
			t.Error(m)
		}
	}
	// The linter detects a fault.
	if err := os.Remove(filepath.Join(dir, "templates", "_helpers.tpl")); err != nil {
		t.Fatal(err)
	}
	if lint.RunAll(dir, nil, namespace).HighestSeverity < support.ErrorSev {
		t.Error("a chart without its helpers passes")
	}
}

func TestKustomizationIsWhatManifestsPrints(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(goldens, "kustomization"))); err != nil {
		t.Fatal(err)
	}
	text := slices.Concat(read(t, filepath.Join(goldens, "operator.yaml")), []byte("\n---\n"), definitions(t))
	if err := os.WriteFile(filepath.Join(dir, "operator.yaml"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	build := func() map[string]any {
		built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
		if err != nil {
			t.Fatal(err)
		}
		text, err := built.AsYaml()
		if err != nil {
			t.Fatal(err)
		}
		return objects(t, text)
	}
	if d := cmp.Diff(manifests(t), build()); d != "" {
		t.Error(d)
	}
	// The image is replaced where the file says so.
	file := filepath.Join(dir, "kustomization.yaml")
	moved := bytes.ReplaceAll(read(t, file), []byte(`newTag: "v1"`), []byte(`newTag: "v2"`))
	if err := os.WriteFile(file, moved, fs.ModePerm&0o644); err != nil {
		t.Fatal(err)
	}
	d := cmp.Diff(manifests(t), build())
	if !strings.Contains(d, `"10.0.0.1:5000/mirror/ocadm:v2"`) {
		t.Errorf("the image has not moved:\n%s", d)
	}
}
