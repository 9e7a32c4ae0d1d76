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

// annotationOnce is what an Idempotency-Key makes of what it creates: a digest of sender, key and content. So it holds across the replicas of the
// operator and their ends.
const annotationOnce = "onecloud.yunion.io/idempotency"

// idLength is how much of the digest becomes a part of a name.
const idLength = 10

// digest of a request, "" without a key.
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

// hidden stands for a secret.
const hidden = gather.Hidden

// notShown are annotations that an answer does not have: a request cannot change them.
var notShown = []string{corev1.LastAppliedConfigAnnotation, annotationOnce}

// shown is an object without its secrets, and without what is of no use to a reader.
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

// kept is what was sent, with the secrets that were hidden in it as they are live.
func kept(sent, live any) (any, error) {
	switch v := sent.(type) {
	case string:
		if !strings.Contains(v, hidden) {
			return v, nil
		}
		if was, ok := live.(string); ok && (v == hidden || gather.Hide(was) == v) {
			return was, nil
		}
		return nil, problem(http.StatusUnprocessableEntity, "a value is "+hidden+", and there is no secret in its place")
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

// replaceMetadata gives a live object the labels and annotations that were sent. What an answer does not show of them stays as it is.
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
	if !is && into["annotations"] != nil { // the API server says what is wrong
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
