// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"fmt"
	"slices"
	"time"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/operatorctl/component"
)

// task is a bootstrap task in a service's own API. It runs once per version, and again when the audit is due.
type task struct {
	version int
	// once tasks are not repeated by the audit.
	once bool
	// aside tasks hold nobody up; those that tell make their own events; within is how long one may take, where that is longer than usual.
	aside  bool
	tells  bool
	within time.Duration
	// asks are the components it talks to, where that is not its own.
	asks []string
	// needs are the components that must be Available first, where that is not the usual.
	needs func(in Input) []string
	// wants is all that its outcome depends on, where that is not the usual.
	wants func(in Input) map[string]any
	do    func(ctx context.Context, cl Clients, in Input) (changed bool, err error)
}

// tasks by the name that a component's Setup gives.
var tasks = map[string]task{
	"common-config":       {version: 1, do: commonConfig},
	"console-login":       {version: 1, once: true, do: consoleLogin},
	"standard-policies":   {version: 1, once: true, aside: true, within: time.Minute, do: standardPolicies},
	"region-topology":     {version: 1, do: regionTopology},
	"yunionconf-settings": {version: 1, do: consoleSettings},
	"cloudproxy-agent":    {version: 1, once: true, do: proxyAgent},
	"monitor-alerts":      {version: 1, once: true, do: systemAlerts},
	"devtool-templates":   {version: 1, once: true, do: devtoolTemplates},
	"devtool-agent":       {version: 1, once: true, asks: []string{"devtool", "ansibleserver"}, do: devtoolAgent},
	"etcd-upkeep":         {version: 1, aside: true, tells: true, within: 3 * time.Minute, needs: etcdNeeds, wants: etcdWanted, do: keepEtcd},
	"minio":               {version: 1, asks: []string{"kubeserver"}, wants: minioWanted, do: installMinio},
	"monitor-stack":       {version: 1, asks: []string{"kubeserver"}, wants: monitorStackWanted, do: installMonitorStack},
}

// Tasks are the names that Setup may give.
func Tasks() []string { return sortedKeys(tasks) }

// commonConfig sets the options all services share.
func commonConfig(ctx context.Context, cl Clients, in Input) (bool, error) {
	c := in.Cluster
	id, err := cl.Identity(ctx)
	if err != nil {
		return false, err
	}
	if c.LoadBalancer == "" {
		return false, nil
	}
	return id.EnsureServiceConfig(ctx, "common", "default", map[string]any{"api_server": "https://" + c.PublicHost("web")}, true)
}

// consoleLogin lets the administrator log in at the console (docs/decisions/0003-console-login.md).
func consoleLogin(ctx context.Context, cl Clients, _ Input) (bool, error) {
	id, err := cl.Identity(ctx)
	if err != nil {
		return false, err
	}
	return id.AllowWebConsole(ctx, adminUser)
}

// regionTopology makes the first zone and its layer-2 domain, and the scheduler's two standard tags.
func regionTopology(ctx context.Context, cl Clients, in Input) (bool, error) {
	c := in.Cluster
	id, snap, err := cl.identityAndCatalog(ctx)
	if err != nil {
		return false, err
	}
	changed, err := id.EnsureRegion(ctx, snap, c.Region+"-"+c.Zone)
	if err != nil {
		return changed, err
	}
	region := id.Compute(cl.URL("region"))
	zones := append([]string{c.Zone}, c.Spec.CustomZones...)
	for _, zone := range zones {
		_, made, err := region.EnsureZone(ctx, zone)
		changed = changed || made
		if err != nil {
			return changed, err
		}
	}
	_, wired, err := region.EnsureWire(ctx, c.Zone, identity.Wire{Name: "bcast0", Bandwidth: 1000, VPC: "default"})
	changed = changed || wired
	if err != nil {
		return changed, err
	}
	tag, tagged, err := region.EnsureSchedtag(ctx, identity.Schedtag{
		Name: "same_project", DefaultStrategy: "prefer", Description: "machines of one project near each other",
	})
	changed = changed || tagged
	if err != nil {
		return changed, err
	}
	_, ruled, err := region.EnsureDynamicSchedtag(ctx, identity.DynamicSchedtag{
		Name: "same_cloudprovider_project", Schedtag: tag, Condition: "host.cloudprovider.tenant_id == server.owner_tenant_id", Enabled: true,
	})
	return changed || ruled, err
}

// consoleSettings switches on in the console what this product has, and leaves off what people switched off.
func consoleSettings(ctx context.Context, cl Clients, in Input) (bool, error) {
	c := in.Cluster
	id, snap, err := cl.identityAndCatalog(ctx)
	if err != nil {
		return false, err
	}
	_, changed, err := id.EnsureService(ctx, snap, "yunionagent", "yunionagent")
	if err != nil {
		return changed, err
	}
	keys := SetupKeys(c.Product, c.Edition)
	set, err := id.Parameters(cl.URL("yunionconf")).Ensure(ctx, "global-settings", "yunionagent", func(old map[string]any) map[string]any {
		return mergeSettings(old, keys, c.Product)
	})
	if err != nil {
		return changed || set, fmt.Errorf("storing the console's settings: %w", err)
	}
	return changed || set, nil
}

// mergeSettings keeps what people chose: a key that was known and is not in their list was switched off by them.
func mergeSettings(old map[string]any, keys []string, product component.Product) map[string]any {
	out := map[string]any{}
	for k, v := range old {
		out[k] = v
	}
	known := stringsOf(old["knownSetupKeys"])
	chosen := stringsOf(old["setupKeys"])
	if old == nil {
		chosen = keys
	} else {
		for _, k := range keys {
			if !slices.Contains(known, k) && !slices.Contains(chosen, k) && len(known) > 0 {
				chosen = append(chosen, k)
			}
		}
	}
	out["setupKeys"], out["knownSetupKeys"] = anyOf(chosen), anyOf(keys)
	out["productVersion"] = string(product)
	out["version"] = "3.0"
	if product == component.CMP {
		out["setupOneStackInitialized"] = true
	}
	return out
}

func stringsOf(v any) []string {
	list, _ := v.([]any)
	var out []string
	for _, x := range list {
		if s, ok := x.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

func anyOf(in []string) []any {
	out := make([]any, len(in))
	for i, s := range in {
		out[i] = s
	}
	return out
}

// SetupKeys are the parts of the console a product and an edition have, as in the earlier operator.
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
