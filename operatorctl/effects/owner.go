// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/operatorctl/component"
)

// ParseAdoption parses the value of v1alpha1.AnnotationAdoptDatabases. A name with slashes denotes another cloud.
func ParseAdoption(list string) mysql.Adoption {
	var out mysql.Adoption
	for _, v := range strings.Split(list, ",") {
		switch v = strings.TrimSpace(v); {
		case v == "":
		case strings.Contains(v, "/"):
			out.From = append(out.From, v)
		default:
			out.Names = append(out.Names, v)
		}
	}
	return out
}

// messageRoom is how long the error about a database that is not the cloud's may get: the status cuts a message, and a command without its end would do
// something else.
const messageRoom = 370

// foreign adds the remedy to the error about a database that is not the cloud's. Its command names those that own needs, and as many others as fit.
func (in Input) foreign(err error, own component.Component) error {
	e, is := errors.AsType[*mysql.NotOurs](err)
	if !is {
		return err
	}
	advise := func(why, what string) error {
		return fmt.Errorf("%w; %s: kubectl -n %s annotate --overwrite oc %s %s=%s", err, why, in.Cluster.Namespace, in.Cluster.Name,
			v1alpha1.AnnotationAdoptDatabases, what)
	}
	if e.Owner.ID != "" {
		return advise("if that cloud no longer exists, to take over its databases and accounts", e.Owner.String())
	}
	adopt := func(names []string) error {
		existing := "the existing ones"
		if len(names) < len(e.Names) {
			existing = fmt.Sprintf("%d of %d existing ones", len(names), len(e.Names))
		}
		return advise("to use "+existing+" and set new passwords for the accounts", strings.Join(names, ","))
	}
	needs := append(databaseNames(own), own.Database.Account())
	other := func(n string) bool { return !slices.Contains(needs, n) }
	names := slices.DeleteFunc(slices.Clone(e.Names), other)
	for _, n := range e.Names {
		if more := append(slices.Clip(names), n); other(n) && len(adopt(more).Error()) <= messageRoom {
			names = more
		}
	}
	return adopt(names)
}

// wants returns the databases and accounts of all enabled components: they are claimed together.
func wants(a Access) []mysql.Want {
	var out []mysql.Want
	for _, name := range slices.Sorted(maps.Keys(a.Cluster.Components)) {
		c := a.Cluster.Components[name]
		if c.Enabled && c.Database != nil {
			out = append(out, want(c.Component, a.Credentials))
		}
	}
	return out
}

func want(c component.Component, creds component.Credentials) mysql.Want {
	return mysql.Want{Account: databaseAccount(c, creds), Databases: databaseNames(c)}
}

func databaseNames(c component.Component) []string {
	return append([]string{c.Database.Name}, c.Database.More...)
}

func databaseAccount(c component.Component, creds component.Credentials) mysql.Account {
	return mysql.Account{User: c.Database.Account(), Password: creds[component.DatabasePassword(c.Name)], Hosts: mysql.DefaultHosts(),
		Database: c.Database.Name}
}

// MarkEarlier marks databases and accounts of components that predate the markers. Those whose password the cloud knows are its own.
func MarkEarlier(ctx context.Context, admin *mysql.Admin, components []component.Component, creds component.Credentials) error {
	snap, err := admin.Snapshot(ctx)
	if err != nil {
		return err
	}
	list := lists.Map(components, func(c component.Component) mysql.Want { return want(c, creds) })
	return admin.Claim(ctx, snap, list...)
}
