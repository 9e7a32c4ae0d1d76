// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"regexp"
	"slices"
	"testing"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
)

// Every action is a valid plan of the engine: named, described, and with unique steps.
func TestActions(t *testing.T) {
	name := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	for _, a := range Actions(catalog.All()) {
		seen := map[string]bool{}
		for _, s := range append(a.Steps, a.Revert...) {
			if seen[s.Name] || !name.MatchString(s.Name) || s.Short == "" || s.Run == nil || len(s.Phases) > 0 {
				t.Errorf("%s: step %q", a.Name, s.Name)
			}
			seen[s.Name] = true
		}
		if a.Outside != (len(a.Steps) == 0) || a.Outside != (a.Left != "") || a.timeout(&v1alpha1.OnecloudOperation{}) <= 0 {
			t.Errorf("%+v", a)
		}
	}
}

// Pulling images may take as long in any action as in an update: one slow registry must not end a check or a dry run that the update would survive.
func TestPullsHaveTheTimeoutOfAnUpdate(t *testing.T) {
	all := Actions(catalog.All())
	update, _ := find(all, v1alpha1.ActionUpdate)
	for _, a := range all {
		if slices.ContainsFunc(a.Steps, func(s Step) bool { return s.Name == "pull" }) && a.Timeout < update.Timeout {
			t.Errorf("%s has %s, an update %s", a.Name, a.Timeout, update.Timeout)
		}
	}
}
