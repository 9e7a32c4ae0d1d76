// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
)

// Options holds the options that people changed in a component's file, for its ConfigMap.
type Options struct {
	// Kept holds YAML by option name.
	Kept map[string]string
	// Unclear reports that the file was changed and nothing shows which options were: only those that differ from ours are kept.
	Unclear bool
	// Editor is the last writer of the file, if not the earlier operator.
	Editor string
}

// IsEarlier reports whether a ConfigMap is a component's file as the earlier operator left it. controlled is true if the cloud owns it.
func IsEarlier(cm *corev1.ConfigMap, controlled bool) bool {
	_, file := cm.Data[ConfigKey]
	return file && (controlled || cm.Annotations[LastApplied] != "" ||
		slices.ContainsFunc(cm.ManagedFields, func(m metav1.ManagedFieldsEntry) bool { return m.Manager == v1alpha1.ManagerEarlier }))
}

// PlanConfig returns the options that users changed in a component's file. here is the address of the database server; ours returns the options that
// we give the component, and the names of those that users cannot set.
func PlanConfig(c component.Component, cm *corev1.ConfigMap, here string, ours func() (map[string]string, []string, error)) (Options, error) {
	editor := editorOf(cm)
	if c.Config.Plain != "" {
		if Edited(cm) && editor == "" {
			return Options{Kept: map[string]string{ConfigKey: cm.Data[ConfigKey]}}, nil
		}
		return Options{}, nil
	}
	if other := OtherServer(c, cm.Data[ConfigKey], here); other != "" {
		return Options{}, fmt.Errorf("its sql_connection points to %s, but spec.mysql points to %s: correct the one that does not name the server with the data",
			other, here)
	}
	public, reserved, err := ours()
	if err != nil {
		return Options{}, err
	}
	options, err := UserOptions(c, cm, public, reserved, editor != "")
	options.Editor = editor
	return options, err
}

// editorOf returns the last writer of the file, "" if that is the earlier operator, "unknown" if nothing shows it.
func editorOf(cm *corev1.ConfigMap) string {
	for _, m := range cm.ManagedFields {
		if slices.Contains(engine.DataKeys(m), ConfigKey) {
			if m.Manager == v1alpha1.ManagerEarlier {
				return ""
			}
			return m.Manager
		}
	}
	return "unknown"
}

// Patch is a change of an object.
type Patch struct {
	Object client.Object
	Patch  client.Patch
}

// HasFile reports whether an adopted ConfigMap still holds the earlier operator's file, or its LastApplied annotation.
func HasFile(cm *corev1.ConfigMap) bool {
	_, file := cm.Data[ConfigKey]
	return file || cm.Annotations[LastApplied] != ""
}

// DropFile removes the earlier operator's file, which holds passwords, and its LastApplied annotation from a ConfigMap.
func DropFile(cm *corev1.ConfigMap) Patch {
	patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q,"annotations":{%q:null}},"data":{%q:null}}`, cm.ResourceVersion, LastApplied, ConfigKey)
	return Patch{cm.DeepCopy(), client.RawPatch(types.MergePatchType, patch)}
}

// UserOptions returns the options of an earlier file that users chose: those that differ from what the earlier operator last wrote, which an
// annotation holds. Without the annotation, and if another client wrote the file last (edited), it returns those that differ from our value (ours, by
// option name). Options in reserved are never the users'.
func UserOptions(c component.Component, cm *corev1.ConfigMap, ours map[string]string, reserved []string, edited bool) (Options, error) {
	file, there := cm.Data[ConfigKey]
	if !there {
		return Options{}, nil
	}
	live := parse(c, file)
	if live == nil && strings.TrimSpace(file) != "" {
		return Options{}, fmt.Errorf("its key %s cannot be parsed", ConfigKey)
	}
	out := Options{Kept: map[string]string{}}
	written, known := lastWritten(c, cm)
	if !known && !edited {
		return out, nil
	}
	out.Unclear = !known
	for name, value := range live {
		if slices.Contains(reserved, name) || len(validation.IsConfigMapKey(name)) > 0 || name == ConfigKey || value == nil {
			continue
		}
		if known && reflect.DeepEqual(value, written[name]) {
			continue
		}
		text, err := render.OptionText(value)
		if err != nil {
			return Options{}, fmt.Errorf("its option %s cannot be parsed", name)
		}
		if !known {
			usual, rendered := ours[name]
			var v any
			if !rendered || yaml.Unmarshal([]byte(usual), &v) == nil && reflect.DeepEqual(v, value) {
				continue
			}
		}
		out.Kept[name] = text
	}
	return out, nil
}

// Edited reports whether a plain file (the console's nginx) differs from what the earlier operator last wrote.
func Edited(cm *corev1.ConfigMap) bool {
	var data map[string]string
	if json.Unmarshal([]byte(cm.Annotations[LastApplied]), &data) != nil {
		return false
	}
	return data[ConfigKey] != cm.Data[ConfigKey]
}

func lastWritten(c component.Component, cm *corev1.ConfigMap) (map[string]any, bool) {
	var data map[string]string
	if json.Unmarshal([]byte(cm.Annotations[LastApplied]), &data) != nil || data[ConfigKey] == "" {
		return nil, false
	}
	values := parse(c, data[ConfigKey])
	return values, values != nil
}

// parse reads a file as the component does, nil if it is not readable.
func parse(c component.Component, file string) map[string]any {
	if c.Config == nil || !c.Config.Properties {
		var values map[string]any
		if yaml.Unmarshal([]byte(file), &values) != nil {
			return nil
		}
		return values
	}
	values := map[string]any{}
	for line := range strings.Lines(file) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(key, "#") {
			var v any
			if yaml.Unmarshal([]byte(value), &v) != nil {
				v = value
			}
			values[strings.TrimSpace(key)] = v
		}
	}
	return values
}

// DSN is the database address of a service of the earlier operator.
type DSN struct{ User, Password, Address, Database string }

// ParseDSN parses mysql+pymysql://user:password@host:port/database?options. ok is false for anything else.
func ParseDSN(s string) (DSN, bool) {
	rest, mysql := strings.CutPrefix(s, "mysql+pymysql://")
	rest, _, _ = strings.Cut(rest, "?")
	at := strings.LastIndex(rest, "@")
	if !mysql || at < 0 {
		return DSN{}, false
	}
	user, password, _ := strings.Cut(rest[:at], ":")
	address, database, _ := strings.Cut(rest[at+1:], "/")
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), "3306")
	}
	return DSN{user, password, address, database}, user != "" && database != ""
}

// OtherServer returns the database server in a file if it is not this one: a service must not silently switch to other data.
func OtherServer(c component.Component, file, address string) string {
	s, _ := parse(c, file)["sql_connection"].(string)
	if dsn, ok := ParseDSN(s); ok && dsn.Address != address {
		return dsn.Address
	}
	return ""
}

func (o Options) List() string {
	return cmp.Or(strings.Join(slices.Sorted(maps.Keys(o.Kept)), ", "), "none")
}
