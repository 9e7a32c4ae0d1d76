// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"fmt"
	"net/url"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/policy"
	"yunion.io/x/ocadm/templates/setup"
)

// setupRecords parses records of package setup.
func setupRecords(text []byte) (out []map[string]any, err error) {
	if err := yaml.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("reading the records of a new cloud: %w", err)
	}
	return out, nil
}

// systemAlertType is the type of the built-in alert rules.
const systemAlertType = "system"

// systemAlerts creates missing alert rules. Users own them from then on: their changes and deletions last. Names are not unique in the service, so it
// lists the rules instead of requesting them by name.
func systemAlerts(ctx context.Context, s session, _ Input) (bool, error) {
	monitor, kind := s.id.Records(s.URL("monitor")), identity.Kind{Plural: "commonalerts", Singular: "commonalert"}
	list, err := monitor.List(ctx, kind, url.Values{"alert_type": {systemAlertType}, "scope": {"system"}, "details": {"true"}})
	if err != nil {
		return false, err
	}
	there := map[any]bool{}
	for _, r := range list {
		there[r["name"]], there[r["meta_name"]] = true, true
		if m, ok := r["metadata"].(map[string]any); ok {
			there[m["meta_name"]] = true
		}
	}
	records, err := setupRecords(setup.Alerts)
	if err != nil {
		return false, err
	}
	var writes []write
	for _, fields := range records {
		if name, _ := fields["name"].(string); !there[name] {
			writes = append(writes, func() (bool, error) {
				err := monitor.Create(ctx, kind, name, fields)
				return err == nil, err
			})
		}
	}
	return each(writes...)
}

// devtoolRecords returns the templates by name, in the form that the service takes.
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

// octets converts a text to the form of bytes in the services' APIs: an array of numbers, not base64.
func octets(text string) []any {
	out := make([]any, len(text))
	for i := range len(text) {
		out[i] = int64(text[i])
	}
	return out
}

// devtoolTemplates creates the templates of a new cloud.
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

// monitorAgent is the script that installs the monitoring agent on servers: a playbook in ansibleserver's image, used by devtool.
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

// standardPolicies creates the policies and roles of a cloud for users other than its administrator. It only creates what is missing. Users' changes
// last: the rules of a policy, and the policies of a role.
func standardPolicies(ctx context.Context, s session, _ Input) (bool, error) {
	table, err := policy.Standard()
	if err != nil {
		return false, err
	}
	return s.id.EnsureStandard(ctx, standard(table))
}

// standard converts the table to the form that the identity service takes.
func standard(t policy.Table) identity.Standard {
	return identity.Standard{
		Policies: lists.Map(t.Policies, func(p policy.Policy) identity.Policy {
			return identity.Policy{Name: p.Name, Scope: p.Scope, Blob: p.Rules}
		}),
		Roles: lists.Map(t.Roles, func(r policy.Role) identity.Role {
			return identity.Role{Name: r.Name, Public: r.Public, Policies: r.Policies, Project: r.Project}
		}),
	}
}
