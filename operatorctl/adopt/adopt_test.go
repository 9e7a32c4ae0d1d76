// SPDX-License-Identifier: Apache-2.0

package adopt_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/adopt"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/require"
)

func find(t *testing.T, name string) component.Component {
	t.Helper()
	all := catalog.All()
	i := slices.IndexFunc(all, func(c component.Component) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no component %s", name)
	}
	return all[i]
}

// The sections of the earlier operator's record (ConfigMap NAME-cluster-config).
var sections = []string{
	"keystone", "region", "glance", "webconsole", "logger", "yunionconf", "yunionagent", "kubeserver", "ansibleserver", "monitor", "suggestion", "cloudnet",
	"cloudproxy", "cloudevent", "notify", "devtool", "meter", "billing", "autoupdate", "cloudid", "report", "bastionHost", "extdb", "llm", "aiproxy", "mcpServer",
	"apiGateway", "cloudmon", "host", "lbagent", "baremetal", "s3gateway", "esxiagent", "vpcagent", "onecloudServiceOperator", "itsm", "grafana",
}

// Every component with a secret has a section, and every section a component.
func TestEverySectionIsRead(t *testing.T) {
	var text strings.Builder
	text.WriteString("apiVersion: onecloud.yunion.io/v1alpha1\nkind: OnecloudClusterConfig\ncommonConfig: {request_worker_count: 8}\n")
	for _, s := range sections {
		text.WriteString(s + ": {port: 30001, username: u-" + s + ", password: p-" + s + ", db: {database: d-" + s + ", username: du-" + s + ", password: dp-" + s + "}, clickhouse_conf: {password: cp-" + s + "}}\n")
	}
	record, err := adopt.ParseRecord(map[string]string{adopt.ClusterConfigKey: text.String()})
	require.NoError(t, err)
	used := map[string]bool{}
	for _, c := range catalog.All() {
		have := record.Credentials(c)
		for _, k := range component.CredentialKeys(c) {
			if k == component.BootstrapPassword || slices.Contains(c.Credentials, k) {
				continue // in the spec
			}
			if kind := have[k][:strings.Index(have[k], "-")+1]; !slices.Contains([]string{"p-", "dp-", "cp-"}, kind) {
				t.Errorf("%s is %q", k, have[k])
			}
			used[have[k][strings.Index(have[k], "-")+1:]] = true
		}
		if c.Database != nil && (have[component.DatabaseName(c.Name)] == "" || have[component.DatabaseUser(c.Name)] == "") {
			t.Errorf("%s: other names of its database are lost", c.Name)
		}
		if c.Account != nil && have[component.AccountUser(c.Name)] == "" {
			t.Errorf("%s: another name of its account is lost", c.Name)
		}
	}
	for _, s := range sections {
		if !used[s] {
			t.Errorf("nobody reads section %s", s)
		}
	}
}

func TestUsualNamesAreNotKept(t *testing.T) {
	record, err := adopt.ParseRecord(map[string]string{adopt.ClusterConfigKey: "monitor: {username: monitoradmin, password: a, db: {database: monitor, username: yunionmonitor, password: b}}"})
	require.NoError(t, err)
	want := map[string]string{"monitor.account-password": "a", "monitor.database-password": "b"}
	if have := record.Credentials(find(t, "monitor")); !maps.Equal(have, want) {
		t.Errorf("have %v", have)
	}
}

func TestUnreadableRecordIsAnErrorWithoutSecrets(t *testing.T) {
	for _, data := range []map[string]string{{}, {"other": "x"}, {adopt.ClusterConfigKey: "password: geheim\n\t- }"}} {
		if _, err := adopt.ParseRecord(data); err == nil || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%v", err)
		}
	}
}

func earlierFile(t *testing.T, file, written string) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{Data: map[string]string{adopt.ConfigKey: file}}
	if written != "" {
		b, err := json.Marshal(map[string]string{adopt.ConfigKey: written})
		require.NoError(t, err)
		cm.Annotations = map[string]string{adopt.LastApplied: string(b)}
	}
	return cm
}

func TestUserOptions(t *testing.T) {
	const written = "port: 30888\nsql_connection: mysql+pymysql://u:p@h:3306/d\nrequest_worker_count: 8\nnames: [a, b]\nkeep_deleted_snapshot_days: 3\nratio: 1.5\n"
	secret := []string{"sql_connection", "admin_password"}
	ours := map[string]string{"port": "30888", "request_worker_count": "8"}
	for name, c := range map[string]struct {
		file, written string
		edited        bool
		kept          map[string]string
		unclear       bool
	}{
		"untouched":                          {written, written, false, map[string]string{}, false},
		"changed, added, reordered":          {"keep_deleted_snapshot_days: 9\nport: 30888\nnames: [b]\nrequest_worker_count: 8\nnew_one: \"yes\"\nratio: 1.50\n", written, true, map[string]string{"keep_deleted_snapshot_days": "9", "names": `["b"]`, "new_one": `"yes"`}, false},
		"a secret is never theirs":           {strings.ReplaceAll(written, ":p@", ":q@"), written, true, map[string]string{}, false},
		"what was removed is not kept":       {"port: 30888\n", written, true, map[string]string{}, false},
		"no record and nobody edited it":     {strings.ReplaceAll(written, "8\n", "9\n"), "", false, map[string]string{}, false},
		"no record and edited: what we know": {strings.ReplaceAll(written, "count: 8", "count: 64"), "", true, map[string]string{"request_worker_count": "64"}, true},
		"no name of an option":               {"\"a b\": 1\n", written, true, map[string]string{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := adopt.UserOptions(find(t, "region"), earlierFile(t, c.file, c.written), ours, secret, c.edited)
			require.NoError(t, err)
			if !maps.Equal(got.Kept, c.kept) || got.Unclear != c.unclear {
				t.Errorf("kept %v (unclear %v), want %v", got.Kept, got.Unclear, c.kept)
			}
		})
	}
	if _, err := adopt.UserOptions(find(t, "region"), earlierFile(t, "\t{", written), ours, secret, true); err == nil {
		t.Error("a file that cannot be read is no error")
	}
	got, err := adopt.UserOptions(find(t, "itsm"), earlierFile(t, "server.port=30595\nserver.tomcat=9\n", "server.port=30595\nserver.tomcat=8\n"), nil, nil, true)
	if err != nil || !maps.Equal(got.Kept, map[string]string{"server.tomcat": "9"}) {
		t.Errorf("properties: %v, %v", got.Kept, err)
	}
}

func TestDSN(t *testing.T) {
	for s, want := range map[string]adopt.DSN{
		"mysql+pymysql://u:p@10.0.0.5:3307/d?charset=utf8": {User: "u", Password: "p", Address: "10.0.0.5:3307", Database: "d"},
		"mysql+pymysql://u:p@ss@[fd00::1]:3306/d":          {User: "u", Password: "p@ss", Address: "[fd00::1]:3306", Database: "d"},
		"mysql+pymysql://u:p@db/d":                         {User: "u", Password: "p", Address: "db:3306", Database: "d"},
		"dm://u:p@h:5236/d":                                {},
		"":                                                 {},
	} {
		got, ok := adopt.ParseDSN(s)
		if got != want || ok != (want.User != "") {
			t.Errorf("%s: %+v", s, got)
		}
	}
	c := find(t, "region")
	file := "sql_connection: mysql+pymysql://u:p@10.0.0.9:3306/d\n"
	if other := adopt.OtherServer(c, file, "10.0.0.5:3306"); other != "10.0.0.9:3306" {
		t.Errorf("the other server is %q", other)
	}
	if other := adopt.OtherServer(c, file, "10.0.0.9:3306"); other != "" {
		t.Errorf("the same server is %q", other)
	}
}

// Values that the earlier operator computed are ours to change; values that it settled are not.
func TestDerived(t *testing.T) {
	one, three := int32(1), int32(3)
	spec := &v1alpha1.OnecloudClusterSpec{}
	spec.Logger.Replicas, spec.Glance.Replicas = &one, &three
	derived := adopt.Derived(spec)
	for path, want := range map[string]bool{
		"spec.keystone.image": true, "spec.keystone.limits": true, "spec.keystone.limits.cpu": true, "spec.keystone.requests.memory": true,
		"spec.keystone.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution": true, "spec.keystone.tolerations": true, "spec.keystone.nodeSelector": true,
		"spec.hostagent.HostHealth.image": true, "spec.web.imageName": true, "spec.telegraf.initContainerImage": true, "spec.logger.replicas": true,
		"spec.etcd.version": true, "spec.etcd.createdSecrets": true,
		"spec.glance.replicas": false, "spec.glance.requests.storage": false, "spec.glance.storageClassName": false, "spec.keystone.bootstrapPassword": false,
		"spec.keystone.publicService.nodePort": false, "spec.glance.disable": false, "spec.version": false, "spec.imageRepository": false, "spec.region": false,
		"spec.etcd.size": false, "spec.keystone": false, "spec.mysql.password": false, "metadata.labels.image": false, "spec.monitorStack.grafana.image": false,
	} {
		var p []any
		for s := range strings.SplitSeq(path, ".") {
			p = append(p, s)
		}
		if got := derived(fieldpath.MakePathOrDie(p...)); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
}
