// SPDX-License-Identifier: Apache-2.0

package keystone

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log"
	"maps"

	"yunion.io/x/ocadm/test/fakecloud/rest"
	"yunion.io/x/ocadm/test/fakecloud/servicespec"
)

const (
	adminUser     = "sysadmin"
	adminRole     = "admin"
	systemProject = "system"
	defaultDomain = "default"
)

// bootstrap creates the records of a fresh keystone: the domain, the project system, the role admin and the user sysadmin. Unique keys of the tables
// resolve races between replicas.
func bootstrap(ctx context.Context, s *rest.Store, options servicespec.Values) error {
	password := options.Text("bootstrap_admin_user_password", "sysadmin")
	seeds := []struct {
		table  string
		record rest.Record
	}{
		{"domains", rest.Record{"id": defaultDomain, "name": "Default", "enabled": true}},
		{"projects", rest.Record{"name": systemProject, "domain_id": defaultDomain, "enabled": true}},
		{"roles", rest.Record{"name": adminRole, "domain_id": defaultDomain}},
		{"users", rest.Record{"name": adminUser, "domain_id": defaultDomain, "enabled": true, "is_system_account": true,
			"allow_web_console": false, "password": hashPassword(password)}},
	}
	for _, seed := range seeds {
		if _, err := s.Insert(ctx, seed.table, seed.record, seed.record.Text("name")); err != nil && !errors.Is(err, rest.ErrDuplicate) {
			return err
		}
	}
	if err := assignAdmin(ctx, s); err != nil {
		return err
	}
	if !options.Flag("reset_admin_user_password") {
		return nil
	}
	admin, err := s.Get(ctx, "users", adminUser)
	if err != nil || checkPassword(admin.Text("password"), password) {
		return err
	}
	log.Printf("reset password of %s", adminUser)
	_, err = s.Update(ctx, "users", admin, rest.Record{"password": hashPassword(password)})
	return err
}

func assignAdmin(ctx context.Context, s *rest.Store) error {
	ids, err := idsOf(ctx, s, adminUser, systemProject, adminRole)
	if err != nil {
		return err
	}
	return assignRole(ctx, s, ids[0], ids[1], ids[2])
}

// idsOf returns the ids of a user, a project and a role, given by id or name.
func idsOf(ctx context.Context, s *rest.Store, user, project, role string) (ids [3]string, err error) {
	for i, object := range [3][2]string{{"users", user}, {"projects", project}, {"roles", role}} {
		r, err := s.Get(ctx, object[0], object[1])
		if err != nil {
			return ids, err
		}
		ids[i] = r.Text("id")
	}
	return ids, nil
}

func assignRole(ctx context.Context, s *rest.Store, user, project, role string) error {
	r := rest.Record{"user_id": user, "project_id": project, "role_id": role}
	_, err := s.Insert(ctx, "assignments", r, user+"/"+project+"/"+role)
	if errors.Is(err, rest.ErrDuplicate) {
		return nil
	}
	return err
}

// MergeOptions merges keystone's own stored configuration over its file and stores the result, as every service does.
func MergeOptions(ctx context.Context, s *rest.Store, file servicespec.Values, p servicespec.Spec) (servicespec.Values, error) {
	own, ownID, err := storedOptions(ctx, s, p.StoredIn)
	if err != nil {
		return nil, err
	}
	common, _, err := storedOptions(ctx, s, "common")
	if err != nil {
		return nil, err
	}
	merged, changed := servicespec.Merge(file, p.Schema(), own, common)
	servicespec.LogChanges(changed)
	if ownID == "" {
		return merged, nil
	}
	upload, _ := servicespec.Upload(merged)
	return merged, saveOptions(ctx, s, ownID, upload)
}

func storedOptions(ctx context.Context, s *rest.Store, serviceType string) (servicespec.StoredOptions, string, error) {
	services, err := s.List(ctx, "services")
	if err != nil {
		return nil, "", err
	}
	for _, service := range services {
		if service.Text("type") == serviceType {
			options, err := loadOptions(ctx, s, service.Text("id"))
			return options, service.Text("id"), err
		}
	}
	return nil, "", nil
}

func loadOptions(ctx context.Context, s *rest.Store, service string) (servicespec.StoredOptions, error) {
	r, err := s.Get(ctx, "service_configs", service)
	if errors.Is(err, rest.ErrNotFound) {
		return servicespec.StoredOptions{}, nil
	}
	if err != nil {
		return nil, err
	}
	if options, ok := r["default"].(map[string]any); ok {
		return options, nil
	}
	return servicespec.StoredOptions{}, nil
}

func saveOptions(ctx context.Context, s *rest.Store, service string, options servicespec.StoredOptions) error {
	r, err := s.Get(ctx, "service_configs", service)
	if errors.Is(err, rest.ErrNotFound) {
		r = rest.Record{"id": service, "default": maps.Clone(options)}
		if _, err = s.Insert(ctx, "service_configs", r, service); !errors.Is(err, rest.ErrDuplicate) {
			return err
		}
	}
	_, err = s.Update(ctx, "service_configs", r, rest.Record{"default": options})
	return err
}

// hashPassword is good enough for a test program: salted, one round.
func hashPassword(password string) string {
	salt := rest.NewID()
	return salt + "$" + digest(salt, password)
}

func checkPassword(hash, password string) bool {
	return len(hash) > 33 && hash[33:] == digest(hash[:32], password)
}

func digest(salt, password string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(salt+password)))
}
