// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"fmt"
	"slices"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/clickhouse"
	"yunion.io/x/ocadm/operatorctl/component"
)

// clickHouse creates a component's schema and account in ClickHouse, in any edition: the configuration needs both.
func (in Input) clickHouse(c component.Resolved) Effect {
	acc := clickhouse.Account{User: c.Database.Account(), Password: in.Credentials[component.ClickHousePassword(c.Name)], Database: c.Database.Name}
	server := in.Cluster.Spec.Clickhouse
	_, recorded := in.Recorded["clickhouse/"+c.Name]
	return Effect{
		Key: "clickhouse/" + c.Name, Component: c.Name, Target: ClickHouse, Stage: Before,
		Hash: in.hash("clickhouse", acc, server.Host, server.Port),
		Do: func(ctx context.Context, cl Clients) (bool, error) {
			admin, snap, err := cl.ClickHouse(ctx)
			if err != nil {
				return false, err
			}
			if !recorded {
				if err := in.mayUse(ctx, admin, snap, acc); err != nil {
					return false, err
				}
			}
			// The account and its grant come first: they show who owns the database if the operator stops in between.
			granted, err := admin.EnsureAccount(ctx, snap, acc)
			if err != nil {
				return granted, err
			}
			made, err := admin.EnsureDatabase(ctx, snap, acc.Database)
			return made || granted, err
		},
	}
}

// mayUse returns an error for an existing database of another owner, unless a user allows its adoption.
func (in Input) mayUse(ctx context.Context, admin *clickhouse.Admin, snap *clickhouse.Snapshot, acc clickhouse.Account) error {
	whose, err := admin.Belongs(ctx, snap, acc)
	if err != nil || whose != clickhouse.Foreign || slices.Contains(in.Adopt.Names, acc.Database) {
		return err
	}
	return fmt.Errorf("database or account %q exists on the ClickHouse server, but this cloud did not create it; "+
		"to use the existing ones and set a new password for the account: kubectl -n %s annotate --overwrite oc %s %s=%s",
		acc.Database, in.Cluster.Namespace, in.Cluster.Name, v1alpha1.AnnotationAdoptDatabases, acc.Database)
}

// DropClickHouse removes a component's schema and account in ClickHouse if the password shows that they are this cloud's.
func DropClickHouse(ctx context.Context, cl Clients, c component.Component, creds component.Credentials) error {
	admin, snap, err := cl.ClickHouse(ctx)
	if err != nil {
		return err
	}
	acc := clickhouse.Account{User: c.Database.Account(), Password: creds[component.ClickHousePassword(c.Name)], Database: c.Database.Name}
	if whose, err := admin.Belongs(ctx, snap, acc); err != nil || whose != clickhouse.Ours {
		return err
	}
	if err := admin.DropDatabase(ctx, snap, c.Database.Name); err != nil {
		return err
	}
	return admin.DropAccount(ctx, snap, c.Database.Account())
}
