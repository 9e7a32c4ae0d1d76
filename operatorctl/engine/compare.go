// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"yunion.io/x/ocadm/internal/lists"
)

// HashAnnotation holds the hash of the object as last applied. Together with Holds it makes the comparison exact: the hash changes when we no longer
// render a field or a list gets shorter; Holds detects values of ours that another client changed.
const HashAnnotation = "onecloud.yunion.io/applied-hash"

// Hash returns the hash of a JSON-like value; map order does not matter.
func Hash(v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("hashing: %w", err)
	}
	return sum(b), nil
}

// Salted returns a salted hash of a secret, which reveals nothing about it.
func Salted(salt string, secret []byte) string {
	m := hmac.New(sha256.New, []byte(salt))
	m.Write(secret)
	return hex.EncodeToString(m.Sum(nil)[:12])
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:12])
}

// mergeKeys maps lists that the API server merges across managers to their keys (x-kubernetes-list-map-keys of the Kubernetes API). All other lists
// are atomic.
var mergeKeys = map[string][]string{
	"containers":       {"name"},
	"initContainers":   {"name"},
	"volumes":          {"name"},
	"env":              {"name"},
	"volumeMounts":     {"mountPath"},
	"imagePullSecrets": {"name"},
	"ownerReferences":  {"uid"},
	"hostAliases":      {"ip"},
}

// listKeys returns the merge keys of a list, nil if it is atomic. Ports of a container merge by containerPort, those of a Service by port, both also
// by protocol (TCP by default).
func listKeys(field string, item map[string]any) []string {
	if field != "ports" {
		return mergeKeys[field]
	}
	if _, ok := item["containerPort"]; ok {
		return []string{"containerPort", "protocol"}
	}
	return []string{"port", "protocol"}
}

// Holds reports whether live has every value of desired. Anything else in live (API server defaults, fields of other managers) does not matter,
// except in an atomic list. where is the path of the first difference.
func Holds(desired, live any) (ok bool, where string) { return holds("", "", desired, live) }

func holds(path, field string, desired, live any) (bool, string) {
	switch d := desired.(type) {
	case map[string]any:
		l, isMap := live.(map[string]any)
		if !isMap {
			return len(d) == 0 && live == nil, path
		}
		for k, dv := range d {
			lv, present := l[k]
			if !present && !Empty(dv) {
				return false, path + "." + k
			}
			if present {
				if ok, where := holds(path+"."+k, k, dv, lv); !ok {
					return false, where
				}
			}
		}
		return true, ""
	case []any:
		l, isList := live.([]any)
		if !isList {
			return len(d) == 0 && live == nil, path
		}
		return holdsList(path, field, d, l)
	}
	return sameScalar(field, desired, live), path
}

// Empty reports whether the API server drops a JSON-like value when it converts it to typed structs and back.
func Empty(v any) bool {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Invalid:
		return true
	case reflect.Map, reflect.Slice:
		return r.Len() == 0
	default:
		return r.IsZero()
	}
}

func holdsList(path, field string, desired, live []any) (bool, string) {
	if len(desired) > 0 {
		if m, isMap := desired[0].(map[string]any); isMap {
			if keys := listKeys(field, m); keys != nil {
				return holdsKeyed(path, keys, desired, live)
			}
		}
	}
	if len(desired) != len(live) {
		return false, path
	}
	for i := range desired {
		if ok, where := holds(fmt.Sprintf("%s[%d]", path, i), "", desired[i], live[i]); !ok {
			return false, where
		}
	}
	return true, ""
}

func holdsKeyed(path string, keys []string, desired, live []any) (bool, string) {
	byKey := lists.Index(live, func(l any) (string, any) { return itemKey(keys, l), l })
	for _, d := range desired {
		k := itemKey(keys, d)
		l, present := byKey[k]
		if !present {
			return false, path + "[" + k + "]"
		}
		if ok, where := holds(path+"["+k+"]", "", d, l); !ok {
			return false, where
		}
	}
	return true, ""
}

// ListKey returns the key by which an item of a list is merged; ok is false if the list is atomic.
func ListKey(field string, item any) (key string, ok bool) {
	m, isMap := item.(map[string]any)
	if !isMap {
		return "", false
	}
	keys := listKeys(field, m)
	return strings.TrimSuffix(itemKey(keys, m), "/"), keys != nil
}

func itemKey(keys []string, item any) string {
	m, _ := item.(map[string]any)
	s := ""
	for _, k := range keys {
		v := m[k]
		if v == nil && k == "protocol" {
			v = "TCP"
		}
		s += fmt.Sprint(v) + "/"
	}
	return s
}

func sameScalar(field string, desired, live any) bool {
	if df, ok := number(desired); ok {
		if lf, ok := number(live); ok {
			return df == lf
		}
	}
	if desired == live {
		return true
	}
	ds, ok1 := desired.(string)
	ls, ok2 := live.(string)
	if !ok1 || !ok2 {
		return Empty(desired) && live == nil
	}
	// "100G" and "100000M" are the same quantity; only resource fields hold them.
	switch field {
	case "cpu", "memory", "storage", "sizeLimit", "ephemeral-storage":
		dq, err1 := resource.ParseQuantity(ds)
		lq, err2 := resource.ParseQuantity(ls)
		return err1 == nil && err2 == nil && dq.Cmp(lq) == 0
	}
	return false
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case int32:
		return float64(n), true
	case int:
		return float64(n), true
	case float64:
		return n, !math.IsNaN(n)
	}
	return 0, false
}
