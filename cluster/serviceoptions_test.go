// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/test/require"
)

func managed(manager string, op metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, Operation: op, FieldsV1: metav1.NewFieldsV1(fields)}
}

func TestServiceOptions(t *testing.T) {
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Annotations: map[string]string{v1alpha1.AnnotationAcceptOptions: "brand_new, other"},
			ManagedFields: []metav1.ManagedFieldsEntry{
				managed("kubectl-edit", metav1.ManagedFieldsOperationUpdate, `{"f:data":{"f:default_bandwdth":{},"f:log_level":{},"f:brand_new":{},"f:syslog_token":{},"f:port":{}}}`),
				managed("ocadm-operator", metav1.ManagedFieldsOperationApply, `{"f:data":{"f:region":{},"f:port":{}}}`),
			},
		},
		Data: map[string]string{
			"config": "an old file", "region": "region0", "default_bandwdth": "1", "log_level": "loud", "brand_new": "1", "admin_password": "hunter2", "port": "30888", "port_v2": "1",
		},
	}
	got := map[string]ServiceOption{}
	stored := map[string]any{"default_mtu": 1400, "default_bandwidth": 1000, "port": 30888, "syslog_token": "hunter3", "log_level": "debug"}
	cloud := theCloud("db")
	problems, err := check(cloud, "region", cm, cm.Data)
	require.NoError(t, err)
	for _, o := range serviceOptions("region", cm, stored, problems) {
		got[o.Name] = o
	}
	for _, want := range []struct{ name, kind, value, source, problem string }{
		{"region", "text", "region0", SourceOperator, ""},
		{"port", "int", "30888", SourceUser, ""},
		{"port_v2", "int", "1", SourceUser, "must be 30888: it is the port of its Service; nodePort in the resource of the cloud sets both"},
		{"default_bandwdth", "", "1", SourceUser, `is not known to region; did you mean "default_bandwidth"?`},
		{"log_level", "text", "loud", SourceUser, `must be one of debug, info, warn, error, not "loud"`},
		{"brand_new", "", "1", SourceUser, ""},
		{"admin_password", "text", "***", SourceUser, "is a secret that the operator sets"},
		{"default_mtu", "int", "1400", SourceStored, ""},
		{"default_bandwidth", "int", "1000", SourceDefault, ""},
		{"default_cpu_overcommit_bound", "number", "8.0", SourceDefault, ""},
	} {
		o, value := got[want.name], ""
		if o.Value != nil {
			value = *o.Value
		}
		if o.Type != want.kind || value != want.value || o.Source != want.source || o.Problem != want.problem {
			t.Errorf("%s: %+v, value %q", want.name, o, value)
		}
	}
	if _, file := got["config"]; file || len(got) < 200 {
		t.Errorf("%d options, the old file among them: %v", len(got), file)
	}
	if list := serviceOptions("meter", cm, nil, nil); len(list) != len(cm.Data)-1 || list[1].Problem != "" {
		t.Errorf("of a service whose options are not known: %+v", list)
	}
}

// A cloud whose spec cannot be resolved shows its options unchecked. One that does not exist has none.
func TestServiceOptionsWithoutACheck(t *testing.T) {
	cloud := theCloud("")
	key := client.ObjectKeyFromObject(cloud)
	cm := configMap(key, "region")
	cm.Data = map[string]string{"log_level": "loud"}
	list, err := ServiceOptions(t.Context(), fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud, cm).Build(), key, "region", nil)
	if err == nil || !strings.Contains(err.Error(), "spec.mysql.host") || len(list) == 0 {
		t.Errorf("%d options, %v", len(list), err)
	}
	list, err = ServiceOptions(t.Context(), fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).Build(), key, "region", nil)
	if err != nil || len(list) == 0 {
		t.Errorf("without a ConfigMap: %d options, %v", len(list), err)
	}
	list, err = ServiceOptions(t.Context(), fake.NewClientBuilder().WithScheme(kube.Scheme()).Build(), key, "region", nil)
	if !isCode(err, "OCA-7002") || list != nil {
		t.Errorf("without a cloud: %d options, %v", len(list), err)
	}
}

// No component with a port in its configuration takes another one, and none takes a secret, whatever the component table has.
func TestReservedOptions(t *testing.T) {
	cloud := theCloud("db")
	all, err := resolve.Cluster(cloud, resolve.Facts{Components: catalog.All()})
	require.NoError(t, err)
	ports, hidden := 0, 0
	for _, name := range catalog.Names(render.Configurable) {
		in := component.Inputs{Cluster: all, Credentials: component.Placeholders(all)}
		public, secret, err := render.Options(all.Components[name], in)
		require.NoError(t, err)
		set := map[string]string{}
		for _, option := range secret {
			set[option], hidden = "hunter2", hidden+1
		}
		if all.Components[name].Service != nil && public["port"] != "" {
			set["port"], ports = "1", ports+1
		}
		if problems, err := check(cloud, name, &corev1.ConfigMap{}, set); err != nil || len(problems) != len(set) {
			t.Errorf("%s: %v of %v are refused: %v", name, problems, set, err)
		}
		if problems, err := check(cloud, name, &corev1.ConfigMap{}, public); err != nil || len(problems) > 0 {
			t.Errorf("%s: its own options: %v, %v", name, problems, err)
		}
	}
	if ports < 20 || hidden < 40 {
		t.Errorf("%d ports and %d secrets were tried", ports, hidden)
	}
}
