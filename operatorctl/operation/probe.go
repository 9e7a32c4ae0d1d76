// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/secrets"
)

// Probe asks a component for what users want of it. Ask returns what it saw.
type Probe struct {
	Component string
	Ask       func(ctx context.Context, c *identity.Client, baseURL string) (string, error)
}

// Probes returns all probes, in the order in which they run.
func Probes() []Probe {
	return []Probe{
		{"keystone", func(ctx context.Context, c *identity.Client, _ string) (string, error) {
			return "issues a token", c.Login(ctx)
		}},
		{"region", listing(identity.Kind{Plural: "zones", Singular: "zone"})},
		{"glance", listing(identity.Kind{Plural: "images", Singular: "image"})},
		{"apigateway", func(ctx context.Context, c *identity.Client, baseURL string) (string, error) {
			return c.WebLogin(ctx, baseURL)
		}},
	}
}

func listing(k identity.Kind) func(context.Context, *identity.Client, string) (string, error) {
	return func(ctx context.Context, c *identity.Client, baseURL string) (string, error) {
		_, err := c.Records(baseURL).List(ctx, k, url.Values{"limit": {"1"}})
		return "lists " + k.Plural, err
	}
}

const (
	// probeTimeout bounds one request of a probe.
	probeTimeout = 15 * time.Second
	// probePatience is how long a ready component may fail its probe.
	probePatience = time.Minute
)

// prober probes the components of a cloud, as its administrator.
type prober struct {
	client      client.Reader
	connections effects.Options
	cloud       *v1alpha1.OnecloudCluster
}

// ask runs the probes of the named components that are available. It returns one line per probe.
func (p prober) ask(ctx context.Context, probes []Probe, names []string) (lines []string, err error) {
	var due []Probe
	for _, one := range probes {
		runs := slices.ContainsFunc(p.cloud.Status.Components, func(c v1alpha1.ComponentStatus) bool { return c.Name == one.Component && c.State == v1alpha1.Available })
		if runs && slices.Contains(names, one.Component) {
			due = append(due, one)
		}
	}
	if len(due) == 0 {
		return nil, nil
	}
	c, err := p.administrator(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	for _, one := range due {
		base, err := p.baseURL(ctx, one.Component)
		if err != nil {
			return nil, err
		}
		began := time.Now()
		seen, err := one.Ask(ctx, c, base)
		if err != nil {
			return nil, fmt.Errorf("%s does not answer correctly: %w", one.Component, err)
		}
		lines = append(lines, fmt.Sprintf("%s %s (%d ms)", one.Component, seen, time.Since(began).Milliseconds()))
	}
	return lines, nil
}

// caKey is the key of the CA in the Secret with the certificates.
const caKey = "ca.crt"

// administrator returns a session of the cloud's own administrator.
func (p prober) administrator(ctx context.Context) (*identity.Client, error) {
	var certs, credentials corev1.Secret
	for name, into := range map[string]*corev1.Secret{secrets.CertsSecret(p.cloud.Name): &certs, secrets.CredentialsSecret(p.cloud.Name): &credentials} {
		if err := p.client.Get(ctx, client.ObjectKey{Namespace: p.cloud.Namespace, Name: name}, into); err != nil {
			return nil, fmt.Errorf("reading Secret %s: %w", name, err)
		}
	}
	transport, err := effects.Transport(p.connections, certs.Data[caKey])
	if err != nil {
		return nil, err
	}
	base, err := p.baseURL(ctx, "keystone")
	if err != nil {
		return nil, err
	}
	return identity.New(identity.Options{AuthURL: base, Username: effects.AdminUser, Password: string(credentials.Data[component.BootstrapPassword]),
		Transport: transport, Timeout: probeTimeout})
}

// baseURL returns the URL of a component's API inside the cluster, from its Service.
func (p prober) baseURL(ctx context.Context, name string) (string, error) {
	c, _ := catalog.Get(name)
	if len(c.Endpoints) == 0 {
		return "", fmt.Errorf("component %q has no API", name)
	}
	end := c.Endpoints[0]
	if name == "keystone" {
		end.Port, end.Path = "admin", "/v3"
	}
	s := &corev1.Service{}
	if err := p.client.Get(ctx, client.ObjectKey{Namespace: p.cloud.Namespace, Name: p.cloud.Name + "-" + name}, s); err != nil {
		return "", fmt.Errorf("reading the Service of %s: %w", name, err)
	}
	for _, port := range s.Spec.Ports {
		if port.Name == cmp.Or(end.Port, port.Name) {
			return fmt.Sprintf("https://%s.%s.svc:%d%s", s.Name, s.Namespace, port.Port, end.Path), nil
		}
	}
	return "", fmt.Errorf("Service %s has no port %q", s.Name, end.Port)
}
