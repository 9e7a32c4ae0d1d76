// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"net/url"

	"yunion.io/x/ocadm/internal/identity"
)

// alert is one rule of the monitor service about the machines of the cloud. Zero values mean what is usual: database telegraf, the mean
// of the field, its average over the hour, level fatal.
type alert struct {
	name, description string
	database          string
	measurement       string
	fields            []string
	function, reduce  string
	comparator        string
	threshold         float64
	level             string
	from, interval    string
	groupBy           []string
	// tag and values: one of them.
	tag    string
	values []string
	// condition "nodata_query" fires when nothing is measured.
	condition, noData string
	points            bool
}

// systemRules are those of a new cloud (those of the earlier operator). They are people's from then on: what they change stays, what they delete
// stays away.
func systemRules() []alert {
	disks := []string{"/", "/opt"}
	return []alert{
		{name: "cpu.usage_active", description: "CPU use of a host", measurement: "cpu", fields: []string{"usage_active"}, comparator: ">=", threshold: 90},
		{name: "mem.available", description: "free memory of a host", measurement: "mem", fields: []string{"available"}, comparator: "<=", threshold: 500 << 20},
		{name: "disk.used_percent>=80%", description: "a host's disk is filling up", measurement: "disk", fields: []string{"used_percent"}, function: "last",
			reduce: "last", comparator: ">=", threshold: 80, level: "important", from: "5m", tag: "path", values: disks},
		{name: "disk.inodes_used_percent>=80%", description: "a host's disk is running out of inodes", measurement: "disk", fields: []string{"inodes_used_percent"},
			function: "last", reduce: "last", comparator: ">=", threshold: 80, level: "important", from: "5m", tag: "path", values: disks},
		{name: "smart_device.exit_status", description: "health of a host's disks", measurement: "smart_device", fields: []string{"health_ok"}, function: "last",
			reduce: "last", comparator: "==", threshold: 0},
		{name: "host_raid.adapter", description: "state of a host's RAID controller", measurement: "host_raid", fields: []string{"adapter", "status", "slot"},
			function: "last", reduce: "last", comparator: ">=", threshold: 0, from: "5m", tag: "status",
			values: []string{"offline", "failed", "degraded", "out of sync"}, noData: "ok", points: true},
		{name: "bond_slave.status", description: "a port of a host's bond is down", measurement: "bond_slave", fields: []string{"status"}, function: "last",
			reduce: "last", comparator: "==", threshold: 0, level: "important", groupBy: []string{"host_id", "interface", "bond"}},
		{name: "cloudaccount_balance.balance", description: "balance of a cloud account", database: "meter_db", measurement: "cloudaccount_balance",
			fields: []string{"balance"}, reduce: "last", comparator: "<=", threshold: 100, level: "important", tag: "brand", values: []string{"Aliyun"}},
		{name: "system.uptime", description: "a node tells nothing", measurement: "system", fields: []string{"uptime"}, function: "last", reduce: "last",
			comparator: "==", threshold: 0, level: "important", from: "3m", interval: "1m", condition: "nodata_query"},
		{name: "process.zombies", description: "processes that nobody waits for", measurement: "processes", fields: []string{"zombies"}, function: "last",
			reduce: "last", comparator: ">=", threshold: 10, from: "5m", groupBy: []string{"host_id"}},
		{name: "process.total", description: "processes of a node", measurement: "processes", fields: []string{"total"}, function: "last", reduce: "last",
			comparator: ">=", threshold: 20000, from: "5m", groupBy: []string{"host_id"}},
		{name: "system.load1_pcore", description: "load of a node for each core", measurement: "system", fields: []string{"load1_pcore"}, function: "last",
			reduce: "last", comparator: ">=", threshold: 2, level: "important", from: "5m", groupBy: []string{"host_id"}},
		{name: "system.host_reboot", description: "a node was restarted", measurement: "system", fields: []string{"uptime"}, function: "last", reduce: "delta",
			comparator: "<", threshold: 0, level: "important", from: "5m", groupBy: []string{"host_id"}},
	}
}

// systemAlertType marks the rules that come with a cloud.
const systemAlertType = "system"

// systemAlerts makes the rules that are not there. The service lets several have one name, so they are listed, not asked for.
func systemAlerts(ctx context.Context, cl Clients, _ Input) (bool, error) {
	id, err := cl.Identity(ctx)
	if err != nil {
		return false, err
	}
	monitor, kind := id.Records(cl.URL("monitor")), identity.Kind{Plural: "commonalerts", Singular: "commonalert"}
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
	changed := false
	for _, a := range systemRules() {
		if there[a.name] {
			continue
		}
		if err := monitor.Create(ctx, kind, a.name, a.record()); err != nil {
			return changed, err
		}
		changed = true
	}
	return changed, nil
}

// record is the rule on the wire.
func (a alert) record() map[string]any {
	part := func(kind string, params ...any) map[string]any {
		return map[string]any{"type": kind, "params": append([]any{}, params...)}
	}
	var selects, groups, tags []any
	for _, f := range a.fields {
		s := []any{part("field", f), part(or(a.function, "mean"))}
		if a.points {
			s = append(s, part("alias", f))
		}
		selects = append(selects, s)
	}
	for _, g := range a.groupBy {
		groups = append(groups, part("field", g))
	}
	for _, v := range a.values {
		tags = append(tags, map[string]any{"key": a.tag, "operator": "=", "value": v, "condition": "OR"})
	}
	query := map[string]any{
		"model": map[string]any{
			"database": or(a.database, "telegraf"), "measurement": a.measurement, "select": selects, "group_by": append([]any{}, groups...),
			"tags": append([]any{}, tags...),
		},
		"from": "60m", "reduce": or(a.reduce, "avg"), "comparator": a.comparator, "threshold": a.threshold,
	}
	if a.condition != "" {
		query["condition_type"] = a.condition
	}
	out := map[string]any{
		"meta_name": a.name, "description": a.description, "alert_type": systemAlertType, "scope": "system", "level": or(a.level, "fatal"),
		"recipients": []any{"commonalert-default"}, "metric_query": []any{query},
	}
	for key, value := range map[string]string{"from": a.from, "interval": a.interval, "no_data_state": a.noData} {
		if value != "" {
			out[key] = value
		}
	}
	if a.points {
		out["get_point_str"] = true
	}
	return out
}

func or(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}
