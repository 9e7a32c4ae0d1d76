// SPDX-License-Identifier: Apache-2.0

package release

import (
	"encoding/base64"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/operatorctl/engine"
)

// Merge applies a change of the inputs to an object of a release. base and now are what another build renders from the inputs of the release and from
// today's: only the inputs differ between them. What only the build changed is left out.
func Merge(old, base, now map[string]any) map[string]any {
	merged, _ := merge("", opened(old), opened(base), opened(now)).(map[string]any)
	return closed(merged)
}

// merge returns the merged value, nil if there is none.
func merge(field string, old, base, now any) any {
	switch {
	case reflect.DeepEqual(base, now):
		return old
	case reflect.DeepEqual(old, base):
		return now
	case old == nil && base != nil: // the other build added it; the update will add it
		return nil
	case now == nil:
		return nil
	}
	if n, isMap := now.(map[string]any); isMap {
		o, _ := old.(map[string]any)
		b, _ := base.(map[string]any)
		if o == nil || b == nil && base != nil {
			return now
		}
		out := map[string]any{}
		for _, m := range []map[string]any{o, n} {
			for k := range m {
				if v := merge(k, o[k], b[k], n[k]); v != nil {
					out[k] = v
				}
			}
		}
		return out
	}
	if n, keyed := byKey(field, now); keyed {
		o, ok := byKey(field, old)
		b, fine := byKey(field, base)
		if !ok || !fine {
			return now
		}
		var out []any
		for _, k := range slices.Concat(o.order, n.order) {
			if v := merge("", o.items[k], b.items[k], n.items[k]); v != nil && !o.done[k] {
				out = append(out, v)
			}
			o.done[k] = true
		}
		return out
	}
	return now
}

type keyedList struct {
	order []string
	items map[string]any
	done  map[string]bool
}

// byKey reads a keyedList; nil is an empty one. ok is false if the list is atomic.
func byKey(field string, v any) (out keyedList, ok bool) {
	out = keyedList{items: map[string]any{}, done: map[string]bool{}}
	list, isList := v.([]any)
	for _, item := range list {
		key, keyed := engine.ListKey(field, item)
		if _, twice := out.items[key]; !keyed || twice {
			return out, false
		}
		out.order, out.items[key] = append(out.order, key), item
	}
	return out, isList || v == nil
}

// opened returns an object with the data of a Secret decoded, and its configuration files parsed.
func opened(o map[string]any) map[string]any {
	data, _ := o["data"].(map[string]any)
	if o["kind"] != "Secret" || data == nil {
		return o
	}
	clear := map[string]any{}
	for name, v := range data {
		text, _ := v.(string)
		raw, err := base64.StdEncoding.DecodeString(text)
		var file map[string]any
		switch {
		case err != nil:
			clear[name] = v
		case strings.HasSuffix(name, ".conf") && yaml.Unmarshal(raw, &file) == nil && file != nil:
			clear[name] = file
		default:
			clear[name] = string(raw)
		}
	}
	return with(o, "data", clear)
}

// closed reverses opened.
func closed(o map[string]any) map[string]any {
	data, _ := o["data"].(map[string]any)
	if o["kind"] != "Secret" || data == nil {
		return o
	}
	sealed := map[string]any{}
	for name, v := range data {
		text, isText := v.(string)
		if !isText {
			raw, err := yaml.Marshal(v)
			if err != nil {
				panic("writing YAML: " + err.Error()) // it was read from YAML
			}
			text = string(raw)
		}
		sealed[name] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	return with(o, "data", sealed)
}

func with(o map[string]any, field string, v any) map[string]any {
	out := maps.Clone(o)
	out[field] = v
	return out
}
