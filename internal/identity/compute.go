// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"strings"
)

// Compute is the region service, for the few records it needs after its first start.
type Compute struct {
	c    *Client
	base string
}

// Compute speaks to the region service at the URL, with this client's login.
func (c *Client) Compute(baseURL string) Compute { return Compute{c, strings.TrimSuffix(baseURL, "/")} }

// Wire is a layer 2 network.
type Wire struct {
	Name string
	// Bandwidth in Mbit/s.
	Bandwidth int
	VPC       string
}

// Schedtag is a label by which the scheduler chooses hosts.
type Schedtag struct {
	Name            string
	DefaultStrategy string
	Description     string
}

// DynamicSchedtag attaches a schedtag by a condition.
type DynamicSchedtag struct {
	Name string
	// Schedtag is an id or a name.
	Schedtag  string
	Condition string
	Enabled   bool
}

// EnsureZone creates the zone where it is missing.
func (m Compute) EnsureZone(ctx context.Context, name string) (id string, changed bool, err error) {
	return m.ensure(ctx, "zones", "zone", name, "zones", map[string]any{"name": name})
}

// EnsureWire creates the wire in the zone where it is missing.
func (m Compute) EnsureWire(ctx context.Context, zone string, w Wire) (id string, changed bool, err error) {
	return m.ensure(ctx, "wires", "wire", w.Name, join("zones", zone)+"/wires",
		map[string]any{"name": w.Name, "bandwidth": w.Bandwidth, "vpc": w.VPC})
}

// EnsureSchedtag creates the schedtag where it is missing; what people changed about it stays.
func (m Compute) EnsureSchedtag(ctx context.Context, t Schedtag) (id string, changed bool, err error) {
	return m.ensure(ctx, "schedtags", "schedtag", t.Name, "schedtags",
		map[string]any{"name": t.Name, "default_strategy": t.DefaultStrategy, "description": t.Description})
}

// EnsureDynamicSchedtag creates the rule where it is missing; what people changed about it stays.
func (m Compute) EnsureDynamicSchedtag(ctx context.Context, t DynamicSchedtag) (id string, changed bool, err error) {
	return m.ensure(ctx, "dynamicschedtags", "dynamicschedtag", t.Name, "dynamicschedtags",
		map[string]any{"name": t.Name, "schedtag": t.Schedtag, "condition": t.Condition, "enabled": t.Enabled})
}

func (m Compute) ensure(ctx context.Context, plural, singular, name, path string, fields map[string]any) (id string, changed bool, err error) {
	return m.c.Records(m.base).ensureAt(ctx, Kind{Plural: plural, Singular: singular}, name, path, fields)
}
