// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"text/template"

	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/templates/services"
)

// conf is a component's configuration: what lies in the open, what lies in the Secret, and the hash of both.
type conf struct {
	public map[string]string
	secret map[string][]byte
	hash   string
}

// ConfigSuffix ends the name of the Secret that holds a component's files: <cluster>-<component>-config.
const ConfigSuffix = "-config"

// plainKey is the key of a ConfigMap that holds a whole file. It is never the name of an option.
const plainKey = "config"

// configuration composes what the component is configured with; nil maps where it has none.
func configuration(c component.Component, in component.Inputs) (conf, error) {
	switch {
	case c.Config == nil:
		return conf{}, nil
	case c.Config.Of != "":
		other := in.Cluster.Components[c.Config.Of]
		in.Self = other
		shared, err := configuration(other.Component, in)
		return conf{hash: shared.hash}, err
	}
	var out conf
	theirs := in.Options[c.Name]
	seen := map[string][]byte{}
	var hashed []byte
	switch {
	case c.Config.Sealed != "":
		text, err := plain(c.Config.Sealed, in)
		if err != nil {
			return conf{}, err
		}
		out.secret = map[string][]byte{FileName(c): []byte(text)}
	case c.Config.Plain != "":
		text, err := plain(c.Config.Plain, in)
		if err != nil {
			return conf{}, err
		}
		out.public = map[string]string{}
		if t, edited := theirs[plainKey]; edited {
			text = t
		} else {
			out.public[plainKey] = text
		}
		seen[FileName(c)] = []byte(text)
	default:
		public, file, err := compose(c, in, theirs)
		if err != nil {
			return conf{}, err
		}
		out.public, out.secret = public, map[string][]byte{FileName(c): file}
		if c.Config.Calm && in.AdminPasswordTaken {
			if hashed, err = restless(c, in, theirs); err != nil {
				return conf{}, err
			}
		}
	}
	if c.Config.Files != nil {
		if out.secret == nil {
			out.secret = map[string][]byte{}
		}
		for name, text := range c.Config.Files(in) {
			out.secret[name] = []byte(text)
		}
	}
	maps.Copy(seen, out.secret)
	if hashed != nil {
		seen[FileName(c)] = hashed
	}
	out.hash = hash(seen)
	return out, nil
}

// restless is the file as it would be without what is no reason to restart the pods.
func restless(c component.Component, in component.Inputs, theirs map[string]string) ([]byte, error) {
	in.AdminPasswordTaken = false
	_, file, err := compose(c, in, theirs)
	return file, err
}

// groups are the options that many services share, public and secret.
func groups(c component.Component, in component.Inputs) (public, secret map[string]any) {
	public, secret = map[string]any{}, map[string]any{}
	owner := cmp.Or(c.LogsInAs(), c.Name)
	for _, g := range c.Config.Groups {
		switch g {
		case component.GroupTLS:
			public["enable_ssl"] = true
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

func plain(name string, in component.Inputs) (string, error) {
	t, err := template.New(name).Option("missingkey=error").ParseFS(services.FS, name)
	if err != nil {
		return "", fmt.Errorf("reading template %s: %w", name, err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, in); err != nil {
		return "", fmt.Errorf("filling template %s: %w", name, err)
	}
	return b.String(), nil
}

// FileName is the name of a component's configuration file, and its key in the Secret (or its path, where the ConfigMap itself is mounted).
func FileName(c component.Component) string {
	if c.Config.File != "" {
		return c.Config.File
	}
	return c.Name + ".conf"
}

func hash(files map[string][]byte) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%s %d\n%s", name, len(files[name]), files[name])
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}
