// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/adopt"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/test/require"
)

// earlierConfigMap returns a component's ConfigMap as the earlier operator left it, with what that had last written.
func earlierConfigMap(t *testing.T, name, file, written string) *corev1.ConfigMap {
	t.Helper()
	b, err := json.Marshal(map[string]string{adopt.ConfigKey: written})
	require.NoError(t, err)
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: cloudKey.Namespace, Name: cloudKey.Name + "-" + name, Labels: render.Labels("default", name),
		Annotations: map[string]string{adopt.LastApplied: string(b)},
	}, Data: map[string]string{adopt.ConfigKey: file}}
}

// An existing password is not generated again because it cannot be read right now.
func TestUnreadableRecordStopsTheCloud(t *testing.T) {
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: cloudKey.Namespace, Name: "default-cluster-config"},
		Data: map[string]string{adopt.ClusterConfigKey: "region: {password: geheim\n"}}
	b := newBench(t, interceptor.Funcs{}, newCloud(), record)
	_, err := b.r.Reconcile(t.Context(), request())
	if err == nil || !strings.Contains(err.Error(), "default-cluster-config") || strings.Contains(err.Error(), "geheim") {
		t.Fatalf("%v", err)
	}
	if err := b.api.Get(t.Context(), types.NamespacedName{Namespace: cloudKey.Namespace, Name: "default-credentials"}, &corev1.Secret{}); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("passwords were made: %v", err)
	}
	record.Data[adopt.ClusterConfigKey] = "region: {password: geheim-enough, db: {password: also-secret}}"
	require.NoError(t, b.api.Update(t.Context(), record))
	b.reconcile()
	s := &corev1.Secret{}
	b.get(s, "default-credentials")
	if string(s.Data[component.AccountPassword("region")]) != "geheim-enough" || string(s.Data[component.DatabasePassword("region")]) != "also-secret" {
		t.Error("the passwords are not the earlier ones")
	}
	if len(s.Data[component.DatabasePassword("glance")]) < 20 {
		t.Error("what nobody knew was not made")
	}
	// Once the Secret has them, the record is no longer read.
	record.Data[adopt.ClusterConfigKey] = "region: {password: another-one}"
	require.NoError(t, b.api.Update(t.Context(), record))
	b.reconcile()
	b.get(s, "default-credentials")
	if string(s.Data[component.AccountPassword("region")]) != "geheim-enough" {
		t.Error("a password was taken over twice")
	}
}

// A service whose file names another database server than the spec would lose its data: it is left alone, the others are not.
func TestFileOfAnotherDatabaseServerIsKept(t *testing.T) {
	const file = "sql_connection: mysql+pymysql://u:region-secret@10.9.9.9:3306/yunioncloud\n"
	b := newBench(t, interceptor.Funcs{}, newCloud(), earlierConfigMap(t, "region", file, file),
		earlierConfigMap(t, "glance", strings.ReplaceAll(file, "10.9.9.9", "db.example.com"), file))
	b.reconcile()
	cm := &corev1.ConfigMap{}
	b.get(cm, "default-region")
	if cm.Data[adopt.ConfigKey] != file || len(cm.Data) != 1 {
		t.Errorf("the ConfigMap was changed: %v", cm.Data)
	}
	if s := b.component("region"); s.State != v1alpha1.Degraded || !strings.Contains(s.Message, "10.9.9.9:3306") || strings.Contains(s.Message, "region-secret") {
		t.Errorf("region is %s: %s", s.State, s.Message)
	}
	b.get(cm, "default-glance")
	if cm.Annotations[engine.HashAnnotation] == "" || cm.Data["port"] == "" {
		t.Error("glance was not taken over")
	}
}

// A changed option that is not the users' to set would make the component Degraded: the Service and the probes decide its value.
func TestAdoptionLeavesWhatTheServiceFixes(t *testing.T) {
	const written = "port: 30888\nenable_ssl: true\ndefault_bandwidth: 1000\n"
	b := newBench(t, interceptor.Funcs{}, newCloud(), earlierConfigMap(t, "region", "port: 31888\nenable_ssl: false\ndefault_bandwidth: 2000\n", written))
	b.reconcile()
	cm := &corev1.ConfigMap{}
	b.get(cm, "default-region")
	if s := b.component("region"); s.Reason == v1alpha1.ReasonInvalidOption || cm.Data["port"] != "30888" || cm.Data["default_bandwidth"] != "2000" {
		t.Errorf("region is %s: %s\n%v", s.State, s.Message, cm.Data)
	}
}

// Options that people chose for a component are kept when it is disabled; ours are removed.
func TestOptionsOutliveDisable(t *testing.T) {
	b := newBench(t, interceptor.Funcs{}, newCloud())
	b.reconcile()
	require.NoError(t, edit(t, &corev1.ConfigMap{}, "default-glance", `{"data":{"image_stream_worker_count":"7"}}`)(b.api))
	require.NoError(t, edit(t, &v1alpha1.OnecloudCluster{}, "default", `{"spec":{"glance":{"disable":true},"logger":{"disable":true}}}`)(b.api))
	b.reconcile()
	cm := &corev1.ConfigMap{}
	if err := b.api.Get(t.Context(), types.NamespacedName{Namespace: cloudKey.Namespace, Name: "default-logger"}, cm); client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("logger's ConfigMap is still there: %v", err)
	}
	b.get(cm, "default-glance")
	if cm.Data["image_stream_worker_count"] != "7" {
		t.Errorf("glance has %v", cm.Data)
	}
	require.NoError(t, edit(t, &v1alpha1.OnecloudCluster{}, "default", `{"spec":{"glance":{"disable":false}}}`)(b.api))
	b.reconcile()
	b.reconcile()
	s := &corev1.Secret{}
	b.get(s, "default-glance-config")
	if !strings.Contains(string(s.Data["glance.conf"]), "image_stream_worker_count: 7") {
		t.Error("the option is not in the file")
	}
}

// The file of the earlier operator has passwords: the history does not quote it, even if a person edited the file.
func TestHistoryQuotesNoFileOfTheEarlierOperator(t *testing.T) {
	const written = "admin_password: region-secret\ndefault_bandwidth: 1000\n"
	b := newBench(t, interceptor.Funcs{}, newCloud(), earlierConfigMap(t, "region", written, written))
	b.editConfig("region", `{"data":{"config":"admin_password: region-secret\ndefault_bandwidth: 2000\n"}}`)
	b.settle()
	b.edit(`{"metadata":{"generation":7},"spec":{"glance":{"replicas":3}}}`)
	for range 3 {
		b.reconcile()
	}
	cm := &corev1.ConfigMap{}
	b.get(cm, "default-region")
	why := strings.Join(b.release().Why, "; ")
	if _, there := cm.Data[adopt.ConfigKey]; there || strings.Contains(why, "region-secret") || !strings.Contains(why, "default-region.config: file ") {
		t.Errorf("%v: %s", cm.Data, why)
	}
}
