// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"

	"yunion.io/x/ocadm/internal/identity"
)

// playbook is an ansible playbook as devtool keeps it: a line per host and per module, in the words of ansible.
type playbook struct {
	name    string
	host    map[string]any
	modules []module
	conf    string
}

type module struct {
	name string
	args []string
}

// telegrafConf is the configuration that the template below puts on a machine; INFLUXDB is replaced by ansible.
const telegrafConf = `# Made by the cloud's devtool.
[agent]
  interval = "60s"
  round_interval = true
  metric_batch_size = 1000
  metric_buffer_limit = 10000
  flush_interval = "60s"
  omit_hostname = false
[[outputs.influxdb]]
  urls = ["{{ influxdb }}"]
  database = "telegraf"
  insecure_skip_verify = true
[[inputs.cpu]]
  percpu = true
  totalcpu = true
[[inputs.disk]]
  ignore_fs = ["tmpfs", "devtmpfs", "overlay", "squashfs", "iso9660"]
[[inputs.diskio]]
[[inputs.kernel]]
[[inputs.mem]]
[[inputs.net]]
[[inputs.processes]]
[[inputs.swap]]
[[inputs.system]]
`

// telegrafPackage is where machines get the agent from, as with the earlier operator.
const telegrafPackage = "https://iso.yunion.cn/yumrepo-2.13/rpms/packages/telegraf-1.5.18-1.x86_64.rpm"

// templates that people find in devtool of a new cloud.
func templates() []playbook {
	become := map[string]any{"ansible_become": "yes"}
	return []playbook{
		{name: "ping-host", host: become, modules: []module{{name: "ping"}}},
		{name: "install-telegraf-on-centos", conf: telegrafConf, host: map[string]any{"ansible_become": "yes", "influxdb": "INFLUXDB"}, modules: []module{
			{"file", []string{"path=/etc/telegraf", "state=directory", "mode=0755"}},
			{"template", []string{"src=conf", "dest=/etc/telegraf/telegraf.conf", "mode=0644"}},
			{"get_url", []string{"url=" + telegrafPackage, "dest=/tmp/telegraf.rpm"}},
			{"yum", []string{"name=/tmp/telegraf.rpm", "state=installed"}},
			{"systemd", []string{"name=telegraf", "enabled=yes", "state=started"}},
		}},
		{name: "install-nginx-on-centos", host: become, modules: []module{
			{"yum", []string{"name=epel-release", "state=present"}},
			{"yum", []string{"name=nginx", "state=installed"}},
			{"systemd", []string{"name=nginx", "enabled=yes", "state=started"}},
		}},
	}
}

// daily is how often, in seconds, a template that somebody puts on a machine is run there.
const daily = 86400

// fields of the template on the wire.
func (p playbook) fields() map[string]any {
	modules := make([]any, len(p.modules))
	for i, m := range p.modules {
		args := make([]any, len(m.args))
		for j, a := range m.args {
			args[j] = a
		}
		modules[i] = map[string]any{"name": m.name, "args": args}
	}
	book := map[string]any{
		"inventory": map[string]any{"hosts": []any{map[string]any{"name": "HOSTNAME", "vars": p.host}}},
		"modules":   modules,
	}
	if p.conf != "" {
		book["files"] = map[string]any{"conf": octets(p.conf)}
	}
	return map[string]any{
		"playbook": book,
		"day":      0, "hour": 0, "min": 0, "sec": 0, "interval": daily, "start": false, "enabled": true,
	}
}

// octets are the bytes of a text as the services' APIs take them: an array of numbers, not base64.
func octets(text string) []any {
	out := make([]any, len(text))
	for i := range len(text) {
		out[i] = int(text[i])
	}
	return out
}

// devtoolTemplates makes the templates of a new cloud.
func devtoolTemplates(ctx context.Context, cl Clients, _ Input) (bool, error) {
	id, err := cl.Identity(ctx)
	if err != nil {
		return false, err
	}
	devtool, changed := id.Records(cl.URL("devtool")), false
	for _, p := range templates() {
		_, made, err := devtool.Ensure(ctx, identity.Kind{Plural: "devtool_templates", Singular: "devtool_template"}, p.name, p.fields())
		changed = changed || made
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// monitorAgent is the script that puts the monitoring agent on servers: a playbook in ansibleserver's image, and devtool's use of it.
const monitorAgent = "monitor agent"

func devtoolAgent(ctx context.Context, cl Clients, _ Input) (bool, error) {
	id, err := cl.Identity(ctx)
	if err != nil {
		return false, err
	}
	public := func(fields map[string]any) map[string]any {
		fields["project"], fields["is_public"], fields["public_scope"] = systemProject, true, "system"
		return fields
	}
	ref, made, err := id.Records(cl.URL("ansibleserver")).Ensure(ctx,
		identity.Kind{Plural: "ansibleplaybookreferences", Singular: "ansibleplaybookreference"}, monitorAgent, public(map[string]any{
			"playbook_path": "/opt/yunion/playbook/monitor-agent/playbook.yaml", "method": "offline",
			"playbook_params": map[string]any{
				"telegraf_agent_package_method":    "offline",
				"telegraf_agent_package_local_dir": "/opt/yunion/ansible-install-pkg",
			},
		}))
	if err != nil {
		return made, err
	}
	_, scripted, err := id.Records(cl.URL("devtool")).Ensure(ctx, identity.Kind{Plural: "scripts", Singular: "script"}, monitorAgent,
		public(map[string]any{"playbook_reference": ref, "max_try_times": 3}))
	return made || scripted, err
}
