// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// YAML prints objects as YAML documents. It prints the data of Secrets in plain text: pass placeholders.
func YAML(objs []client.Object) ([]byte, error) {
	var out bytes.Buffer
	for i, o := range objs {
		m, err := readable(o)
		if err != nil {
			return nil, err
		}
		b, err := yaml.Marshal(m)
		if err != nil {
			return nil, fmt.Errorf("printing %s: %w", o.GetName(), err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(b)
	}
	return out.Bytes(), nil
}

// JSON prints objects as one v1 List.
func JSON(objs []client.Object) ([]byte, error) {
	items := make([]any, 0, len(objs))
	for _, o := range objs {
		m, err := readable(o)
		if err != nil {
			return nil, err
		}
		items = append(items, m)
	}
	b, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "metadata": map[string]any{}, "items": items}, "", "  ")
	return append(b, '\n'), err
}

// readable returns an object as a user would write it.
func readable(o client.Object) (map[string]any, error) {
	if s, ok := o.(*corev1.Secret); ok {
		s = s.DeepCopy()
		s.StringData = map[string]string{}
		for k, v := range s.Data {
			s.StringData[k] = string(v)
		}
		s.Data = nil
		o = s
	}
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("printing %s: %w", o.GetName(), err)
	}
	delete(m, "status")
	prune(m)
	return m, nil
}

// prune removes unset fields that the converter writes.
func prune(m map[string]any) {
	delete(m, "creationTimestamp")
	for k, v := range m {
		switch t := v.(type) {
		case nil:
			delete(m, k)
		case map[string]any:
			prune(t)
			if len(t) == 0 && (k == "resources" || k == "status" || k == "strategy" || k == "updateStrategy") {
				delete(m, k)
			}
		case []any:
			for _, item := range t {
				if im, ok := item.(map[string]any); ok {
					prune(im)
				}
			}
		}
	}
}
