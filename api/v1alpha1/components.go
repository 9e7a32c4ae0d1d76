// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// SpecKeys returns the JSON keys of the fields of a spec.
var SpecKeys = sync.OnceValue(func() map[string]bool {
	keys := map[string]bool{}
	for f := range reflect.TypeFor[OnecloudClusterSpec]().Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		keys[key] = true
	}
	return keys
})

// KeysBelow returns the JSON keys of the fields at a path below spec, such as "mysql.tls", or nil if there is no such path.
func KeysBelow(path string) []string {
	t := reflect.TypeFor[OnecloudClusterSpec]()
	for key := range strings.SplitSeq(path, ".") {
		key, _, _ = strings.Cut(key, "[")
		if t = fieldsOf(t)[key]; t == nil {
			return nil
		}
	}
	return slices.Sorted(maps.Keys(fieldsOf(t)))
}

// fieldsOf returns the field types of a struct by JSON key. Pointers and lists stand for their element.
func fieldsOf(t reflect.Type) map[string]reflect.Type {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	fields := map[string]reflect.Type{}
	if t.Kind() != reflect.Struct {
		return fields
	}
	for _, f := range reflect.VisibleFields(t) {
		if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" && key != "-" {
			fields[key] = f.Type
		}
	}
	return fields
}

// Component returns the block of a component by its JSON key, or nil if there is no such key. A key "a.b" names a container b in block a: the result
// has the scheduling of a and the image of b. A key without a field of its own is looked up in spec.components.
// The result may be a copy; treat it as read-only.
func (s *OnecloudClusterSpec) Component(key string) *ComponentSpec {
	outer, inner, nested := strings.Cut(key, ".")
	block := s.block(outer)
	if !nested || block == nil {
		return block
	}
	c := s.container(outer, inner)
	if c == nil {
		return nil
	}
	merged := *block
	merged.ContainerSpec = *c
	return &merged
}

// Container returns the block of an additional container in a component's block, or nil.
func (s *OnecloudClusterSpec) Container(key string) *ContainerSpec {
	outer, inner, nested := strings.Cut(key, ".")
	if !nested {
		return nil
	}
	return s.container(outer, inner)
}

func (s *OnecloudClusterSpec) container(outer, inner string) *ContainerSpec {
	return map[string]*ContainerSpec{
		"web/Overview":            &s.Web.Overview,
		"web/Docs":                &s.Web.Docs,
		"webconsole/Guacd":        &s.Webconsole.Guacd,
		"notify/plugins":          &s.Notify.Plugins,
		"hostagent/SdnAgent":      &s.Hostagent.SdnAgent,
		"hostagent/OvnController": &s.Hostagent.OvnController,
		"hostagent/HostHealth":    &s.Hostagent.HostHealth,
		"lbagent/OvnController":   &s.Lbagent.OvnController,
		"telegraf/TelegrafRaid":   &s.Telegraf.TelegrafRaid,
	}[outer+"/"+inner]
}

func (s *OnecloudClusterSpec) block(key string) *ComponentSpec {
	if b := field[ComponentSpec](s, blockPlaces()[key]); b != nil {
		return b
	}
	if b, ok := s.Components[key]; ok {
		return &b
	}
	return nil
}

// blockPlaces returns the places of the blocks in a spec.
var blockPlaces = sync.OnceValue(func() map[string][]int { return places[ComponentSpec](reflect.TypeFor[OnecloudClusterSpec]()) })

// places returns, by JSON key, the index of each field of a struct type that is a T or embeds one.
func places[T any](in reflect.Type) map[string][]int {
	out, want := map[string][]int{}, reflect.TypeFor[T]()
	for f := range in.Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Type == want {
			out[key] = f.Index
		} else if f.Type.Kind() == reflect.Struct {
			if e, ok := f.Type.FieldByName(want.Name()); ok && e.Type == want {
				out[key] = slices.Concat(f.Index, e.Index)
			}
		}
	}
	return out
}

// field returns a pointer to the field of a struct at a place, nil without a place.
func field[T any](of any, place []int) *T {
	if place == nil {
		return nil
	}
	return reflect.ValueOf(of).Elem().FieldByIndex(place).Addr().Interface().(*T)
}
