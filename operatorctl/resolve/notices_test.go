// SPDX-License-Identifier: Apache-2.0

package resolve_test

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/test/require"
)

// notices returns the notices for a spec whose fields are all choices.
func notices(t *testing.T, cr *v1alpha1.OnecloudCluster) string {
	t.Helper()
	list, err := resolve.Notices(cr, resolve.Facts{Components: catalog.All()})
	require.NoError(t, err)
	var all []string
	for _, n := range list {
		all = append(all, n.String())
	}
	return strings.Join(all, "\n")
}

func TestNotices(t *testing.T) {
	cr := &v1alpha1.OnecloudCluster{}
	s := &cr.Spec
	s.MySQL.Host, s.Glance.Replicas, s.Etcd.EnableTLS, s.Etcd.CreatedSecrets, s.Telegraf.InitContainerImage = "db", new(int32(2)), new(true), new(true), "x"
	s.CustomZones, s.Baremetalagent.Zones = []string{"zone1"}, []string{"zone1"}
	if got := notices(t, cr); got != "" {
		t.Errorf("no notice expected, got: %s", got)
	}
	s.Etcd.EnableTLS, s.Etcd.Paused, s.Keystone.DisableTLS = new(false), true, true
	s.Hostagent.Replicas, s.Scheduler.Schedule, s.Influxdb.Image, s.Influxdb.Tag = new(int32(2)), "* * * * *", "i", "t"
	s.Baremetalagent.Zones = []string{"zone1", "zone2"}
	s.Components = map[string]v1alpha1.ComponentSpec{"nothing": {Disable: new(true)}}
	cr.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:glnace":{"f:disable":{}},"f:mysql":{"f:host":{}},"f:qwertyuiop":{}},"f:metadata":{"f:x":{}}}`)},
		{Manager: "x", Subresource: "status", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:other":{}}}`)},
	}
	got := notices(t, cr)
	for _, want := range []string{
		"spec.etcd.enableTls: accepted, without effect: ", "spec.etcd.paused: accepted, without effect: name etcd in the annotation",
		"spec.keystone.disableTLS: ", "spec.hostagent.replicas: accepted, without effect: the number of pods of the component cannot be set",
		"spec.scheduler.schedule: accepted, without effect: it applies only to a CronJob", "spec.influxdb: accepted, without effect: not in release latest: last in v3.10",
		`spec.baremetalagent.zones: accepted, without effect: zone "zone2" is not in spec.customZones`,
		"spec.components.nothing: accepted, without effect: this component does not exist",
		"spec.glnace: unknown, without effect; did you mean spec.glance?", "spec.qwertyuiop: unknown, without effect",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
	if n := strings.Count(got, "\n") + 1; n != 10 {
		t.Errorf("%d notices:\n%s", n, got)
	}
}
