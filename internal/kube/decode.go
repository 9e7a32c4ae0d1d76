// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// Decode parses a stream of YAML documents. It skips empty documents; one without apiVersion, kind or name is an error.
func Decode(data []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for n := 1; ; n++ {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading document %d: %w", n, err)
		}
		var m map[string]any
		// Strict: a duplicate key is an error, and numbers remain as JSON defines them.
		if err := yaml.UnmarshalStrict(doc, &m); err != nil {
			return nil, fmt.Errorf("parsing document %d: %w", n, err)
		}
		if len(m) == 0 {
			continue
		}
		u := &unstructured.Unstructured{}
		raw, err := yaml.YAMLToJSON(doc)
		if err != nil {
			return nil, fmt.Errorf("parsing document %d: %w", n, err)
		}
		if err := u.UnmarshalJSON(raw); err != nil {
			return nil, fmt.Errorf("parsing document %d: %w", n, err)
		}
		if u.GetAPIVersion() == "" || u.GetName() == "" {
			return nil, fmt.Errorf("parsing document %d: it has no apiVersion or no metadata.name", n)
		}
		plainSecret(u)
		out = append(out, u)
	}
}

// plainSecret moves stringData to data, as the API server does: a field manager cannot own stringData.
func plainSecret(u *unstructured.Unstructured) {
	if u.GetKind() != "Secret" || u.GetAPIVersion() != "v1" {
		return
	}
	text, found, err := unstructured.NestedStringMap(u.Object, "stringData")
	if err != nil || !found {
		return
	}
	data, _, err := unstructured.NestedStringMap(u.Object, "data")
	if err != nil {
		return
	}
	if data == nil {
		data = map[string]string{}
	}
	for k, v := range text {
		data[k] = base64.StdEncoding.EncodeToString([]byte(v))
	}
	unstructured.RemoveNestedField(u.Object, "stringData")
	_ = unstructured.SetNestedStringMap(u.Object, data, "data") // fails only if data is no map, which was ruled out
}
