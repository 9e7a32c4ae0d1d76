// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"maps"
	"slices"
	"time"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
)

// The records with which every identity service starts, and those that the operator's one policy adds (cloudpods, pkg/apis/identity/consts.go).
const (
	adminRole     = "admin"
	systemProject = "system"
	adminPolicy   = "sysadmin"
)

// replicaInterface is the catalog's name for read-only replicas.
const replicaInterface = "slave"

// grantVisible is the interval for checking whether the identity service has read its new policy. It reads policies every
// rbac_policy_refresh_interval_seconds (cloudpods, pkg/cloudcommon/options/options.go; default 30, 1 in our configuration).
const grantVisible = 250 * time.Millisecond

// session is the context of an effect that runs as the administrator.
type session struct {
	Clients
	id *identity.Client
	// catalog is only set for effects created by withCatalog.
	catalog *identity.Snapshot
}

type work func(ctx context.Context, s session, in Input) (changed bool, err error)

// asAdmin logs in to the identity service; all services accept its tokens.
func asAdmin(do work) doing {
	return func(ctx context.Context, cl Clients, in Input) (bool, error) {
		id, err := cl.Identity(ctx)
		if err != nil {
			return false, err
		}
		return do(ctx, session{Clients: cl, id: id}, in)
	}
}

// withCatalog also reads the catalog, which needs a permission.
func withCatalog(do work) doing {
	return asAdmin(func(ctx context.Context, s session, in Input) (_ bool, err error) {
		if s.catalog, err = s.Catalog(ctx); identity.IsForbidden(err) {
			err = Waiting{For: "the identity service to see its policy", Retry: grantVisible}
		}
		if err != nil {
			return false, err
		}
		return do(ctx, s, in)
	})
}

// write is a request that may change something.
type write func() (changed bool, err error)

// each performs the writes in turn until one fails. changed is true if any of them changed something.
func each(writes ...write) (changed bool, err error) {
	for _, write := range writes {
		did, err := write()
		if changed = changed || did; err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// ensured drops the ID of the record that a write returns.
func ensured(_ string, changed bool, err error) (bool, error) { return changed, err }

// ensureAdminPolicy gives the administrator permission for everything. A fresh identity service lets the administrator do nothing else. The policy takes
// effect some time later: until then this effect is Waiting.
func ensureAdminPolicy(ctx context.Context, s session, _ Input) (bool, error) {
	return each(
		func() (bool, error) {
			return s.id.EnsurePolicy(ctx, identity.Policy{
				Name: adminPolicy, Scope: "system", Blob: map[string]any{"policy": map[string]any{"*": "allow"}},
			})
		},
		func() (bool, error) { return s.id.EnsureRolePolicy(ctx, adminRole, systemProject, adminPolicy) },
		func() (bool, error) {
			_, err := s.id.ListServices(ctx)
			if identity.IsForbidden(err) {
				err = Waiting{For: "the identity service to see its policy", Retry: grantVisible}
			}
			return false, err
		},
	)
}

// passwordTaken is the key of the effect that checks whether the identity service has the administrator's password.
const passwordTaken = "identity/password"

func (in Input) passwordHash() string {
	return in.hash("password", in.Credentials[component.BootstrapPassword])
}

// AdminPasswordTaken reports whether the identity service has ever had this administrator's password. salt is Input.Salt.
func AdminPasswordTaken(salt string, credentials component.Credentials, recorded map[string]string) bool {
	return recorded[passwordTaken] == Input{Salt: salt, Credentials: credentials}.passwordHash()
}

// checkAdminPassword logs in. From then on the identity service keeps its password, even if users change it, until the credentials get another one: it
// adopts that when it starts.
func checkAdminPassword(ctx context.Context, s session, _ Input) (bool, error) {
	return false, s.id.Login(ctx)
}

func ensureRegion(ctx context.Context, s session, in Input) (bool, error) {
	return s.id.EnsureRegion(ctx, s.catalog, in.Cluster.Region)
}

func ensureAccount(user, password string) work {
	return func(ctx context.Context, s session, _ Input) (bool, error) {
		return each(
			func() (bool, error) {
				return ensured(s.id.EnsureUser(ctx, s.catalog, user, password))
			},
			func() (bool, error) { return s.id.EnsureUserRole(ctx, s.catalog, user, systemProject, adminRole) },
		)
	}
}

// ensureRecords creates services and their endpoints.
func ensureRecords(records []Record, register []component.CatalogService) work {
	return func(ctx context.Context, s session, in Input) (bool, error) {
		var writes []write
		for _, r := range register {
			writes = append(writes, func() (bool, error) { return ensured(s.id.EnsureService(ctx, s.catalog, r.Name, r.Type)) })
		}
		for _, r := range records {
			writes = append(writes, func() (bool, error) { return s.ensureRecord(ctx, r, in) })
		}
		return each(writes...)
	}
}

func (s session) ensureRecord(ctx context.Context, r Record, in Input) (bool, error) {
	service, changed, err := s.id.EnsureService(ctx, s.catalog, r.Service, r.Type)
	if err != nil {
		return changed, err
	}
	certificate := ""
	if r.Certificate != "" && in.ClientCertificate.PEM != "" {
		var stored bool
		if certificate, stored, err = s.id.EnsureCertificate(ctx, s.catalog, r.Certificate, in.ClientCertificate); err != nil {
			return changed || stored, err
		}
		changed = changed || stored
	}
	var writes []write
	for _, i := range slices.Sorted(maps.Keys(r.URLs)) {
		writes = append(writes, func() (bool, error) {
			return s.id.EnsureEndpoint(ctx, s.catalog, identity.Endpoint{
				ServiceID: service, RegionID: in.Cluster.Region, Interface: i, URL: r.URLs[i], Enabled: true, CertificateID: certificate,
			})
		})
	}
	if r.URLs[replicaInterface] == "" {
		writes = append(writes, func() (bool, error) {
			return s.id.DisableEndpoints(ctx, s.catalog, service, in.Cluster.Region, replicaInterface)
		})
	}
	set, err := each(writes...)
	return changed || set, err
}

func disableRecords(services []string) work {
	return func(ctx context.Context, s session, in Input) (bool, error) {
		return each(lists.Map(services, func(service string) write {
			return func() (bool, error) { return s.id.DisableEndpoints(ctx, s.catalog, service, in.Cluster.Region) }
		})...)
	}
}
