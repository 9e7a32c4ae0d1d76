// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
)

type doing func(ctx context.Context, cl Clients, in Input) (changed bool, err error)

// task is a bootstrap task in a service's own API. It runs once per version, and again when the audit is due.
type task struct {
	version int
	// Effect sets the unusual fields: Once, Aside, OwnEvents, Within.
	Effect
	// asks lists the components that it calls, if not its own.
	asks []string
	// needs returns the components that must be Available first, if not the usual ones.
	needs func(in Input) []string
	// wants returns everything on which the result depends, if not the usual.
	wants func(in Input) map[string]any
	do    doing
}

// tasks are the tasks by their names in Component.Setup.
var tasks = map[string]task{
	"common-config":       {version: addressVersion, wants: consoleAddress, do: asAdmin(commonConfig)},
	"console-login":       {version: 1, Effect: Effect{Once: true}, do: asAdmin(consoleLogin)},
	"standard-policies":   {version: 1, Effect: Effect{Once: true, Aside: true, Within: time.Minute}, do: asAdmin(standardPolicies)},
	"region-topology":     {version: 1, do: withCatalog(regionTopology)},
	"yunionconf-settings": {version: 1, do: withCatalog(consoleSettings)},
	"cloudproxy-agent":    {version: 1, Effect: Effect{Once: true}, do: asAdmin(proxyAgent)},
	"monitor-alerts":      {version: 1, Effect: Effect{Once: true}, do: asAdmin(systemAlerts)},
	"devtool-templates":   {version: 1, Effect: Effect{Once: true}, do: asAdmin(devtoolTemplates)},
	"devtool-agent":       {version: 1, Effect: Effect{Once: true}, asks: []string{"devtool", "ansibleserver"}, do: asAdmin(devtoolAgent)},
	"etcd-upkeep": {version: 1, Effect: Effect{Aside: true, OwnEvents: true, Within: 3 * time.Minute}, needs: etcdNeeds, wants: etcdWanted,
		do: keepEtcd},
	"minio":         {version: 1, asks: []string{"kubeserver"}, wants: minioWanted, do: asAdmin(installMinio)},
	"monitor-stack": {version: 1, asks: []string{"kubeserver"}, wants: monitorStackWanted, do: asAdmin(installMonitorStack)},
}

// addressVersion is the version of the task that stores the address of the console.
const addressVersion = 1

// commonConfig stores the address of the console for all services. Another one that users have set since then in the console lasts, and one in a ConfigMap
// always. Without a record, the stored one may be that of the cloud in a backup, so it is replaced, and an event keeps it.
func commonConfig(ctx context.Context, s session, in Input) (bool, error) {
	wanted := consoleAddress(in)
	stored, err := s.id.GetServiceConfig(ctx, commonService)
	if err != nil || in.Cluster.LoadBalancer == "" || in.chosen(addressOption) {
		return false, err
	}
	before, _ := stored["default"][addressOption].(string)
	was := in.Recorded["setup/common-config"]
	if was != "" && before != "" && was != in.setupHash("common-config", addressVersion, map[string]any{addressOption: before}) {
		return false, nil
	}
	changed, err := s.id.EnsureServiceConfig(ctx, commonService, wanted)
	if changed && was == "" && before != "" {
		s.Notify(Notice{Component: identityName, Reason: "AddressReplaced", Text: fmt.Sprintf("option %s was %s, and is %s now", addressOption, before, wanted[addressOption])})
	}
	return changed, err
}

// addressOption is the shared option with the address of the console in links.
const addressOption = "api_server"

func consoleAddress(in Input) map[string]any {
	return map[string]any{addressOption: "https://" + in.Cluster.PublicHost("web")}
}

// consoleLogin lets the administrator log in at the console (docs/decisions/0003-console-login.md). An event reports the change, which is unexpected in an adopted cloud.
func consoleLogin(ctx context.Context, s session, _ Input) (bool, error) {
	changed, err := s.id.AllowWebConsole(ctx, AdminUser)
	if changed {
		s.Notify(Notice{Component: identityName, Reason: "ConsoleLogin", Text: "user " + AdminUser + " may now log in to the console"})
	}
	return changed, err
}

// regionTopology creates the zones, the layer-2 domain of the first zone, and the scheduler's two standard tags.
func regionTopology(ctx context.Context, s session, in Input) (bool, error) {
	c, region, zones, tag := in.Cluster, s.id.Records(s.URL("region")), identity.Kind{Plural: "zones", Singular: "zone"}, ""
	writes := []write{func() (bool, error) { return s.id.EnsureRegion(ctx, s.catalog, c.Region+"-"+c.Zone) }}
	for _, zone := range append([]string{c.Zone}, c.Spec.CustomZones...) {
		writes = append(writes, func() (bool, error) { return ensured(region.Ensure(ctx, zones, zone, nil)) })
	}
	return each(append(writes,
		func() (bool, error) {
			return ensured(region.In(zones, c.Zone).Ensure(ctx, identity.Kind{Plural: "wires", Singular: "wire"}, "bcast0", map[string]any{
				"bandwidth": 1000, "vpc": "default", // Mbit/s
			}))
		},
		func() (tagged bool, err error) {
			tag, tagged, err = region.Ensure(ctx, identity.Kind{Plural: "schedtags", Singular: "schedtag"}, "same_project", map[string]any{
				"default_strategy": "prefer", "description": "machines of one project near each other",
			})
			return tagged, err
		},
		func() (bool, error) {
			kind := identity.Kind{Plural: "dynamicschedtags", Singular: "dynamicschedtag"}
			return ensured(region.Ensure(ctx, kind, "same_cloudprovider_project", map[string]any{
				"schedtag": tag, "condition": "host.cloudprovider.tenant_id == server.owner_tenant_id", "enabled": true,
			}))
		})...)
}

// proxyAgent creates the record of the proxy agent, which cloudproxy itself implements (option proxy_agent_id).
func proxyAgent(ctx context.Context, s session, _ Input) (bool, error) {
	return ensured(s.id.Records(s.URL("cloudproxy")).Ensure(ctx, identity.Kind{Plural: "proxy_agents", Singular: "proxy_agent"}, "proxyagent0", nil))
}

// consoleSettings enables the parts of the console that this product has, except those that users switched off.
func consoleSettings(ctx context.Context, s session, in Input) (bool, error) {
	c := in.Cluster
	keys := SetupKeys(c.Product, c.Edition)
	return each(
		func() (bool, error) { return ensured(s.id.EnsureService(ctx, s.catalog, "yunionagent", "yunionagent")) },
		func() (bool, error) {
			set, err := s.id.Parameters(s.URL("yunionconf")).Ensure(ctx, "global-settings", "yunionagent", func(old map[string]any) map[string]any {
				return mergeSettings(old, keys, c.Product)
			})
			if err != nil {
				err = fmt.Errorf("storing the console's settings: %w", err)
			}
			return set, err
		},
	)
}

// mergeSettings keeps users' choices: a known key that is missing from their list was switched off.
func mergeSettings(old map[string]any, keys []string, product component.Product) map[string]any {
	out := map[string]any{"productVersion": string(product), "version": "3.0"}
	if product == component.CMP {
		out["setupOneStackInitialized"] = true
	}
	chosen := keys
	if old != nil {
		var known []string
		known, chosen = stringsAt(old, "knownSetupKeys"), stringsAt(old, "setupKeys")
		chosen = append(chosen, lists.Filter(keys, func(k string) bool {
			return len(known) > 0 && !slices.Contains(known, k) && !slices.Contains(chosen, k)
		})...)
	}
	_ = unstructured.SetNestedStringSlice(out, chosen, "setupKeys") // nothing exists yet that could conflict
	_ = unstructured.SetNestedStringSlice(out, keys, "knownSetupKeys")
	for k, v := range old {
		if _, ours := out[k]; !ours {
			out[k] = v
		}
	}
	return out
}

// stringsAt returns the list under a key, nil if there is none.
func stringsAt(m map[string]any, key string) []string {
	list, _, _ := unstructured.NestedStringSlice(m, key)
	return list
}

// SetupKeys returns the parts of the console in a product and an edition, as in the earlier operator.
func SetupKeys(p component.Product, e component.Edition) []string {
	cmp := []string{"public", "private", "storage", "aliyun", "aws", "azure", "google", "huawei", "qcloud", "ctyun", "volcengine", "openstack", "dstack",
		"apsara", "cloudpods", "hcs", "nutanix", "s3", "ceph", "xsky"}
	edge := []string{"onecloud", "onestack", "baremetal", "lb", "vmware", "proxmox"}
	var keys []string
	switch p {
	case component.CMP:
		keys = cmp
	case component.Edge:
		keys = edge
	case component.LightEdge:
		keys = []string{"onecloud", "onestack"}
	case component.AI:
		keys = []string{"onecloud", "onestack", "pod", "ai"}
	default:
		keys = slices.Concat(cmp, edge)
	}
	keys = slices.Concat(keys, []string{"monitor", "auth", "default"})
	if e == component.EE {
		if p != component.Edge && p != component.LightEdge {
			keys = slices.Concat(keys, []string{"ucloud", "ecloud", "jdcloud", "zstack", "hcso", "bingocloud", "incloudsphere"})
		}
		if p != component.LightEdge {
			keys = slices.Concat(keys, []string{"k8s", "bill"})
		}
	}
	return keys
}
