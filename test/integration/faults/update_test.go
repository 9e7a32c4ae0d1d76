// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/fakecloud/program"
)

// way is a broken component and the way in which it is broken.
type way struct {
	component string
	how       program.Failure
}

func (w way) String() string { return w.component + string(w.how) }

// fails reports whether the update fails. An agent has no tables and no clients, so it can break in only two ways.
func (w way) fails() bool {
	return w.component != "host" || w.how == program.AtStart || w.how == program.WhenReady
}

// TestUpdateFails updates a cloud to a release with one broken program: in each wave, in each way. The cloud ends entirely old, or entirely new. With
// OCADM_SWEEP it is a cloud of all components.
func TestUpdateFails(t *testing.T) {
	components := []string{"keystone", "region", "glance", "logger", "host"}
	tried := []way{{"keystone", program.InMigration}, {"region", program.WhenReady}, {"glance", program.AtStart}}
	if chosen := os.Getenv("OCADM_SWEEP"); chosen != "" {
		components, tried = nil, nil
		for _, c := range catalog.All() {
			if (len(c.Editions) == 0 || slices.Contains(c.Editions, component.CE)) && c.Name != "backup" { // which is not part of a release
				components = append(components, c.Name)
			}
		}
		for _, name := range []string{"keystone", "region", "glance", "host"} { // of the waves identity, region, services and agents
			for _, how := range program.Failures() {
				if w := (way{name, how}); chosen == "all" || strings.Contains(w.String(), chosen) {
					tried = append(tried, w)
				}
			}
		}
	}
	u := newUpdated(t, components, patient)
	t.Logf("%d workloads, %d databases, %d tables", len(u.old.images), len(u.old.definitions), len(u.old.tables))
	for _, w := range tried {
		t.Run(w.String(), func(t *testing.T) {
			u := u.in(t)
			u.publish(w.component, w.how)
			defer u.publish(w.component, "")
			if w.how == program.UnderLoad {
				u.load(t, w.component)
			}
			began := time.Now()
			u.update(w.String())
			o := u.UntilOperation(w.String(), env.Ended)
			t.Logf("%s: %s in %.0f s (%s)", w, o.Status.Phase, time.Since(began).Seconds(), times(o))
			u.entirely(t, w.String(), o)
			if w.fails() != (o.Status.Phase == v1alpha1.OperationReverted) {
				t.Errorf("it %s: %s", o.Status.Phase, o.Status.Message)
			}
			if o.Status.Phase == v1alpha1.OperationSucceeded {
				u.rollback(t, o)
			}
		})
	}
}
