// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/require"
)

// identity logs in as the administrator of the cloud, from outside the operator.
func (e *cloudTest) identity() (*identity.Client, *identity.Snapshot) {
	e.Helper()
	certs := &corev1.Secret{}
	e.Get(certs, cloud+"-"+v1alpha1.SecretCerts)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certs.Data["ca.crt"])
	var transport http.RoundTripper
	if e.Pods == nil {
		transport = e.Services.Transport()
	} else {
		byTLS := &http.Transport{DialContext: e.Pods.Dial, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
		e.Cleanup(byTLS.CloseIdleConnections)
		transport = byTLS
	}
	c, err := identity.New(identity.Options{
		AuthURL: "https://default-keystone.onecloud.svc:30357/v3", Username: "sysadmin",
		Password: string(e.Credentials()[component.BootstrapPassword]), Transport: transport,
	})
	require.NoError(e, err)
	snapshot, err := c.Snapshot(e.Context())
	require.NoError(e, err)
	return c, snapshot
}

// endpoints returns the enabled endpoints of a service, as interface=URL.
func (e *cloudTest) endpoints(service string) []string {
	e.Helper()
	_, snapshot := e.identity()
	var out []string
	for _, e := range snapshot.Endpoints(service) {
		if e.Enabled {
			out = append(out, e.Interface+"="+e.URL)
		}
	}
	slices.Sort(out)
	return out
}

// catalogue checks that services, endpoints and accounts are registered, that the zone exists, and that the console's settings are stored.
func (e *cloudTest) catalogue() {
	both := func(port int, path, component string) []string {
		return []string{fmt.Sprintf("internal=https://default-%s:%d%s", component, port, path), fmt.Sprintf("public=https://127.0.0.1:%d%s", port, path)}
	}
	for service, want := range map[string][]string{
		"keystone": append([]string{"admin=https://127.0.0.1:30357/v3"}, both(30500, "/v3", "keystone")...),
		"region2":  both(30888, "", "region"), "scheduler": both(30887, "", "scheduler"), "glance": both(30292, "/v1", "glance"),
		"log": both(30999, "", "logger"), "yunionconf": both(30889, "", "yunionconf"), "yunionapi": both(30300, "", "apigateway"),
		"websocket": both(30443, "", "apigateway"),
	} {
		if have := e.endpoints(service); !slices.Equal(have, want) {
			e.Errorf("endpoints of %s:\n%q\nwant\n%q", service, have, want)
		}
	}
	c, snapshot := e.identity()
	for _, service := range []string{"offlinecloudmeta", "external-service", "common", "yunionagent", "host"} {
		if _, there := snapshot.Service(service); !there {
			e.Errorf("no service %s", service)
		}
	}
	for _, user := range []string{"regionadmin", "glance", "loggeradmin", "yunionconf", "yunionapi", "hostadmin"} {
		if !snapshot.HasRole(user, "system", "admin") {
			e.Errorf("%s is no administrator of the system project", user)
		}
	}
	if !snapshot.HasRegion("region0") {
		e.Error("no region")
	}
	if _, made, err := c.Records("https://default-region.onecloud.svc:30888").Ensure(e.Context(), identity.Kind{Plural: "zones", Singular: "zone"}, e.Cloud().Spec.Zone, nil); err != nil || made {
		e.Errorf("the zone was not there: %v, %v", made, err)
	}
	var stored map[string]any
	if _, err := c.Parameters("https://default-yunionconf.onecloud.svc:30889").Ensure(e.Context(), "global-settings", "yunionagent",
		func(old map[string]any) map[string]any { stored = old; return old }); err != nil {
		e.Fatal(err)
	}
	if stored["productVersion"] != "FullStack" || stored["setupKeys"] == nil {
		e.Errorf("the console's settings: %v", stored)
	}
}

// databases returns the databases of the server.
func (e *cloudTest) databases() []string {
	e.Helper()
	all, err := e.Admin(e.DB).Databases(e.Context())
	require.NoError(e, err)
	return all
}

// logsIn reports whether an account still has its password.
func (e *cloudTest) logsIn(ctx context.Context, user, password string) bool {
	admin, err := mysql.Open(ctx, mysql.Config{Host: e.DB.Host, Port: e.DB.Port, User: user, Password: password})
	if err == nil {
		_ = admin.Close()
	}
	return err == nil
}
