// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/options"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/templates"
	"yunion.io/x/ocadm/templates/services"
)

// conf is a component's configuration: the data of its ConfigMap and its Secret, and the hash of both.
type conf struct {
	public map[string]string
	secret map[string][]byte
	hash   string
}

// ConfigSuffix ends the name of the Secret that holds a component's files: <cluster>-<component>-config.
const ConfigSuffix = "-config"

// plainKey is the key of a ConfigMap that holds a whole file. No option has this name. enableTLS is the option of all services that makes them serve TLS.
const plainKey, enableTLS = "config", "enable_ssl"

// configuration composes the configuration of a component. public is nil if it has no ConfigMap, secret is empty if it has no Secret.
func configuration(c component.Component, in component.Inputs) (out conf, err error) {
	switch {
	case c.Config == nil:
		return conf{}, nil
	case c.Config.Of != "":
		in.Self = in.Cluster.Components[c.Config.Of]
		shared, err := configuration(in.Self.Component, in)
		return conf{hash: shared.hash}, err
	}
	name, theirs := FileName(c), in.Chosen[c.Name]
	out.secret = map[string][]byte{}
	rolls := map[string][]byte{} // content whose change restarts the pods, where it differs from the file in the Secret
	switch {
	case c.Config.Sealed != "":
		out.secret[name], err = templates.RenderFS(services.FS, c.Config.Sealed, in)
	case c.Config.Plain != "":
		rolls[name], err = templates.RenderFS(services.FS, c.Config.Plain, in)
		out.public = map[string]string{plainKey: string(rolls[name])}
		if text, edited := theirs[plainKey]; edited {
			rolls[name], out.public = []byte(text), map[string]string{}
		}
	default:
		out.public, out.secret[name], err = compose(c, in, theirs)
		if err == nil && c.Config.Calm && in.AdminPasswordTaken {
			restless := in
			restless.AdminPasswordTaken = false
			_, rolls[name], err = compose(c, restless, theirs)
		}
	}
	if err != nil {
		return conf{}, err
	}
	if c.Config.Files != nil {
		for name, text := range c.Config.Files(in) {
			out.secret[name] = []byte(text)
		}
	}
	for _, key := range c.Config.Reads { // the hash is public: a generated password keeps a chosen one from being guessed from it
		rolls[key] = []byte(in.Credentials[component.DatabasePassword(component.IdentityService)] + in.Credentials[key])
	}
	all := maps.Clone(out.secret)
	maps.Copy(all, rolls)
	out.hash = hash(all)
	return out, nil
}

// groups returns the options that many services share, public and secret.
func groups(c component.Component, in component.Inputs) (public, secret map[string]any) {
	public, secret = map[string]any{}, map[string]any{}
	owner := cmp.Or(c.LogsInAs(), c.Name)
	for _, g := range c.Config.Groups {
		switch g {
		case component.GroupTLS:
			public[enableTLS] = true
			public["ssl_ca_certs"] = certsDir + "/ca.crt"
			public["ssl_certfile"] = certsDir + "/service.crt"
			public["ssl_keyfile"] = certsDir + "/service.key"
		case component.GroupBase:
			base(public, in)
		case component.GroupCommon:
			base(public, in)
			public["auth_url"] = in.Cluster.AuthURL()
			public["admin_domain"], public["admin_project"] = "Default", "system"
			if a := in.Cluster.Components[owner].Account; a != nil {
				public["admin_user"] = a.User
				secret["admin_password"] = in.Credentials[component.AccountPassword(owner)]
			}
		case component.GroupDB:
			secret["sql_connection"] = in.DSN(owner)
		case component.GroupClickHouse:
			if dsn := in.ClickHouseDSN(owner); dsn != "" {
				public["ops_log_with_clickhouse"] = true
				secret["clickhouse"] = dsn
			}
		}
	}
	return public, secret
}

func base(public map[string]any, in component.Inputs) {
	public["region"] = in.Cluster.Region
	public["cron_job_worker_count"], public["local_task_worker_count"] = 4, 4
	public["request_worker_count"], public["task_worker_count"] = 8, 4
	if in.Self.Service != nil {
		public["port"] = in.Cluster.NodePort(in.Self.Name, "")
	}
}

// FileName returns the name of a component's configuration file and its key in the Secret (or its path, if the ConfigMap itself is mounted).
func FileName(c component.Component) string {
	return cmp.Or(c.Config.File, c.Name+".conf")
}

func hash(files map[string][]byte) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%s %d\n%s", name, len(files[name]), files[name])
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// Configurable reports whether a component's configuration consists of options that users may edit.
func Configurable(c component.Component) bool {
	return c.Config != nil && c.Config.Of == "" && c.Config.Plain == "" && c.Config.Sealed == ""
}

// Chosen returns the data of a ConfigMap that field managers other than this operator and the earlier one own; nil if there is none.
func Chosen(cm *corev1.ConfigMap) map[string]string {
	var out map[string]string
	for _, m := range cm.ManagedFields {
		if m.Manager == engine.FieldManager && m.Operation == metav1.ManagedFieldsOperationApply || m.Manager == v1alpha1.ManagerEarlier {
			continue
		}
		for _, k := range engine.DataKeys(m) {
			if v, there := cm.Data[k]; there {
				if out == nil {
					out = map[string]string{}
				}
				out[k] = v
			}
		}
	}
	return out
}

// Live is the configuration of a component in the cluster.
type Live struct {
	// Data is that of the ConfigMap, including the operator's keys. Accepted are the options that a user accepts (AnnotationAcceptOptions).
	Data     map[string]string
	Accepted []string
	// File is the composed file that the pods use, nil if there is none yet.
	File []byte
}

// Check evaluates the options that users set in a component's ConfigMap (in.Chosen). If the service takes all of them, it returns their values. If it
// would reject one, none of the edit counts: the values are those of the file that the pods use, so that nothing rolls; without such a file they are the
// valid ones. The operator's own options and the secrets are updated in any case.
func Check(c component.Component, in component.Inputs, live Live) (values map[string]any, problems []*options.Problem) {
	theirs := in.Chosen[c.Name]
	ours, secrets := own(c, in)
	good, problems := read(in.Self, theirs, ours, secrets, live.Accepted)
	if len(problems) == 0 || live.File == nil {
		return good, problems
	}
	last, err := parseFile(c, live.File)
	if err != nil {
		return good, problems
	}
	held := map[string]any{}
	for key, value := range last {
		if _, secret := secrets[key]; secret {
			continue
		}
		mine, is := ours[key]
		_, edited := theirs[key]
		switch {
		case edited || !is:
			held[key] = value
		case !same(mine, value) && (live.Data[key] == "" || same(mine, textValue(live.Data[key]))):
			held[key] = value // the same edit reverts a choice; our own value has not changed
		}
	}
	return held, problems
}

// Accepted returns the names of the options that the users of a ConfigMap vouch for.
func Accepted(cm *corev1.ConfigMap) []string {
	names := lists.Map(strings.Split(cm.Annotations[v1alpha1.AnnotationAcceptOptions], ","), strings.TrimSpace)
	return lists.Filter(names, func(name string) bool { return name != "" })
}

// read returns the values of the options that users set. They can set neither secrets nor what is fixed.
func read(r component.Resolved, theirs map[string]string, ours, secrets map[string]any, accepted []string) (map[string]any, []*options.Problem) {
	table, checked := options.Of(r.Name)
	values := map[string]any{}
	var problems []*options.Problem
	for _, key := range slices.Sorted(maps.Keys(theirs)) {
		if key == plainKey {
			continue
		}
		if _, is := secrets[key]; is {
			problems = append(problems, &options.Problem{Key: key, What: "is a secret that the operator sets"})
			continue
		}
		_, known := table[key]
		var value any
		var err error
		if checked && (known || !slices.Contains(accepted, key)) {
			value, err = table.Value(r.Name, key, theirs[key])
		} else if value, err = OptionValue(theirs[key]); err != nil {
			err = &options.Problem{Key: key, What: "is not valid YAML"}
		}
		if problem, ok := errors.AsType[*options.Problem](err); ok {
			problems = append(problems, problem)
			continue
		}
		if why := fixed(r, key, ours[key]); why != "" && fmt.Sprint(ours[key]) != fmt.Sprint(value) {
			problems = append(problems, &options.Problem{Key: key, What: fmt.Sprintf("must be %v: %s", ours[key], why)})
			continue
		}
		if value != nil {
			values[key] = value
		}
	}
	return values, problems
}

// fixed returns why users cannot set another value of an option than the operator's, "" if they can.
func fixed(r component.Resolved, key string, ours any) string {
	n, number := ours.(int32) // the component table has ports as int32, other numbers as int
	switch {
	case number && slices.Contains(slices.Collect(maps.Values(r.NodePorts)), n):
		return "it is the port of its Service; nodePort in the resource of the cloud sets both"
	case key == enableTLS && ours == true:
		return "the probes and the other services use TLS"
	}
	return ""
}

// own returns the operator's own options, public and secret.
func own(c component.Component, in component.Inputs) (public, secret map[string]any) {
	public, secret = groups(c, in)
	if c.Config.Options != nil {
		maps.Copy(public, c.Config.Options(in))
	}
	if c.Config.Secrets != nil {
		maps.Copy(secret, c.Config.Secrets(in))
	}
	maps.DeleteFunc(public, func(_ string, v any) bool { return v == nil })
	return public, secret
}

// Options returns the operator's own options as they appear in the component's ConfigMap, and the names of those that users cannot set.
func Options(r component.Resolved, in component.Inputs) (public map[string]string, reserved []string, err error) {
	in.Self = r
	public, _, err = compose(r.Component, in, nil)
	ours, secrets := own(r.Component, in)
	maps.DeleteFunc(ours, func(key string, value any) bool { return fixed(r, key, value) == "" })
	return public, append(sorted(secrets), sorted(ours)...), err
}

// compose returns the ConfigMap's data, without the keys that users have set, and the composed file. Users' options override ours; secrets override
// both.
func compose(c component.Component, in component.Inputs, theirs map[string]string) (map[string]string, []byte, error) {
	ours, secrets := own(c, in)
	values, checked := in.Values[c.Name]
	if !checked {
		var problems []*options.Problem
		if values, problems = read(in.Self, theirs, nil, nil, nil); len(problems) > 0 {
			return nil, nil, fmt.Errorf("ConfigMap %s: %w", in.Cluster.Object(c.Name), problems[0])
		}
	}
	public := map[string]string{}
	all := map[string]any{}
	for key, value := range ours {
		all[key] = value
		if text, taken := theirs[key]; taken {
			if textValue(text) == nil {
				delete(all, key) // emptied: the service's own default
			}
			continue
		}
		text, err := OptionText(value)
		if err != nil {
			return nil, nil, fmt.Errorf("option %s: %w", key, err)
		}
		public[key] = text
	}
	maps.Copy(all, values)
	maps.Copy(all, secrets)
	if c.Config.Properties {
		return public, properties(all), nil
	}
	file, err := yaml.Marshal(all)
	if err != nil {
		return nil, nil, fmt.Errorf("writing %s: %w", FileName(c), err)
	}
	return public, file, nil
}

// Emptied returns the options of each component that users have left empty: the service uses its own default, even if the operator has another.
func Emptied(theirs map[string]map[string]string) map[string][]string {
	out := map[string][]string{}
	for name, data := range theirs {
		for _, key := range sorted(data) {
			if textValue(data[key]) == nil {
				out[name] = append(out[name], key)
			}
		}
	}
	return out
}
