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
	// Depending on the version, the response is wrapped in "service" or not.
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

// EnsureServiceConfig stores options of a service (id or name). It does not change options that are already stored, unless force is true.
func (c *Client) EnsureServiceConfig(ctx context.Context, service, section string, values map[string]any, force bool) (changed bool, err error) {
	stored, unlock, err := c.lockServiceConfig(ctx, service)
	if err != nil {
		return false, err
	}
	defer unlock()
	missing := map[string]any{}
	for k, v := range values {
		if old, there := stored[section][k]; !there || force && !sameJSON(old, v) {
			missing[k] = v
		}
	}
	return c.changeServiceConfig(ctx, service, section, "update", missing)
}

// RemoveServiceConfig removes stored options of a service (id or name). From its next start the service uses its file, or its own defaults.
func (c *Client) RemoveServiceConfig(ctx context.Context, service, section string, names ...string) (changed bool, err error) {
	stored, unlock, err := c.lockServiceConfig(ctx, service)
	if err != nil {
		return false, err
	}
	defer unlock()
	surplus := map[string]any{}
	for _, name := range names {
		if old, there := stored[section][name]; there {
			surplus[name] = old
		}
	}
	return c.changeServiceConfig(ctx, service, section, "remove", surplus)
}

// lockServiceConfig reads the stored options, and blocks other changes by this client until unlock: the identity service changes a record in several
// steps, so that one of two concurrent changes could be lost.
func (c *Client) lockServiceConfig(ctx context.Context, service string) (_ ServiceConfig, unlock func(), err error) {
	select {
	case c.configuring <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, fmt.Errorf("configuring service %q: %w", service, ctx.Err())
	}
	unlock = func() { <-c.configuring }
	stored, err := c.GetServiceConfig(ctx, service)
	if err != nil {
		unlock()
	}
	return stored, unlock, err
}

// changeServiceConfig sends only the changes, so as not to overwrite options that others store.
func (c *Client) changeServiceConfig(ctx context.Context, service, section, action string, values map[string]any) (changed bool, err error) {
	if len(values) == 0 {
		return false, nil
	}
	_, err = write[map[string]any](ctx, c, http.MethodPost, fmt.Sprintf("configuring service %q", service),
		join(c.o.AuthURL, "services", service, "config"), "service",
		map[string]any{"action": action, "config": ServiceConfig{section: values}})
	return err == nil, err
}
