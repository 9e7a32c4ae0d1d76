// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/templates/setup"
)

// devtoolRecords are the templates by name, as the service takes them.
func devtoolRecords() (map[string]map[string]any, error) {
	records, err := setupRecords(setup.Devtool)
	out := map[string]map[string]any{}
	for _, fields := range records {
		name, _ := fields["name"].(string)
		delete(fields, "name")
		if conf, found, _ := unstructured.NestedString(fields, "playbook", "files", "conf"); found {
			if err := unstructured.SetNestedSlice(fields, octets(conf), "playbook", "files", "conf"); err != nil {
				return nil, err
			}
		}
		out[name] = fields
	}
	return out, err
}

// octets are the bytes of a text as the services' APIs take them: an array of numbers, not base64.
func octets(text string) []any {
	out := make([]any, len(text))
	for i := range len(text) {
		out[i] = int64(text[i])
	}
	return out
}

// devtoolTemplates makes the templates of a new cloud.
func devtoolTemplates(ctx context.Context, s session, _ Input) (bool, error) {
	templates, err := devtoolRecords()
	if err != nil {
		return false, err
	}
	devtool, kind := s.id.Records(s.URL("devtool")), identity.Kind{Plural: "devtool_templates", Singular: "devtool_template"}
	var writes []write
	for name, fields := range templates {
		writes = append(writes, func() (bool, error) { return ensured(devtool.Ensure(ctx, kind, name, fields)) })
	}
	return each(writes...)
}

// monitorAgent is the script that puts the monitoring agent on servers: a playbook in ansibleserver's image, and devtool's use of it.
const monitorAgent = "monitor agent"

func devtoolAgent(ctx context.Context, s session, _ Input) (bool, error) {
	public := func(fields map[string]any) map[string]any {
		fields["project"], fields["is_public"], fields["public_scope"] = systemProject, true, "system"
		return fields
	}
	playbook := ""
	return each(
		func() (made bool, err error) {
			playbook, made, err = s.id.Records(s.URL("ansibleserver")).Ensure(ctx,
				identity.Kind{Plural: "ansibleplaybookreferences", Singular: "ansibleplaybookreference"}, monitorAgent, public(map[string]any{
					"playbook_path": "/opt/yunion/playbook/monitor-agent/playbook.yaml", "method": "offline",
					"playbook_params": map[string]any{
						"telegraf_agent_package_method":    "offline",
						"telegraf_agent_package_local_dir": "/opt/yunion/ansible-install-pkg",
					},
				}))
			return made, err
		},
		func() (bool, error) {
			return ensured(s.id.Records(s.URL("devtool")).Ensure(ctx, identity.Kind{Plural: "scripts", Singular: "script"}, monitorAgent,
				public(map[string]any{"playbook_reference": playbook, "max_try_times": 3})))
		},
	)
}
