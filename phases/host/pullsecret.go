// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/base64"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"yunion.io/x/ocadm/cluster"
)

// WithPullSecret gives pods on every node the registry credentials of the configuration: it adds the Secret to each namespace that has pods, and its
// name to each pod template.
func WithPullSecret(credentials string, objs []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	if credentials == "" {
		return objs, nil
	}
	seen := map[string]bool{}
	for _, o := range objs {
		if _, isTemplate, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec"); !isTemplate {
			continue
		}
		name := []any{map[string]any{"name": cluster.PullSecret}}
		if err := unstructured.SetNestedSlice(o.Object, name, "spec", "template", "spec", "imagePullSecrets"); err != nil {
			return nil, fmt.Errorf("giving %s the registry credentials: %w", o.GetName(), err)
		}
		if ns := o.GetNamespace(); !seen[ns] {
			seen[ns] = true
			objs = append(objs, PullSecret(credentials, ns))
		}
	}
	return objs, nil
}

// PullSecret returns the Secret with the registry credentials for a namespace.
func PullSecret(credentials, namespace string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
		"metadata": map[string]any{"name": cluster.PullSecret, "namespace": namespace},
		"data":     map[string]any{".dockerconfigjson": base64.StdEncoding.EncodeToString([]byte(credentials))},
	}}
}
