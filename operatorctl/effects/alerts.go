// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"fmt"
	"net/url"

	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/templates/setup"
)

// setupRecords reads records of package setup.
func setupRecords(text []byte) (out []map[string]any, err error) {
	if err := yaml.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("reading the records of a new cloud: %w", err)
	}
	return out, nil
}

// systemAlertType marks the rules that come with a cloud.
const systemAlertType = "system"

// systemAlerts makes the rules that are not there. They are users' from then on: what they change stays, what they delete stays away. The
// service lets several have one name, so they are listed, not asked for.
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
