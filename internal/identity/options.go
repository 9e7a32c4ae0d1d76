// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"maps"
	"net/http"
)

// ServiceConfig is a service's stored options by section; ordinary ones are in "default". What is stored wins over the service's file.
type ServiceConfig map[string]map[string]any

// GetServiceConfig reads the stored options of a service (id or name).
func (c *Client) GetServiceConfig(ctx context.Context, service string) (ServiceConfig, error) {
	// The answer is wrapped in "service" or not, depending on the version.
	var answer struct {
		Config  ServiceConfig `json:"config"`
		Service struct {
			Config ServiceConfig `json:"config"`
		} `json:"service"`
	}
	r := request{op: fmt.Sprintf("reading the configuration of service %q", service), method: http.MethodGet,
		url: join(c.o.AuthURL, "services", service, "config")}
	if err := c.do(ctx, r, &answer); err != nil {
		return nil, err
	}
	if answer.Config != nil {
		return answer.Config, nil
	}
	return answer.Service.Config, nil
}

// EnsureServiceConfig stores options of a service (id or name). Those that are stored already are left to whoever set them, unless
// force is given.
func (c *Client) EnsureServiceConfig(ctx context.Context, service, section string, values map[string]any, force bool) (changed bool, err error) {
	stored, err := c.GetServiceConfig(ctx, service)
	if err != nil {
		return false, err
	}
	merged := map[string]any{}
	maps.Copy(merged, stored[section])
	for k, v := range values {
		old, there := merged[k]
		if there && (!force || sameJSON(old, v)) {
			continue
		}
		merged[k] = v
		changed = true
	}
	if !changed {
		return false, nil
	}
	// The whole section is sent: a service that replaces instead of updating keeps the rest of it.
	_, err = write[map[string]any](ctx, c, http.MethodPost, fmt.Sprintf("configuring service %q", service),
		join(c.o.AuthURL, "services", service, "config"), "service",
		map[string]any{"action": "update", "config": ServiceConfig{section: merged}})
	return err == nil, err
}
