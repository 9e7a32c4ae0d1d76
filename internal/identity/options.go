// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"fmt"
	"net/http"
)

// ServiceConfig holds a service's stored options by section; ordinary ones are in "default". Stored options override the service's file.
type ServiceConfig map[string]map[string]any

// GetServiceConfig reads the stored options of a service (id or name).
func (c *Client) GetServiceConfig(ctx context.Context, service string) (ServiceConfig, error) {
	var answer struct {
		Service struct {
			Config ServiceConfig `json:"config"`
		} `json:"service"`
	}
	r := request{op: fmt.Sprintf("reading the configuration of service %q", service), method: http.MethodGet,
		url: join(c.o.AuthURL, "services", service, "config")}
	err := c.do(ctx, r, &answer)
	return answer.Service.Config, err
}

// EnsureServiceConfig stores ordinary options of a service (id or name).
func (c *Client) EnsureServiceConfig(ctx context.Context, service string, values map[string]any) (changed bool, err error) {
	return c.changeServiceConfig(ctx, service, "update", func(stored map[string]any) map[string]any {
		missing := map[string]any{}
		for k, v := range values {
			if old, there := stored[k]; !there || !sameJSON(old, v) {
				missing[k] = v
			}
		}
		return missing
	})
}

// RemoveServiceConfig removes stored ordinary options of a service (id or name). From its next start the service uses its file, or its own defaults.
func (c *Client) RemoveServiceConfig(ctx context.Context, service string, names ...string) (changed bool, err error) {
	return c.changeServiceConfig(ctx, service, "remove", func(stored map[string]any) map[string]any {
		surplus := map[string]any{}
		for _, name := range names {
			if old, there := stored[name]; there {
				surplus[name] = old
			}
		}
		return surplus
	})
}

// changeServiceConfig sends only the changes to the stored options, so as not to overwrite options that others store. Meanwhile it blocks other changes by
// this client: the identity service changes a record in several steps, so that one of two concurrent changes could be lost.
func (c *Client) changeServiceConfig(ctx context.Context, service, action string, changes func(stored map[string]any) map[string]any) (changed bool, err error) {
	select {
	case c.configuring <- struct{}{}:
		defer func() { <-c.configuring }()
	case <-ctx.Done():
		return false, fmt.Errorf("configuring service %q: %w", service, ctx.Err())
	}
	stored, err := c.GetServiceConfig(ctx, service)
	if err != nil {
		return false, err
	}
	values := changes(stored["default"])
	if len(values) == 0 {
		return false, nil
	}
	_, err = write[map[string]any](ctx, c, http.MethodPost, fmt.Sprintf("configuring service %q", service),
		join(c.o.AuthURL, "services", service, "config"), "service",
		map[string]any{"action": action, "config": ServiceConfig{"default": values}})
	return err == nil, err
}
