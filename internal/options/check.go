// SPDX-License-Identifier: Apache-2.0

package options

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"yunion.io/x/ocadm/internal/nearest"
)

// Problem describes what is wrong with an option. It never shows the value of an option that may be secret.
type Problem struct {
	// Key is the option's name, What the problem: "must be a whole number, not \"many\"".
	Key, What string
}

func (p *Problem) Error() string { return fmt.Sprintf("option %q %s", p.Key, p.What) }

// Value parses the value of an option in a ConfigMap: YAML, or for a text option the text itself. The result is a bool, int64, uint64, float64,
// string, []string, []int64 or map[string]string; nil for an empty value, which omits the option. The error is a *Problem.
func (t Table) Value(component, key, text string) (any, error) {
	o, known := t[key]
	if !known {
		return nil, &Problem{key, t.unknown(component, key)}
	}
	node, err := parse(text)
	if err != nil {
		if o.Type != Text {
			return nil, o.wrong(key, "invalid YAML")
		}
		return o.choose(key, strings.TrimSpace(text))
	}
	if empty(node) {
		return nil, nil
	}
	if o.Type == Text {
		if node.Kind == yaml.MappingNode && node.Style&yaml.FlowStyle == 0 {
			return o.choose(key, strings.TrimSpace(text)) // "user: name" is plain text
		}
		if node.Kind != yaml.ScalarNode {
			return nil, o.wrong(key, given(key, node))
		}
		return o.choose(key, node.Value)
	}
	value, ok := o.convert(node)
	if !ok {
		return nil, o.wrong(key, given(key, node))
	}
	return value, nil
}

// unknown returns the problem of an unknown option, with a suggestion.
func (t Table) unknown(component, key string) string {
	what := "is not known to " + component
	if flat := strings.ToLower(strings.ReplaceAll(key, "-", "_")); flat != key {
		if _, ok := t[flat]; ok {
			return fmt.Sprintf("%s; write %q", what, flat)
		}
	}
	for name, o := range t {
		if o.Stored == key && o.Alias == "" {
			if _, alias := t[o.Stored]; !alias {
				return fmt.Sprintf("%s; it is called %q there", what, name)
			}
		}
	}
	if near, ok := nearest.To(key, t.Names()); ok {
		return fmt.Sprintf("%s; did you mean %q?", what, near)
	}
	return what
}

func parse(text string) (*yaml.Node, error) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return nil, err
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) == 0 {
		return &yaml.Node{}, nil
	}
	n := doc.Content[0]
	for n.Kind == yaml.AliasNode && n.Alias != nil {
		n = n.Alias
	}
	return n, nil
}

func empty(n *yaml.Node) bool {
	return n.Kind == 0 || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

func (o Option) convert(n *yaml.Node) (any, bool) {
	switch o.Type {
	case List:
		list := []string{}
		ok := each(n, func(word string) bool { list = append(list, word); return true })
		return list, ok
	case Ints:
		list := []int64{}
		ok := each(n, func(word string) bool {
			i, err := strconv.ParseInt(word, 10, 64)
			list = append(list, i)
			return err == nil
		})
		return list, ok
	case Map:
		return convertMap(n)
	}
	if n.Kind != yaml.ScalarNode {
		return nil, false
	}
	return o.scalar(n.Value)
}

func (o Option) scalar(word string) (any, bool) {
	switch o.Type {
	case Bool:
		switch strings.ToLower(word) {
		case "yes", "on":
			return true, true
		case "no", "off":
			return false, true
		}
		b, err := strconv.ParseBool(word)
		return b, err == nil
	case Int:
		i, err := strconv.ParseInt(word, 10, 64)
		return i, err == nil
	case Uint:
		u, err := strconv.ParseUint(word, 10, 64)
		return u, err == nil
	case Number:
		f, err := strconv.ParseFloat(word, 64)
		return f, err == nil && !math.IsNaN(f) && !math.IsInf(f, 0)
	}
	return nil, false
}

// each calls do for every element of a list of scalars.
func each(n *yaml.Node, do func(string) bool) bool {
	if n.Kind != yaml.SequenceNode {
		return false
	}
	return !slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return c.Kind != yaml.ScalarNode || !do(c.Value) })
}

func convertMap(n *yaml.Node) (any, bool) {
	if n.Kind != yaml.MappingNode {
		return nil, false
	}
	m := map[string]string{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if k.Kind != yaml.ScalarNode || v.Kind != yaml.ScalarNode {
			return nil, false
		}
		m[k.Value] = v.Value
	}
	return m, true
}

func (o Option) choose(key, value string) (any, error) {
	if len(o.Choices) > 0 && !slices.Contains(o.Choices, value) {
		return nil, o.wrong(key, shown(key, value))
	}
	return value, nil
}

func (o Option) wrong(key, given string) error {
	if given == "" {
		return &Problem{key, "must be " + o.Expected() + "; the value is not shown"}
	}
	return &Problem{key, "must be " + o.Expected() + ", not " + given}
}

// Expected describes the valid values of an option; it completes "must be".
func (o Option) Expected() string {
	if len(o.Choices) > 0 {
		return "one of " + strings.Join(o.Choices, ", ")
	}
	switch o.Type {
	case Int:
		return "a whole number"
	case Uint:
		return "a non-negative whole number"
	case Number:
		return "a number"
	case Bool:
		return "true or false"
	case List:
		return `a list such as ["a", "b"]`
	case Ints:
		return "a list of whole numbers such as [1, 7]"
	case Map:
		return `a mapping such as {"a": "b"}`
	}
	return "text"
}

func given(key string, n *yaml.Node) string {
	switch n.Kind {
	case yaml.SequenceNode:
		return "a list"
	case yaml.MappingNode:
		return "a mapping"
	}
	return shown(key, n.Value)
}

// shownLength limits how much of a value a message shows.
const shownLength = 24

func shown(key, value string) string {
	if Sensitive(key) {
		return ""
	}
	if r := []rune(value); len(r) > shownLength {
		value = string(r[:shownLength]) + "…"
	}
	return strconv.Quote(value)
}

// Sensitive reports whether an option may hold a secret, judging by its name. Such values are never shown.
func Sensitive(key string) bool {
	key = strings.ToLower(key)
	return slices.ContainsFunc([]string{"password", "passwd", "pwd", "secret", "token", "credential", "access_key", "connection", "clickhouse"},
		func(part string) bool { return strings.Contains(key, part) })
}
