// SPDX-License-Identifier: Apache-2.0

package render_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"

	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/test/require"
)

// The names of zones may have capitals and underscores, unlike those of objects. The copy of such a zone has a name that the API server accepts.
func TestEveryZoneHasACopy(t *testing.T) {
	cr := everything()
	cr.Spec.CustomZones = []string{"zone1", "rack-1", "Rack_1", "rack_1", "Ra.ck-", "192.0.2"}
	cr.Spec.Baremetalagent.Zones = cr.Spec.CustomZones
	cluster := described(t, cr)
	o, err := render.Component(cluster.Components["baremetal-agent"], component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)})
	require.NoError(t, err)
	names := map[string]bool{}
	for _, obj := range render.List(o) {
		kind := obj.GetObjectKind().GroupVersionKind().Kind
		if wrong := validation.IsDNS1123Subdomain(obj.GetName()); len(wrong) > 0 {
			t.Errorf("%s %s: %q", kind, obj.GetName(), wrong)
		}
		names[kind+"/"+obj.GetName()] = true
	}
	copies := 0
	for _, c := range o.Copies {
		if names["Deployment/"+c.GetName()] && names["PersistentVolumeClaim/"+c.GetName()] {
			copies++
		}
	}
	if copies != 6 || len(names) != len(render.List(o)) || !names["Deployment/default-baremetal-agent-rack-1"] {
		t.Errorf("%d copies, %v", copies, names)
	}
}
