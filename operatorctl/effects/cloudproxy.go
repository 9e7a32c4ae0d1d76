// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"

	"yunion.io/x/ocadm/internal/identity"
)

// proxyAgent makes the record of the proxy agent that cloudproxy itself plays (option proxy_agent_id).
func proxyAgent(ctx context.Context, cl Clients, _ Input) (bool, error) {
	id, err := cl.Identity(ctx)
	if err != nil {
		return false, err
	}
	_, made, err := id.Records(cl.URL("cloudproxy")).Ensure(ctx, identity.Kind{Plural: "proxy_agents", Singular: "proxy_agent"}, "proxyagent0", nil)
	return made, err
}
