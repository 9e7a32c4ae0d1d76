// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// Diff is the difference between two releases.
type Diff struct {
	Objects []ObjectDiff `json:"objects"`
	// Effects holds the keys of what differs outside Kubernetes: databases, accounts, endpoints, …
	Effects []string `json:"effects"`
}

// Empty reports whether nothing differs.
func (d Diff) Empty() bool { return len(d.Objects)+len(d.Effects) == 0 }

// The actions on an object.
const (
	Create = "create"
	Change = "change"
	Delete = "delete"
)

// ObjectDiff is the difference in an object.
type ObjectDiff struct {
	Component string      `json:"component,omitempty"`
	Action    string      `json:"action"`
	Kind      string      `json:"kind"`
	Name      string      `json:"name"`
	Restarts  bool        `json:"restartsPods"`
	Fields    []FieldDiff `json:"fields,omitempty"`
	// Unified is the difference as a unified diff of YAML.
	Unified string `json:"unified"`
}

// FieldDiff is the difference in a field; nil means no value.
type FieldDiff struct {
	Path string `json:"path"`
	Old  any    `json:"old,omitempty"`
	New  any    `json:"new,omitempty"`
}

func (f FieldDiff) String() string { return f.Path + ": " + short(f.Old) + " → " + short(f.New) }

// Compare returns the difference between two releases, without secrets: redact is applied to each text.
func Compare(old, now *Release, redact func(string) string) Diff {
	d := Diff{Objects: []ObjectDiff{}, Effects: []string{}}
	type pair struct{ old, now *Object }
	pairs := map[string]pair{}
	order := []string{}
	of := func(r *Release, put func(*pair, *Object)) {
		for i := range r.Objects {
			o := &r.Objects[i]
			key := o.Kind + "/" + o.Name
			p, there := pairs[key]
			if !there {
				order = append(order, key)
			}
			put(&p, o)
			pairs[key] = p
		}
	}
	of(old, func(p *pair, o *Object) { p.old = o })
	of(now, func(p *pair, o *Object) { p.now = o })
	for _, key := range order {
		p := pairs[key]
		if one := compare(p.old, p.now, redact); one != nil {
			d.Objects = append(d.Objects, *one)
		}
	}
	d.Effects = append(d.Effects, lists.Filter(slices.Sorted(maps.Keys(now.Effects)), func(key string) bool { return old.Effects[key] != now.Effects[key] })...)
	return d
}

// compare returns the difference in an object, nil if there is none.
func compare(old, now *Object, redact func(string) string) *ObjectDiff {
	d, of := &ObjectDiff{Action: Change}, now
	var before, after map[string]any
	switch {
	case old == nil:
		d.Action, after = Create, shown(now.Content)
	case now == nil:
		d.Action, of, before = Delete, old, shown(old.Content)
	default:
		before, after = shown(old.Content), shown(now.Content)
	}
	d.Component, d.Kind, d.Name = of.Component, of.Kind, of.Name
	hidden := func(v any) any {
		if text, ok := v.(string); ok {
			return redact(text)
		}
		return v
	}
	if d.Action == Change {
		fields("", "", before, after, func(path string, a, b any) {
			d.Restarts = d.Restarts || strings.HasPrefix(path, "spec.template.") && d.Kind != "CronJob"
			d.Fields = append(d.Fields, FieldDiff{Path: path, Old: hidden(masked(d.Kind, path, a)), New: hidden(masked(d.Kind, path, b))})
		})
		if len(d.Fields) == 0 {
			return nil
		}
	}
	d.Unified = unified(d.Kind+" "+d.Name, redact(text(before)), redact(text(after)))
	return d
}

// shown returns an object without the operator's internal fields, and with the data of a Secret decoded.
func shown(o map[string]any) map[string]any {
	o = opened(o)
	meta, _ := o["metadata"].(map[string]any)
	keep := map[string]any{}
	for _, k := range []string{"name", "labels", "annotations"} {
		if v := meta[k]; v != nil {
			keep[k] = v
		}
	}
	if a, _ := keep["annotations"].(map[string]any); a != nil {
		a = maps.Clone(a)
		delete(a, engine.HashAnnotation)
		if keep["annotations"] = a; len(a) == 0 {
			delete(keep, "annotations")
		}
	}
	return with(o, "metadata", keep)
}

func fields(path, field string, a, b any, visit func(path string, a, b any)) {
	if reflect.DeepEqual(a, b) {
		return
	}
	before, isMap := a.(map[string]any)
	after, areMaps := b.(map[string]any)
	item := strings.HasSuffix(path, "]") // an added or removed item is named as a whole
	if isMap && areMaps || !item && len(before)+len(after) > 0 && (a == nil || b == nil) {
		keys := map[string]any{}
		maps.Copy(keys, before)
		maps.Copy(keys, after)
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			fields(strings.TrimPrefix(path+"."+k, "."), k, before[k], after[k], visit)
		}
		return
	}
	x, keyed := byKey(field, a)
	y, too := byKey(field, b)
	if keyed && too && len(x.order)+len(y.order) > 0 {
		for _, k := range append(slices.Clone(x.order), slices.DeleteFunc(slices.Clone(y.order), func(k string) bool { return x.items[k] != nil })...) {
			fields(path+"["+k+"]", "", x.items[k], y.items[k], visit)
		}
		if slices.Equal(slices.Sorted(maps.Keys(x.items)), slices.Sorted(maps.Keys(y.items))) && !slices.Equal(x.order, y.order) {
			visit(path+" (order)", strings.Join(x.order, ", "), strings.Join(y.order, ", "))
		}
		return
	}
	visit(path, a, b)
}

// secretName matches the names of options that hold secrets.
var secretName = regexp.MustCompile(`(?i)passw|pwd|secret|token|credential|private|access_key|connection|clickhouse$`)

// secret reports whether the value of a field must be hidden.
func secret(kind, path string) bool {
	return kind == "Secret" && strings.HasPrefix(path, "data") || kind != "Secret" && secretName.MatchString(lastName(path)) && !strings.Contains(path, "volumes[")
}

func lastName(path string) string {
	if i := strings.LastIndexAny(path, ".]"); i >= 0 {
		return path[i+1:]
	}
	return path
}

// text returns an object as YAML with masked secrets.
func text(o map[string]any) string {
	if o == nil {
		return ""
	}
	raw, err := yaml.Marshal(masked(fmt.Sprint(o["kind"]), "", o))
	if err != nil {
		panic("writing YAML: " + err.Error()) // it consists of maps, lists and plain values
	}
	return string(raw)
}

func masked(kind, path string, v any) any {
	switch t := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, v := range t {
			out[k] = masked(kind, strings.TrimPrefix(path+"."+k, "."), v)
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i, v := range t {
			out[i] = masked(kind, path+"[]", v)
		}
		return out
	}
	if v != nil && secret(kind, path) {
		return "(hidden)"
	}
	return v
}

func unified(name, before, after string) string {
	out, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: lines(before), B: lines(after), FromFile: "a/" + name, ToFile: "b/" + name, Context: 3,
	})
	if err != nil {
		panic("writing a difference: " + err.Error()) // a buffer accepts everything
	}
	return out
}

func lines(s string) []string {
	if s == "" {
		return nil
	}
	return difflib.SplitLines(s)
}

// Words writes a difference in prose, object by object and field by field.
func (d Diff) Words(w io.Writer) error {
	var b strings.Builder
	if d.Empty() {
		b.WriteString("Nothing would change.\n")
	}
	verbs := map[string]string{Create: "is created", Change: "changes", Delete: "is deleted"}
	for _, o := range d.Objects {
		fmt.Fprintf(&b, "%s %s %s", o.Kind, o.Name, verbs[o.Action])
		if o.Restarts {
			b.WriteString("; its pods are replaced")
		}
		b.WriteByte('\n')
		for _, f := range o.Fields {
			fmt.Fprintf(&b, "  %s\n", f)
		}
	}
	if len(d.Effects) > 0 {
		fmt.Fprintf(&b, "Outside Kubernetes, these effects are repeated: %s\n", strings.Join(d.Effects, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// short formats a value for one line.
func short(v any) string {
	if v == nil {
		return "(none)"
	}
	const limit = 100
	s := strings.TrimSpace(fmt.Sprint(v))
	switch v.(type) {
	case map[string]any, []any:
		if raw, err := yaml.Marshal(v); err == nil {
			s = strings.Join(strings.Fields(string(raw)), " ")
		}
	}
	s = strings.ReplaceAll(s, "\n", "⏎")
	if r := []rune(s); len(r) > limit {
		s = string(r[:limit]) + "…"
	}
	return cmp.Or(s, `""`)
}

// Fields returns the differences between two trees, as in a Diff.
func Fields(a, b map[string]any) []FieldDiff {
	var out []FieldDiff
	fields("", "", a, b, func(path string, a, b any) {
		out = append(out, FieldDiff{path, masked("", path, a), masked("", path, b)})
	})
	return out
}
