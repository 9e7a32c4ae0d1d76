// SPDX-License-Identifier: Apache-2.0

// Package adopt reads what the earlier operator (cloudpods-operator) left of a cloud: passwords, configuration files, and defaults written into the
// spec.
// It is pure; docs/decisions/0010-adoption.md describes how the results are used.
package adopt

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
)

// The names that the earlier operator gave its objects and keys.
const (
	// ClusterConfig is the suffix of the ConfigMap with all passwords, ClusterConfigKey its only key.
	ClusterConfig    = "cluster-config"
	ClusterConfigKey = "OnecloudClusterConfig"
	// ConfigKey is the key of a component's ConfigMap that held its whole file.
	ConfigKey = "config"
	// LastApplied is the annotation that holds what it last wrote: for a ConfigMap the data, secrets included.
	LastApplied = "onecloud.yunion.io/last-applied-configuration"
)

// Record is the earlier operator's list of ports, names and passwords (kind OnecloudClusterConfig), by section.
type Record map[string]section

type section struct {
	Username string  `json:"username"`
	Password string  `json:"password"`
	DB       account `json:"db"`
	// ClickHouse has the same names as DB.
	ClickHouse account `json:"clickhouse_conf"`
}

type account struct {
	Database string `json:"database"`
	Username string `json:"username"`
	Password string `json:"password"`
}

// ParseRecord reads the data of ConfigMap <cluster>-cluster-config. Its errors do not quote that.
func ParseRecord(data map[string]string) (Record, error) {
	text, there := data[ClusterConfigKey]
	if !there {
		return nil, fmt.Errorf("it has no key %s", ClusterConfigKey)
	}
	var tree map[string]json.RawMessage
	if yaml.Unmarshal([]byte(text), &tree) != nil {
		return nil, fmt.Errorf("its key %s is not valid YAML", ClusterConfigKey)
	}
	record := Record{}
	for name, raw := range tree {
		var s section
		if json.Unmarshal(raw, &s) == nil { // anything but a section (apiVersion, kind) has no password either
			record[name] = s
		}
	}
	return record, nil
}

// Known returns the earlier operator's values of missing credentials, from its record, else from the component's own file.
func (r Record) Known(all []component.Component, missing []string, spec *component.Spec, file func(component string) string) map[string]string {
	known := map[string]string{}
	for _, c := range all {
		keys := slices.DeleteFunc(component.CredentialKeys(c), func(k string) bool { return !slices.Contains(missing, k) })
		if len(keys) == 0 {
			continue
		}
		have := r.Credentials(c)
		if c.EarlierCredentials != nil && r != nil {
			have = c.EarlierCredentials(*spec)
		}
		if slices.ContainsFunc(keys, func(k string) bool { return have[k] == "" }) {
			have = merged(have, FileCredentials(c, file(c.Name)))
		}
		for k, v := range have {
			if component.IsName(k) || slices.Contains(keys, k) {
				known[k] = v
			}
		}
	}
	return known
}

// merged returns a, with the values that only b has.
func merged(a, b map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range []map[string]string{b, a} {
		for k, v := range m {
			if v != "" {
				out[k] = v
			}
		}
	}
	return out
}

// Credentials returns what the record holds for a component, by the keys of Secret <cluster>-credentials: passwords, and names of its database and
// accounts that differ from ours.
func (r Record) Credentials(c component.Component) map[string]string {
	s, there := r[cmp.Or(c.EarlierSection, c.SpecKey)]
	if !there {
		return nil
	}
	out := map[string]string{}
	set := func(key, value, usual string) {
		if value != "" && value != usual {
			out[key] = value
		}
	}
	if c.Database != nil {
		set(component.DatabasePassword(c.Name), s.DB.Password, "")
		set(component.DatabaseName(c.Name), s.DB.Database, c.Database.Name)
		set(component.DatabaseUser(c.Name), s.DB.Username, c.Database.Account())
		set(component.ClickHousePassword(c.Name), s.ClickHouse.Password, "")
	}
	if c.Account != nil {
		set(component.AccountPassword(c.Name), s.Password, "")
		set(component.AccountUser(c.Name), s.Username, c.Account.User)
	}
	return out
}

// FileCredentials returns the credentials in a component's own file, for a cloud whose record is lost; it leaves out what the file lacks.
func FileCredentials(c component.Component, file string) map[string]string {
	out := map[string]string{}
	values := parse(c, file)
	text := func(key string) string { s, _ := values[key].(string); return s }
	if dsn, ok := ParseDSN(text("sql_connection")); ok && c.Database != nil {
		out[component.DatabasePassword(c.Name)] = dsn.Password
		if dsn.Database != c.Database.Name {
			out[component.DatabaseName(c.Name)] = dsn.Database
		}
		if dsn.User != c.Database.Account() {
			out[component.DatabaseUser(c.Name)] = dsn.User
		}
	}
	if pw := text("admin_password"); pw != "" && c.Account != nil {
		out[component.AccountPassword(c.Name)] = pw
		if user := text("admin_user"); user != "" && user != c.Account.User {
			out[component.AccountUser(c.Name)] = user
		}
	}
	if pw := text("bootstrap_admin_user_password"); pw != "" && slices.Contains(c.Credentials, component.BootstrapPassword) {
		out[component.BootstrapPassword] = pw
	}
	return out
}

// derived lists the fields of a block that the earlier operator computed and wrote into the spec: no user chose them.
var derived = []string{"image", "imageName", "imagePullPolicy", "initContainerImage", "version", "limits", "affinity", "nodeSelector",
	"tolerations", "createdSecrets"}

// Derived returns a function that reports whether a field of the resource (a path from its root), owned by the earlier operator, is one of its
// defaults, which ours may replace. Everything else that it wrote (version, registry, region, ports, volume sizes, what is disabled, the
// administrator's password) describes the cloud as it is, and stays.
func Derived(spec *v1alpha1.OnecloudClusterSpec) func(fieldpath.Path) bool {
	return func(p fieldpath.Path) bool {
		names := make([]string, len(p))
		for i, e := range p {
			if e.FieldName != nil {
				names[i] = *e.FieldName
			}
		}
		if len(names) < 3 || names[0] != "spec" || spec.Component(names[1]) == nil {
			return false
		}
		block, rest := names[1], names[2:]
		if len(rest) > 1 && spec.Container(block+"."+rest[0]) != nil {
			block, rest = block+"."+rest[0], rest[1:]
		}
		switch {
		case slices.Contains(derived, rest[0]):
			return true
		case rest[0] == "requests":
			return len(rest) == 2 && rest[1] != "storage"
		case rest[0] == "replicas" && len(rest) == 1:
			// One, or zero because it was disabled; a greater number is a choice.
			n := spec.Component(block).Replicas
			return n == nil || *n <= 1
		}
		return false
	}
}
