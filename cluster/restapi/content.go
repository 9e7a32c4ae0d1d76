// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"yunion.io/x/ocadm/cluster/why/gather"
)

// annotationOnce marks objects created with an Idempotency-Key. It holds a digest of sender, key and content, so it works across replicas and
// restarts of the operator.
const annotationOnce = "onecloud.yunion.io/idempotency"

// idLength is the length of the part of the digest used in names.
const idLength = 10

// digest returns the digest of a request, "" without a key.
func (o Once) digest(sender, what string, body any) (string, error) {
	if o.Key == "" {
		return "", nil
	}
	text, err := json.Marshal([]any{sender, what, o.Key})
	if err != nil {
		return "", err
	}
	content, err := json.Marshal(body)
	if err != nil {
		return "", err
	}
	id, sum := sha256.Sum256(text), sha256.Sum256(content)
	return hex.EncodeToString(id[:8]) + "." + hex.EncodeToString(sum[:8]), nil
}

const hidden = gather.Hidden

// notShown lists annotations that are left out of answers: a request cannot change them.
var notShown = []string{corev1.LastAppliedConfigAnnotation, annotationOnce}

// shown returns an object without its secrets and other fields of no use to a reader.
func shown(u *unstructured.Unstructured) Resource {
	u = u.DeepCopy()
	u.SetManagedFields(nil)
	annotations := u.GetAnnotations()
	for _, key := range notShown {
		delete(annotations, key)
	}
	u.SetAnnotations(annotations)
	clean, _ := gather.Hide(u.Object).(map[string]any)
	part := func(name string) map[string]any { m, _ := clean[name].(map[string]any); return m }
	return Resource{APIVersion: u.GetAPIVersion(), Kind: u.GetKind(), Metadata: part("metadata"), Spec: part("spec"), Status: part("status")}
}

// hides reports whether a value stands for a secret.
func (r Resource) hides() bool {
	text, err := json.Marshal(r)
	return err != nil || bytes.Contains(text, []byte(hidden))
}

// kept returns what was sent, with the live values of the secrets that were hidden in it.
func kept(sent, live any) (any, error) {
	switch v := sent.(type) {
	case string:
		if !strings.Contains(v, hidden) {
			return v, nil
		}
		if was, ok := live.(string); ok && (v == hidden || gather.Hide(was) == v) {
			return was, nil
		}
		return nil, problem(http.StatusUnprocessableEntity, "a value is "+hidden+", but no secret is stored there")
	case map[string]any:
		was, _ := live.(map[string]any)
		for key := range v {
			one, err := kept(v[key], was[key])
			if err != nil {
				return nil, err
			}
			v[key] = one
		}
	case []any:
		was, _ := live.([]any)
		for i := range v {
			var before any
			if i < len(was) {
				before = was[i]
			}
			one, err := kept(v[i], before)
			if err != nil {
				return nil, err
			}
			v[i] = one
		}
	}
	return sent, nil
}

// replaceMetadata replaces the labels and annotations of a live object with those sent. Annotations that answers hide stay unchanged.
func replaceMetadata(sent, live map[string]any) error {
	from, _ := sent["metadata"].(map[string]any)
	into, _ := live["metadata"].(map[string]any)
	was, _ := into["annotations"].(map[string]any)
	for _, field := range []string{"labels", "annotations"} {
		value, err := kept(from[field], into[field])
		if err != nil {
			return err
		}
		if into[field] = value; value == nil {
			delete(into, field)
		}
	}
	annotations, is := into["annotations"].(map[string]any)
	if !is && into["annotations"] != nil { // the API server reports the error
		return nil
	}
	for _, key := range notShown {
		delete(annotations, key)
		if text, there := was[key]; there {
			if annotations == nil {
				annotations = map[string]any{}
				into["annotations"] = annotations
			}
			annotations[key] = text
		}
	}
	return nil
}
