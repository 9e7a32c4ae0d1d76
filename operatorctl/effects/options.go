// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"strings"

	"yunion.io/x/ocadm/operatorctl/component"
)

// fileOnly are the options that the identity service never stores: for them the file counts. All others are stored at the first start
// of a service, and from then on the stored value wins over the file (facts/services.md 3), so a changed file alone changes nothing.
var fileOnly = []string{
	"region", "address", "port", "port_v2", "admin_port", "auth_url", "enable_ssl", "sql_connection", "clickhouse", "auto_sync_table",
	"is_slave_node", "log_level", "temp_path", "session_endpoint_type", "bootstrap_admin_user_password", "reset_admin_user_password",
	"fernet_key_repository", "zone", "listen_interface", "ws_port", "scheduler_port",
}

// fileOnlyPrefixes are groups of such options.
var fileOnlyPrefixes = []string{"admin_", "ssl_", "lockman_", "etcd_", "executor_", "deploy_server_"}

// Stored tells whether the identity service keeps an option.
func Stored(option string) bool {
	for _, p := range fileOnlyPrefixes {
		if strings.HasPrefix(option, p) {
			return false
		}
	}
	for _, o := range fileOnly {
		if o == option {
			return false
		}
	}
	return true
}

// options brings a component's options into the identity service's store, before its pods roll. It is planned where people changed one
// and, so that a change can be taken back, ever after. It is not repeated by the audit: what people set in the console stays.
func (in Input) options(c component.Resolved) []Effect {
	key := "options/" + c.Name
	if _, was := in.Recorded[key]; !in.Chosen[c.Name] && !was || c.Account == nil && c.Name != identityName || len(c.Endpoints) == 0 {
		return nil
	}
	values := map[string]any{}
	for k, v := range in.Options[c.Name] {
		if Stored(k) {
			values[k] = v
		}
	}
	if len(values) == 0 {
		return nil
	}
	service := c.Endpoints[0].Service
	e := Effect{
		Key: key, Component: c.Name, Target: Identity, Stage: Before, Needs: []string{identityName}, Follows: []string{"endpoints/" + c.Name}, Once: true,
		Hash: in.hash("options", service, values),
		Do: func(ctx context.Context, cl Clients) (bool, error) {
			id, err := cl.Identity(ctx)
			if err != nil {
				return false, err
			}
			return id.EnsureServiceConfig(ctx, service, "default", values, true)
		},
	}
	if c.Name == identityName {
		e.Stage = After
	}
	return []Effect{e}
}
