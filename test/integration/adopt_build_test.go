// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

// resource creates the OnecloudCluster: a user names the database and disables components, and the earlier operator fills in the rest.
func (a *adoption) resource() {
	yes, two := true, int32(2)
	cr := a.Minimal()
	cr.Labels = map[string]string{v1alpha1.LabelInstance: earlierInstance}
	cr.Spec.Logger.Replicas = &two
	for _, c := range catalog.All() {
		if b := cr.Spec.Component(c.SpecKey); b != nil && !strings.Contains(c.SpecKey, ".") && !slices.Contains(running, c.SpecKey) {
			b.Disable = &yes
		}
	}
	require.NoError(a, a.Client.Create(a.Context(), cr, client.FieldOwner("kubectl-create")))
	fillAsEarlier(cr)
	require.NoError(a, a.Client.Update(a.Context(), cr, client.FieldOwner(earlierManager)))
}

// fillAsEarlier sets the defaults of the earlier operator: images, one replica, limits of a third of a node, tolerations, ports.
func fillAsEarlier(cr *v1alpha1.OnecloudCluster) {
	one, no := int32(1), false
	quantity := func(s string) *resource.Quantity { q := resource.MustParse(s); return &q }
	cr.Spec.ImageRepository, cr.Spec.Zone, cr.Spec.ProductVersion = earlierRegistry, "zone0", "FullStack"
	cr.Spec.Keystone.BootstrapPassword = adminPassword
	cr.Spec.Etcd.Version, cr.Spec.Etcd.Size, cr.Spec.Etcd.CreatedSecrets = "3.5.12", 1, &no
	cr.Spec.Telegraf.InitContainerImage = earlierRegistry + "/telegraf-init:release-1.36-1"
	affinity, err := yaml.Marshal(earlierAffinity())
	if err == nil {
		affinity, err = yaml.YAMLToJSON(affinity)
	}
	if err != nil {
		panic(err)
	}
	for _, c := range catalog.All() {
		b := cr.Spec.Component(c.SpecKey)
		if b == nil || strings.Contains(c.SpecKey, ".") || c.SpecKey == "etcd" {
			continue
		}
		tag, name := earlierVersion, c.Name
		if c.Image.Tag != "" {
			tag = c.Image.Tag
		}
		if c.Image.Name != "" {
			name = c.Image.Name
		}
		b.Image, b.ImagePullPolicy = earlierRegistry+"/"+name+":"+tag, corev1.PullIfNotPresent
		b.Limits = &v1alpha1.ResourceList{CPU: quantity("1333m"), Memory: quantity("1024Mi")}
		b.Requests = &v1alpha1.ResourceList{CPU: quantity("10m"), Memory: quantity("10Mi")}
		b.Tolerations = earlierTolerations()
		if c.Workload.Kind == "" && c.Storage == nil {
			b.Affinity = &runtime.RawExtension{Raw: affinity}
		}
		if c.Storage != nil {
			b.Requests.Storage, b.StorageClassName = c.Storage.Size, "local-path"
		}
		if b.Replicas == nil {
			b.Replicas = &one
		}
	}
	cr.Spec.RegionServer.Service.NodePort, cr.Spec.Glance.Service.NodePort, cr.Spec.Logger.Service.NodePort = 30888, 30292, 30999
	cr.Spec.Keystone.PublicService.NodePort, cr.Spec.Keystone.AdminService.NodePort = 30500, 30357
}

// accounts creates the database accounts as the earlier operator did.
func (a *adoption) accounts() {
	var statements []string
	for _, s := range append(earlierServices(), earlierService{database: "keystone", user: "keystone", dbPassword: "keystoneDbSecret25"}) {
		statements = append(statements, "CREATE DATABASE `"+s.database+"` CHARACTER SET utf8mb4")
		for _, host := range mysql.DefaultHosts() {
			account := fmt.Sprintf("'%s'@'%s'", s.user, host)
			statements = append(statements, "CREATE USER "+account+" IDENTIFIED BY '"+s.dbPassword+"'",
				"GRANT ALL PRIVILEGES ON `"+strings.ReplaceAll(s.database, "_", `\_`)+"`.* TO "+account)
		}
	}
	if _, err := a.DB.Execute(a.Context(), statements...); err != nil {
		a.Fatal(err)
	}
}

// admin logs in as sysadmin without verifying certificates, as all clients did.
func (a *adoption) admin() *identity.Client {
	transport := &http.Transport{DialContext: a.Pods.Dial, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the earlier cloud's certificate has no name of a Service
	a.Cleanup(transport.CloseIdleConnections)
	c, err := identity.New(identity.Options{AuthURL: "https://default-keystone.onecloud.svc:30357/v3", Username: "sysadmin", Password: adminPassword, Transport: transport})
	require.NoError(a, err)
	return c
}

// identities creates the accounts of the services in the identity service.
func (a *adoption) identities() {
	ctx, cancel := context.WithTimeout(a.Context(), env.Patience)
	defer cancel()
	c := a.admin()
	if _, err := c.EnsurePolicy(ctx, identity.Policy{Name: "sysadmin", Scope: "system", Description: "everything", Blob: map[string]any{"policy": map[string]any{"*": "allow"}}}); err != nil {
		a.Fatal(err)
	}
	if _, err := c.EnsureRolePolicy(ctx, "admin", "system", "sysadmin"); err != nil {
		a.Fatal(err)
	}
	snapshot, err := c.Snapshot(ctx)
	for ; identity.IsForbidden(err); snapshot, err = c.Snapshot(ctx) {
		time.Sleep(200 * time.Millisecond) // it reloads its policies every two seconds, and nothing shows when
	}
	require.NoError(a, err)
	for user, password := range earlierAccounts() {
		if _, _, err := c.EnsureUser(ctx, snapshot, user, password); err != nil {
			a.Fatal(err)
		}
		if _, err := c.EnsureUserRole(ctx, snapshot, user, "system", "admin"); err != nil {
			a.Fatal(err)
		}
	}
}

func earlierAccounts() map[string]string {
	all := map[string]string{"hostadmin": "hostAcctSecret2"}
	for _, s := range earlierServices() {
		all[s.account] = s.password
	}
	return all
}
