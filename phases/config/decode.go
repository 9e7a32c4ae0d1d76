// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/nearest"
)

// Parse reads a configuration file and returns the values of its settings by key, in the types of their fields. Unknown keys are an error that names
// every such key and the nearest known one.
func Parse(name string, raw []byte) (map[string]any, error) {
	doc, err := oneDocument(raw)
	if err != nil {
		return nil, finding.Errorf("OCA-0322", "The configuration file "+name+" cannot be read", "correct it; ocadm config print shows its form", "%w", err)
	}
	p := parsing{values: map[string]any{}}
	p.head(doc)
	p.object("", doc, reflect.TypeFor[Config]())
	if len(p.unknown) > 0 {
		return nil, finding.New("OCA-0321", "The configuration file "+name+" has a key that ocadm does not recognize", strings.Join(p.unknown, "; "),
			"ocadm config print shows every key")
	}
	if len(p.wrong) > 0 {
		return nil, finding.New("OCA-0320", "The configuration file "+name+" is not valid", strings.Join(p.wrong, "; "),
			"ocadm config print shows every setting with its default")
	}
	return p.values, nil
}

func oneDocument(raw []byte) (map[string]any, error) {
	r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	var doc map[string]any
	for {
		part, err := r.Read()
		if errors.Is(err, io.EOF) {
			return doc, nil
		}
		if err != nil {
			return nil, err
		}
		var m map[string]any
		if err := yaml.UnmarshalStrict(part, &m); err != nil {
			return nil, err
		}
		if len(m) == 0 {
			continue
		}
		if doc != nil {
			return nil, errors.New("it contains more than one document")
		}
		doc = m
	}
}

// retired lists keys of earlier files that no longer have an effect: they set labels that nothing read.
var retired = []string{"node.glance", "node.esxi"}

type parsing struct {
	values         map[string]any
	unknown, wrong []string
}

func (p *parsing) head(doc map[string]any) {
	for key, want := range map[string]string{"apiVersion": APIVersion, "kind": Kind} {
		if got, ok := doc[key]; !ok || got != want {
			p.wrong = append(p.wrong, fmt.Sprintf("%s is %v, not %s", key, orNothing(got), want))
		}
	}
	slices.Sort(p.wrong)
}

func orNothing(v any) any {
	if v == nil {
		return "missing"
	}
	return v
}

func (p *parsing) object(path string, m map[string]any, t reflect.Type) {
	var names []string
	for i := range t.NumField() {
		if n := jsonName(t.Field(i)); n != "" {
			names = append(names, n)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		full := strings.TrimPrefix(path+"."+key, ".")
		i := fieldIndex(t, key)
		if slices.Contains(retired, full) {
			continue
		}
		if i < 0 || key == "" {
			p.unknown = append(p.unknown, unknownKey(full, key, names))
			continue
		}
		f := t.Field(i)
		if f.Type.Kind() == reflect.Struct {
			if child, ok := m[key].(map[string]any); ok {
				p.object(full, child, f.Type)
			} else if m[key] != nil {
				p.wrong = append(p.wrong, full+" is not an object")
			}
			continue
		}
		if m[key] == nil || path == "" {
			continue
		}
		v, err := value(m[key], f.Type)
		if err != nil && Find(full).Secret {
			err = errors.New("it is not a string; write it in quotes") // without the value
		}
		if err != nil {
			p.wrong = append(p.wrong, fmt.Sprintf("%s: %v", full, err))
			continue
		}
		p.values[full] = v
	}
}

func unknownKey(full, key string, names []string) string {
	if guess, ok := nearest.To(key, names); ok {
		return fmt.Sprintf("%s (did you mean %s?)", full, guess)
	}
	for _, s := range Settings() { // the right name in the wrong place, or the name of a flag
		if s.Key[strings.LastIndex(s.Key, ".")+1:] == key || s.Flag == key {
			return fmt.Sprintf("%s (did you mean %s?)", full, s.Key)
		}
	}
	return full
}

// value converts a value of the file to the field's type.
func value(v any, t reflect.Type) (any, error) {
	if t == reflect.TypeFor[time.Duration]() {
		s, ok := v.(string)
		if !ok {
			return nil, fmt.Errorf("%v is not a duration such as 24h", v)
		}
		d, err := time.ParseDuration(s)
		if err != nil {
			return nil, fmt.Errorf("%q is not a duration such as 24h", s)
		}
		return d, nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	out := reflect.New(t)
	if err := json.Unmarshal(raw, out.Interface()); err != nil {
		return nil, fmt.Errorf("%s is not %s", raw, kindName(t))
	}
	if out.Elem().Kind() == reflect.Pointer {
		return out.Elem().Elem().Interface(), nil
	}
	return out.Elem().Interface(), nil
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list of strings"
	case reflect.String:
		return "a string"
	default:
		return "a number in range"
	}
}

// Print returns the configuration as a file, one line per setting. Secrets are left out.
func Print(c *Config) ([]byte, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\n", APIVersion, Kind)
	section := ""
	t := reflect.TypeFor[Config]()
	settings := Settings()
	for i := range t.NumField() {
		name := jsonName(t.Field(i))
		if t.Field(i).Type.Kind() != reflect.Struct || name == "" {
			continue
		}
		for _, s := range settings {
			part, key, _ := strings.Cut(s.Key, ".")
			if part != name {
				continue
			}
			if section != part {
				section = part
				fmt.Fprintf(&b, "\n%s:\n", part)
			}
			line, err := printed(c, s)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&b, "  # %s\n  %s%s: %s\n", s.Usage, line.comment, key, line.text)
		}
	}
	return []byte(b.String()), nil
}

type printedLine struct{ comment, text string }

// printed returns a setting's value in YAML; empty and secret values are commented out.
func printed(c *Config, s Setting) (printedLine, error) {
	if s.Secret {
		return printedLine{"# ", `""`}, nil
	}
	v := reflect.ValueOf(Field(c, s.Key)).Elem()
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return printedLine{"# ", "0"}, nil
		}
		v = v.Elem()
	}
	out := v.Interface()
	if d, ok := out.(time.Duration); ok {
		out = d.String()
	}
	if v.Kind() == reflect.Slice && v.Len() == 0 {
		return printedLine{"# ", "[]"}, nil
	}
	raw, err := json.Marshal(out)
	if err != nil {
		return printedLine{}, fmt.Errorf("printing %s: %w", s.Key, err)
	}
	if v.Kind() == reflect.String && v.Len() == 0 {
		return printedLine{"# ", `""`}, nil
	}
	return printedLine{"", string(raw)}, nil
}
