// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/status"
)

// If all databases exist, the status of each component ends with a command that is complete, and that is enough for this component.
func TestCommandToAdoptManyDatabasesIsNotCut(t *testing.T) {
	in := Input{Cluster: component.Cluster{Namespace: "onecloud", Name: "default"}}
	var names []string
	with := slices.DeleteFunc(catalog.All(), func(c component.Component) bool { return c.Database == nil })
	for _, c := range with {
		names = append(names, append(databaseNames(c), c.Database.Account())...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, c := range with {
		refused := &mysql.Error{Class: mysql.Foreign, Op: fmt.Sprintf("creating database %q", c.Database.Name), Server: "db.example.com:3306",
			Detail: fmt.Sprintf("database %q exists, but this cloud did not create it", c.Database.Name)}
		err := in.foreign(fmt.Errorf("%w%.0w", refused, &mysql.NotOurs{Names: names}), c)
		s := status.Component(status.Observed{Name: c.Name, Resolved: component.Resolved{Component: c, Enabled: true},
			Effects: []status.Effect{{Key: DatabaseKey(c.Name), Before: true, Error: err.Error()}}})
		_, list, _ := strings.Cut(s.Message, "adopt-databases=")
		adopted := ParseAdoption(list).Names
		for _, n := range append(databaseNames(c), c.Database.Account()) {
			if !slices.Contains(adopted, n) {
				t.Errorf("%s: %s is missing in %q", c.Name, n, s.Message)
			}
		}
		for _, n := range adopted {
			if !slices.Contains(names, n) {
				t.Errorf("%s: %q is not a name: %q", c.Name, n, s.Message)
			}
		}
	}
}
