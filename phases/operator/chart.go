// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	semver "k8s.io/apimachinery/pkg/util/version"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/templates"
)

// Files maps paths below a directory to the contents of the files.
type Files map[string][]byte

// Write writes the files below a directory, which it creates. Other files in the directory stay.
func (f Files) Write(dir string) error {
	for name, text := range f {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return fmt.Errorf("creating a directory for %s: %w", name, err)
		}
		if err := os.WriteFile(file, text, 0o644); err != nil { //nolint:gosec // manifests without secrets
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// YAML returns objects as YAML documents.
func YAML(objs []*unstructured.Unstructured) ([]byte, error) {
	var out bytes.Buffer
	for i, o := range objs {
		text, err := yaml.Marshal(o.Object)
		if err != nil {
			return nil, fmt.Errorf("printing %s %s: %w", o.GetKind(), o.GetName(), err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

// JSON returns objects as one v1 List.
func JSON(objs []*unstructured.Unstructured) ([]byte, error) {
	list := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "v1", "kind": "List"},
		Items: lists.Map(objs, func(o *unstructured.Unstructured) unstructured.Unstructured { return *o })}
	out, err := json.MarshalIndent(list.UnstructuredContent(), "", "  ")
	return append(out, '\n'), err
}

// Kustomization returns a directory for "kubectl apply -k": the objects, and the place to replace an image. It is pure.
func Kustomization(image string, namespaces ...string) (Files, error) {
	objs, err := Objects(image, namespaces...)
	if err != nil {
		return nil, err
	}
	text, err := YAML(objs)
	if err != nil {
		return nil, err
	}
	r := images.Split(image)
	file := fmt.Sprintf("# Written by ocadm operator manifests.\napiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"+
		"resources:\n- operator.yaml\nimages:\n- name: %q\n  newName: %q\n", r.Repository, r.Repository)
	if r.Digest != "" {
		file += fmt.Sprintf("  digest: %q\n", r.Digest)
	} else {
		file += fmt.Sprintf("  newTag: %q\n", r.Tag)
	}
	return Files{"kustomization.yaml": []byte(file), "operator.yaml": text}, nil
}

// Expressions that replace the values in our templates, to turn them into Helm templates.
const (
	helmImage      = "{{ .Values.image }}"
	helmPullPolicy = "{{ .Values.imagePullPolicy }}"
	helmNamespaces = "{{ include `ocadm.namespaces` . }}"
	helmNamespace  = "{{ . }}"
	helmSecrets    = "{{- with .Values.imagePullSecrets }}\n      imagePullSecrets: {{ toJson . }}\n{{- end }}\n"
)

// beforeSecrets is the line of the Deployment that imagePullSecrets follow.
const beforeSecrets = "\n      serviceAccountName: onecloud-operator\n"

// Chart returns a Helm chart with the objects of the operator, made from the same templates. It leaves out the operator's namespace, which is that of
// the release. It is pure.
func Chart(image string, namespaces ...string) (Files, error) {
	values := map[string]any{"image": image, "imagePullPolicy": images.PullPolicy(image), "imagePullSecrets": []string{}, "namespaces": all(namespaces)[1:]}
	text, err := yaml.Marshal(values)
	if err != nil {
		return nil, fmt.Errorf("writing the values of the chart: %w", err)
	}
	files := Files{
		"Chart.yaml":             []byte(chartHead()),
		"values.yaml":            append([]byte(chartValues), text...),
		"templates/_helpers.tpl": []byte(chartHelpers),
		"templates/NOTES.txt":    []byte(chartNotes),
	}
	definitions, err := fs.Glob(templates.Files(), "operator/crds/*.yaml")
	if err != nil {
		return nil, fmt.Errorf("listing the definitions: %w", err)
	}
	for _, name := range definitions {
		_, short, _ := strings.Cut(path.Base(name), "_")
		if files["crds/"+short], err = fs.ReadFile(templates.Files(), name); err != nil {
			return nil, fmt.Errorf("reading a definition: %w", err)
		}
	}
	data := map[string]any{"Namespace": Namespace, "Image": helmImage, "PullPolicy": helmPullPolicy, "Namespaces": helmNamespaces}
	for _, name := range []string{"rbac", "deployment"} {
		text, err := templates.RenderDir("operator/"+name, data)
		if err != nil {
			return nil, err
		}
		joined := strings.Join(without(documents(text), "Namespace"), separator)
		files["templates/"+name+".yaml"] = []byte(strings.Replace(joined, beforeSecrets, beforeSecrets+helmSecrets, 1))
	}
	text, err = templates.RenderDir("operator/namespace", map[string]any{"Namespace": helmNamespace, "Operator": Namespace})
	if err != nil {
		return nil, err
	}
	files["templates/namespaces.yaml"] = []byte(perNamespace(documents(text)))
	return files, nil
}

const separator = "\n---\n"

func documents(text []byte) []string {
	return strings.Split(strings.TrimRight(string(text), "\n"), separator)
}

func isKind(document, kind string) bool {
	return strings.Contains("\n"+document+"\n", "\nkind: "+kind+"\n")
}

func without(documents []string, kind string) []string {
	return lists.Filter(documents, func(d string) bool { return !isKind(d, kind) })
}

// perNamespace repeats documents for each namespace of clouds. It does not create the operator's own namespace. Helm never deletes the others: a volume
// of a cloud would go with its namespace.
func perNamespace(documents []string) string {
	var out strings.Builder
	out.WriteString("{{- range splitList `,` (include `ocadm.namespaces` .) }}\n")
	for _, d := range documents {
		d = "---\n" + d + "\n"
		if isKind(d, "Namespace") {
			d = strings.Replace(d, "\nmetadata:\n", "\nmetadata:\n  annotations: {helm.sh/resource-policy: keep}\n", 1)
			d = "{{- if ne . `" + Namespace + "` }}\n" + d + "{{- end }}\n"
		}
		out.WriteString(d)
	}
	out.WriteString("{{- end }}\n")
	return out.String()
}

func chartHead() string {
	v := "0.0.0" // this program's version need not be one that Helm accepts
	if parsed, err := semver.ParseSemantic(version.Version); err == nil {
		v = parsed.String()
	}
	return fmt.Sprintf("# Written by ocadm operator manifests.\napiVersion: v2\nname: ocadm-operator\n"+
		"description: The operator that runs OneCloud (Cloudpods) private clouds on Kubernetes\ntype: application\n"+
		"version: %s\nappVersion: %q\nkubeVersion: \">=1.30.0-0\"\n",
		v, version.Version)
}

const chartValues = `# image is the operator's image. imagePullPolicy is Always for tags that move.
# imagePullSecrets name Secrets of the release's namespace with the credentials for the operator's image: [{name: registry}].
# namespaces are those of clouds in addition to the release's own, which is always among them.
`

const chartHelpers = `{{- define "ocadm.namespaces" -}}
{{- if ne .Release.Namespace "` + Namespace + `" }}{{ fail "install the chart in namespace ` + Namespace + `: --namespace ` + Namespace + ` --create-namespace" }}{{ end -}}
{{- concat (list "` + Namespace + `") (without (.Values.namespaces | default list) "` + Namespace + `" | uniq | sortAlpha) | join "," -}}
{{- end -}}
`

const chartNotes = `The operator is installed. To create a cloud, apply an OnecloudCluster; its fields: kubectl explain onecloudcluster.spec
`
