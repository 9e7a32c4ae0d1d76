// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"slices"
	"time"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/operatorctl/component"
)

// The records every identity service starts with, and those the operator's one policy adds (cloudpods, pkg/apis/identity/consts.go).
const (
	adminRole     = "admin"
	systemProject = "system"
	adminPolicy   = "sysadmin"
)

// replicaInterface is the catalogue's name for read-only replicas.
const replicaInterface = "slave"

// grantVisible is how often it is asked whether the identity service sees its new policy yet: it reads policies every
// rbac_policy_refresh_interval_seconds (cloudpods, pkg/cloudcommon/options/options.go; 30 by default), 1 in our configuration.
const grantVisible = 250 * time.Millisecond

// ensureAdminPolicy gives the administrator the right to everything. It is all that a fresh identity service allows him to do, and
// it takes effect some time later: until then this effect is Waiting.
func ensureAdminPolicy(ctx context.Context, cl Clients) (bool, error) {
	id, err := cl.Identity(ctx)
	if err != nil {
		return false, err
	}
	made, err := id.EnsurePolicy(ctx, identity.Policy{
		Name: adminPolicy, Scope: "system", Blob: map[string]any{"policy": map[string]any{"*": "allow"}},
	})
	if err != nil {
		return made, err
	}
	bound, err := id.EnsureRolePolicy(ctx, adminRole, systemProject, adminPolicy)
	if err != nil {
		return made || bound, err
	}
	if _, err := id.ListServices(ctx); identity.IsForbidden(err) {
		return made || bound, Waiting{For: "the identity service to see its policy", Retry: grantVisible}
	} else if err != nil {
		return made || bound, err
	}
	return made || bound, nil
}

// passwordTaken is the key of the effect that finds out whether the identity service has the administrator's password.
const passwordTaken = "identity/password"

func (in Input) passwordHash() string {
	return in.hash("password", in.Credentials[component.BootstrapPassword])
}

// AdminPasswordTaken tells whether the identity service has had the administrator's password once. Salt is that of Input.
func AdminPasswordTaken(salt string, credentials component.Credentials, recorded map[string]string) bool {
	return recorded[passwordTaken] == Input{Salt: salt, Credentials: credentials}.passwordHash()
}

// checkAdminPassword logs in. From then on the identity service keeps the password that it has, whatever people make of it, until another one
// is put among the credentials: then it takes that one when it starts.
func checkAdminPassword(ctx context.Context, cl Clients) (bool, error) {
	id, err := cl.Identity(ctx)
	if err != nil {
		return false, err
	}
	return false, id.Login(ctx)
}

func ensureRegion(ctx context.Context, cl Clients, region string) (bool, error) {
	id, snap, err := cl.identityAndCatalog(ctx)
	if err != nil {
		return false, err
	}
	return id.EnsureRegion(ctx, snap, region)
}

func (cl Clients) identityAndCatalog(ctx context.Context) (*identity.Client, *identity.Snapshot, error) {
	id, err := cl.Identity(ctx)
	if err != nil {
		return nil, nil, err
	}
	snap, err := cl.Catalog(ctx)
	if identity.IsForbidden(err) {
		return nil, nil, Waiting{For: "the identity service to see its policy", Retry: grantVisible}
	}
	return id, snap, err
}

func ensureAccount(ctx context.Context, cl Clients, user, password string) (bool, error) {
	id, snap, err := cl.identityAndCatalog(ctx)
	if err != nil {
		return false, err
	}
	_, changed, err := id.EnsureUser(ctx, snap, identity.Account{Name: user, Password: password, System: true})
	if err != nil {
		return changed, err
	}
	given, err := id.EnsureUserRole(ctx, snap, user, systemProject, adminRole)
	return changed || given, err
}

func ensureRecords(
	ctx context.Context, cl Clients, region string, records []Record, register []component.CatalogService, client identity.Certificate,
) (bool, error) {
	id, snap, err := cl.identityAndCatalog(ctx)
	if err != nil {
		return false, err
	}
	changed := false
	for _, s := range register {
		_, made, err := id.EnsureService(ctx, snap, s.Name, s.Type)
		changed = changed || made
		if err != nil {
			return changed, err
		}
	}
	for _, r := range records {
		service, made, err := id.EnsureService(ctx, snap, r.Service, r.Type)
		changed = changed || made
		if err != nil {
			return changed, err
		}
		certificate := ""
		if r.Certificate != "" && client.PEM != "" {
			id, stored, err := id.EnsureCertificate(ctx, r.Certificate, client)
			certificate, changed = id, changed || stored
			if err != nil {
				return changed, err
			}
		}
		for _, i := range sortedKeys(r.URLs) {
			set, err := id.EnsureEndpoint(ctx, snap, identity.Endpoint{
				ServiceID: service, RegionID: region, Interface: i, URL: r.URLs[i], Enabled: true, CertificateID: certificate,
			})
			changed = changed || set
			if err != nil {
				return changed, err
			}
		}
		if _, wanted := r.URLs[replicaInterface]; wanted {
			continue
		}
		off, err := id.DisableEndpoints(ctx, snap, service, region, replicaInterface)
		changed = changed || off
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

func disableRecords(ctx context.Context, cl Clients, region string, services map[string]bool) (bool, error) {
	id, snap, err := cl.identityAndCatalog(ctx)
	if err != nil {
		return false, err
	}
	changed := false
	for _, s := range sortedKeys(services) {
		off, err := id.DisableEndpoints(ctx, snap, s, region)
		changed = changed || off
		if err != nil {
			return changed, err
		}
	}
	return changed, nil
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
