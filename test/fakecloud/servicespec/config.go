// SPDX-License-Identifier: Apache-2.0

// Package servicespec reads the command line and the configuration file of a stand-in as the cloud's services do: a flat YAML map in snake_case, and
// flags of the same names with dashes, which take precedence. Unlike the services, it deliberately rejects a key that is not in the schema.
package servicespec

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/options"
)

// Schema holds the options that a program accepts.
type Schema map[string]options.Type

// NewSchema makes a schema from words such as "region", "port:int", "enable_ssl:bool", "target_image_formats:list".
func NewSchema(groups ...string) Schema {
	schema := Schema{}
	for _, word := range strings.Fields(strings.Join(groups, " ")) {
		name, kind, found := strings.Cut(word, ":")
		if !found {
			kind = string(options.Text)
		}
		schema[name] = options.Type(kind)
	}
	return schema
}

// Values holds the given options: string, int64, bool or []string, depending on the type of their key.
type Values map[string]any

func (v Values) Text(key, fallback string) string {
	if value, ok := v[key].(string); ok && value != "" {
		return value
	}
	return fallback
}

func (v Values) Number(key string, fallback int) int {
	if value, ok := v[key].(int64); ok {
		return int(value)
	}
	return fallback
}

func (v Values) Flag(key string) bool {
	value, _ := v[key].(bool)
	return value
}

func (v Values) List(key string) []string {
	value, _ := v[key].([]string)
	return value
}

// errType marks a value of the wrong type.
var errType = errors.New("value of the wrong type")

// Parse parses a configuration file. For a value of the wrong type it returns the services' own, misleading message.
func Parse(path string, schema Schema, data []byte) (Values, error) {
	var nodes map[string]any
	if yaml.Unmarshal(data, &nodes) != nil {
		return nil, misread(data)
	}
	values := Values{}
	for _, key := range slices.Sorted(maps.Keys(nodes)) {
		kind, known := schema[key]
		if !known {
			return nil, fmt.Errorf("Parse configuration file: unknown option %q in %s (the real service ignores it in silence)", key, path)
		}
		value, err := Convert(kind, nodes[key])
		if err != nil {
			return nil, misread(data)
		}
		values[key] = value
	}
	return values, nil
}

// misread returns the error of a service that takes such a file for lines of the form "key = value".
func misread(data []byte) error {
	first, _, _ := strings.Cut(string(data), "\n")
	return fmt.Errorf("Parse configuration file: Misformated line: %s", first)
}

// Convert converts a YAML or JSON value to a type. It accepts quoted numbers and booleans, and keeps the notation of a number with a fraction.
func Convert(kind options.Type, raw any) (any, error) {
	switch kind {
	case options.List, options.Ints:
		return convertList(raw)
	case options.Map:
		if m, ok := raw.(map[string]any); ok {
			return m, nil
		}
		return nil, fmt.Errorf("%w: want a mapping", errType)
	case options.Number:
		if _, err := strconv.ParseFloat(scalar(raw), 64); err != nil {
			return nil, fmt.Errorf("%w: %v is not a number", errType, raw)
		}
		return scalar(raw), nil
	case options.Int, options.Uint:
		if f, ok := raw.(float64); ok && f == float64(int64(f)) {
			return int64(f), nil
		}
		n, err := strconv.ParseInt(scalar(raw), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: %v is not a number", errType, raw)
		}
		return n, nil
	case options.Bool:
		b, err := strconv.ParseBool(scalar(raw))
		if err != nil {
			return nil, fmt.Errorf("%w: %v is neither true nor false", errType, raw)
		}
		return b, nil
	}
	switch raw.(type) {
	case map[string]any, map[any]any, []any:
		return nil, fmt.Errorf("%w: want one value", errType)
	}
	return scalar(raw), nil
}

func convertList(raw any) (any, error) {
	switch value := raw.(type) {
	case []string:
		return value, nil
	case []any:
		return append([]string{}, lists.Map(value, scalar)...), nil
	case string:
		if value == "" {
			return []string{}, nil
		}
		return strings.Split(value, ","), nil
	case nil:
		return []string{}, nil
	}
	return nil, fmt.Errorf("%w: want a list", errType)
}

func scalar(raw any) string {
	if raw == nil {
		return ""
	}
	return fmt.Sprint(raw)
}

// Load reads flags and files; at maps a path to the real one. The search order without --config is that of the services.
func Load(at func(string) string, name string, schema Schema, args []string) (Values, error) {
	flags, files, err := ParseArgs(schema, args)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		for _, path := range []string{"./etc/" + name + ".conf", "/etc/yunion/" + name + ".conf"} {
			if _, err := os.Stat(at(path)); err == nil {
				files = []string{path}
				break
			}
		}
	}
	values := Values{}
	for _, path := range files {
		data, err := os.ReadFile(at(path))
		if err != nil {
			return nil, fmt.Errorf("Parse configuration file: %w", err)
		}
		parsed, err := Parse(path, schema, data)
		if err != nil {
			return nil, err
		}
		maps.Copy(values, parsed)
	}
	maps.Copy(values, flags)
	return values, nil
}

// ParseArgs splits a command line into options and the files given with --config and --common-config-file.
func ParseArgs(schema Schema, args []string) (Values, []string, error) {
	flags := Values{}
	var common, files []string
	for i := 0; i < len(args); i++ {
		name, value, inline := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if !strings.HasPrefix(args[i], "-") {
			return nil, nil, fmt.Errorf("Unknown positional argument %s", args[i])
		}
		key := strings.ReplaceAll(name, "-", "_")
		kind, known := schema[key]
		isFile := key == "config" || key == "conf" || key == "common_config_file"
		if !known && !isFile {
			return nil, nil, fmt.Errorf("Unknown optional argument --%s", name)
		}
		if !inline && kind == options.Bool {
			value = "true"
		} else if !inline {
			if i++; i >= len(args) {
				return nil, nil, fmt.Errorf("Missing value for --%s", name)
			}
			value = args[i]
		}
		switch {
		case key == "common_config_file":
			common = append(common, value)
		case isFile:
			files = append(files, value)
		default:
			converted, err := Convert(kind, value)
			if err != nil {
				return nil, nil, fmt.Errorf("Bad value for --%s: %w", name, err)
			}
			flags[key] = converted
		}
	}
	return flags, append(common, files...), nil
}
