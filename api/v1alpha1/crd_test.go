// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/require"
)

const crdFile = "../../templates/operator/crds/onecloud.yunion.io_onecloudclusters.yaml"

// definition is the CRD as an API server reads it.
type definition struct {
	internal   *apiextensions.CustomResourceDefinition
	structural *schema.Structural
	schema     validation.SchemaValidator
	cel        *cel.Validator
}

func load(t *testing.T) definition {
	t.Helper()
	text, err := os.ReadFile(crdFile)
	require.NoError(t, err)
	if len(text) > 200<<10 {
		t.Errorf("the CRD has %d bytes, more than 200 KiB: kubectl apply keeps a copy in an annotation", len(text))
	}
	var v1 apiextensionsv1.CustomResourceDefinition
	require.NoError(t, yaml.UnmarshalStrict(text, &v1))
	apiextensionsv1.SetDefaults_CustomResourceDefinition(&v1)
	apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&v1.Spec)
	v1.Status.StoredVersions = []string{"v1alpha1"}
	d := definition{internal: &apiextensions.CustomResourceDefinition{}}
	require.NoError(t, apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(&v1, d.internal, nil))
	s := d.internal.Spec.Validation
	if s == nil {
		s = d.internal.Spec.Versions[0].Schema
	}
	if d.structural, err = schema.NewStructural(s.OpenAPIV3Schema); err != nil {
		t.Fatal(err)
	}
	if d.schema, _, err = validation.NewSchemaValidator(s.OpenAPIV3Schema); err != nil {
		t.Fatal(err)
	}
	d.cel = cel.NewValidator(d.structural, true, celconfig.PerCallLimit)
	return d
}

// refuse returns the errors with which an API server would reject an object. old is the stored object.
func (d definition) refuse(t *testing.T, obj, old map[string]any) string {
	t.Helper()
	errs := validation.ValidateCustomResource(nil, obj, d.schema)
	var before any
	if old != nil {
		before = old
	}
	more, _ := d.cel.Validate(t.Context(), nil, d.structural, obj, before, celconfig.RuntimeCELCostBudget)
	errs = append(errs, more...)
	if len(errs) == 0 {
		return ""
	}
	return errs.ToAggregate().Error()
}

func TestDefinitionIsAccepted(t *testing.T) {
	d := load(t)
	if errs := schema.ValidateStructural(nil, d.structural); len(errs) > 0 {
		t.Error(errs.ToAggregate())
	}
	if got := strings.Join(d.internal.Spec.Names.ShortNames, " "); got != "onecloud oc" {
		t.Errorf("short names are %q", got)
	}
}

// object returns a CR with a spec in YAML.
func object(t *testing.T, spec string) map[string]any {
	t.Helper()
	o := map[string]any{
		"apiVersion": "onecloud.yunion.io/v1alpha1", "kind": "OnecloudCluster", "metadata": map[string]any{"name": "default", "namespace": "onecloud"},
	}
	b, err := yaml.YAMLToJSON([]byte(spec))
	require.NoError(t, err)
	// The API machinery's JSON decoder, so that numbers have the same types.
	u := map[string]any{}
	require.NoError(t, utiljson.Unmarshal(b, &u))
	o["spec"] = u
	return o
}

const mysql = "mysql: {host: 10.0.0.5, username: root, password: p}\n"

func TestMalformedIsRefusedByName(t *testing.T) {
	d := load(t)
	for _, c := range []struct{ spec, want string }{
		{"version: v1", "spec.mysql"},
		{"mysql: {username: root, password: p}", "spec.mysql.host"},
		{"mysql: {host: db}", "passwordSecretRef"},
		{"mysql: {host: db, passwordSecretRef: {name: s}}", "spec.mysql.passwordSecretRef.key"},
		{"mysql: {host: db, password: p, port: 70000}", "spec.mysql.port"},
		{mysql + "version: 3", "spec.version"},
		{mysql + "version: 'v 1'", "spec.version"},
		{mysql + "productVersion: Baremetal", "productVersion must be one of FullStack, CMP, Edge, LightEdge, AI"},
		{mysql + "deletionPolicy: Burn", "spec.deletionPolicy"},
		{mysql + "keystone: {replicas: -1}", "spec.keystone.replicas"},
		{mysql + "keystone: {replicas: many}", "spec.keystone.replicas"},
		{mysql + "keystone: {disable: 'yes'}", "spec.keystone.disable"},
		{mysql + "keystone: {image: 'two words'}", "spec.keystone.image"},
		{mysql + "keystone: {tag: 'a:b'}", "spec.keystone.tag"},
		{mysql + "keystone: {imagePullPolicy: Sometimes}", "spec.keystone.imagePullPolicy"},
		{mysql + "keystone: {publicService: {nodePort: 99999}}", "spec.keystone.publicService.nodePort"},
		{mysql + "keystone: {limits: {cpu: lots}}", "spec.keystone.limits.cpu"},
		{mysql + "glance: {requests: {storage: big}}", "spec.glance.requests.storage"},
		{mysql + "regionServer: []", "spec.regionServer"},
		{mysql + "components: {new: {replicas: -1}}", "spec.components.new.replicas"},
		{mysql + "backup: {keep: -1}", "spec.backup.keep"},
	} {
		if got := d.refuse(t, object(t, c.spec), nil); !strings.Contains(got, c.want) {
			t.Errorf("%s\nanswer %q lacks %q", c.spec, got, c.want)
		}
	}
	named := object(t, mysql)
	named["metadata"] = map[string]any{"name": "9-lives"}
	if got := d.refuse(t, named, nil); !strings.Contains(got, "metadata.name") {
		t.Errorf("name: %q", got)
	}
}

func TestWhatMustNotChange(t *testing.T) {
	d := load(t)
	stored := mysql + "region: region0\nzone: zone0\n"
	for _, c := range []struct{ spec, want string }{
		{mysql + "region: other\nzone: zone0", "spec.region"},
		{mysql + "zone: zone0", "spec.region"},
		{mysql + "region: region0\nzone: other", "spec.zone"},
		{"mysql: {host: elsewhere, password: p}\nregion: region0\nzone: zone0", "spec.mysql.host"},
		{"mysql: {host: 10.0.0.5, password: changed, port: 3307}\nregion: region0\nzone: zone0\nversion: v2", "spec.mysql.port"},
		{"mysql: {host: 10.0.0.5, password: changed}\nregion: region0\nzone: zone0\nversion: v2", ""},
	} {
		got := d.refuse(t, object(t, c.spec), object(t, stored))
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s\nanswer %q, want %q", c.spec, got, c.want)
		}
	}
	if got := d.refuse(t, object(t, stored), object(t, mysql)); got != "" {
		t.Errorf("naming the region for the first time: %s", got)
	}
}

func TestUsualIsAccepted(t *testing.T) {
	d := load(t)
	for _, spec := range []string{
		mysql,
		mysql + "region: region0",
		"mysql: {host: 'fd00::5', passwordSecretRef: {name: ocadm-mysql, key: password}}",
		mysql + "regionServer: {repository: '192.168.0.1:5000/yunionio', tag: lzx-dev}",
		mysql + "components: {hello: {disable: false, schedule: '* * * * *'}}",
		mysql + "keystone: {limits: {cpu: 2, memory: 2Gi}, requests: {cpu: '0.5', memory: 1e9}}",
	} {
		if got := d.refuse(t, object(t, spec), nil); got != "" {
			t.Errorf("%s\nis refused: %s", spec, got)
		}
	}
}

// earlier returns a CR as the earlier operator writes it back: every field of every block, with nulls, empty strings and zeros.
func earlier(t *testing.T) map[string]any {
	t.Helper()
	o := object(t, mysql+`
version: v3.11.1
imageRepository: registry.cn-beijing.aliyuncs.com/yunionio
region: region0
zone: zone0
productVersion: FullStack
loadBalancerEndpoint: 10.0.0.10
certSANs: null
customZones: null
services: null
db_engine: ""
clickhouse: {host: "", port: 0, username: "", password: ""}
dameng: {host: "", port: 0, username: "", password: ""}
minio: {enable: false, mode: ""}
monitorStack: {disable: false, minio: {mode: standalone, accessKey: monitor-admin, secretKey: s}, grafana: {adminUser: admin, oauth: {enabled: false}},
  loki: {objectStoreConfig: {bucket: loki}}, prometheus: {disable: true}, thanos: {objectStoreConfig: {bucket: thanos}}}
someRemovedService: {disable: true, image: old}
`)
	spec := o["spec"].(map[string]any)
	const block = `
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: onecloud.yunion.io/controller, operator: In, values: [enable]}]}]}}}
annotations: null
db_engine: ""
disable: false
image: registry.cn-beijing.aliyuncs.com/yunionio/x:v3.11.1
imageName: ""
imagePullPolicy: IfNotPresent
imagePullSecrets: null
limits: {cpu: 1333m, memory: 512Mi}
nodeSelector: null
replicas: 0
repository: ""
requests: {cpu: 10m, memory: 10Mi, storage: ""}
service: {internalOnly: false, nodePort: 30888}
slave_replicas: 0
tag: ""
tolerations: [{effect: NoSchedule, key: node-role.kubernetes.io/master}, {effect: NoSchedule, key: node-role.kubernetes.io/controlplane}]
`
	for _, f := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.OnecloudClusterSpec]()) {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if (&v1alpha1.OnecloudClusterSpec{}).Component(key) == nil {
			continue
		}
		spec[key] = object(t, strings.Replace(block, "30888", strconv.Itoa(30000+len(spec)), 1))["spec"]
	}
	set := func(key, more string) {
		for k, v := range object(t, more)["spec"].(map[string]any) {
			spec[key].(map[string]any)[k] = v
		}
	}
	set("etcd", "{size: 1, version: 3.5.12, paused: false, pod: {labels: null, resources: {}}, TLS: null, createdSecrets: true, enableTls: true, clientNodePort: 30379, etcdBackendQuotaSize: 128}")
	set("keystone", "{bootstrapPassword: pw, disableTLS: false, publicService: {internalOnly: false, nodePort: 30500}, adminService: {internalOnly: false, nodePort: 30357}}")
	set("hostagent", "{SdnAgent: {image: a}, OvnController: {image: b}, HostHealth: {image: c}, hostCpuPassthrough: null, maxUnavailableCount: 3, updateStrategy: ''}")
	set("web", "{useHTTP: false, Overview: {image: a, limits: null}, Docs: {image: b}}")
	set("regionServer", "{dnsServer: '', dnsDomain: '', dnsConfig: {options: [{name: ndots, value: '2'}]}}")
	set("apiGateway", "{apiService: {nodePort: 30300}, wsService: {nodePort: 30443}, corsHosts: null}")
	set("victoriaMetrics", "{rententionPeriodDays: 93, storageClassName: local-path}")
	set("baremetalagent", "{zones: null}")
	o["status"] = map[string]any{
		"clusterID": "", "specChecksum": "abc", "phase": "",
		"keystone": map[string]any{"phase": "Normal", "deployment": map[string]any{"replicas": int64(1)}, "imageStatus": map[string]any{"image": "x", "tag": "v"}},
		"region":   map[string]any{"phase": "Upgrade", "RegionId": "region0", "CustomZones": map[string]any{"a": "b"}},
		"etcd":     map[string]any{"phase": "Running", "members": map[string]any{"ready": []any{"m"}}},
	}
	return o
}

func TestEarlierResourceApplies(t *testing.T) {
	d := load(t)
	o := earlier(t)
	if got := d.refuse(t, o, nil); got != "" {
		t.Errorf("refused: %s", got)
	}
	if unknown := pruning.PruneWithOptions(o, d.structural, true, schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}); len(unknown) > 0 {
		t.Errorf("kubectl would refuse unknown fields: %v", unknown)
	}
	cr := &v1alpha1.OnecloudCluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o, cr); err != nil {
		t.Fatalf("the operator cannot read it: %v", err)
	}
	if cr.Status.Keystone == nil || cr.Status.Keystone.ImageStatus.Tag != "v" || cr.Spec.Keystone.BootstrapPassword != "pw" {
		t.Errorf("read wrongly: %+v", cr.Status.Keystone)
	}
}

// The table of blocks matches the fields of the spec.
func TestBlocksMatchFields(t *testing.T) {
	spec := &v1alpha1.OnecloudClusterSpec{}
	block := reflect.TypeFor[v1alpha1.ComponentSpec]()
	for _, f := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.OnecloudClusterSpec]()) {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		isBlock := f.Type == block
		if f.Type.Kind() == reflect.Struct && !isBlock {
			_, isBlock = f.Type.FieldByName("ComponentSpec")
		}
		got := spec.Component(key)
		if isBlock != (got != nil) {
			t.Errorf("block %s: in the table %v, a field %v", key, got != nil, isBlock)
			continue
		}
		if isBlock && reflect.ValueOf(got).Pointer() != reflect.ValueOf(spec).Elem().FieldByIndex(f.Index).Addr().Pointer() {
			t.Errorf("block %s leads to another field", key)
		}
	}
	legacy := &v1alpha1.Legacy{}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[v1alpha1.Legacy]()) {
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		got := legacy.Workload(key)
		if got == nil || reflect.ValueOf(got).Pointer() != reflect.ValueOf(legacy).Elem().FieldByIndex(f.Index).Addr().Pointer() {
			t.Errorf("status key %s leads elsewhere", key)
		}
	}
}

// A cloud that is accepted but cannot be read would stop the operator for all clouds: it reads them as one list.
func TestAcceptedCanBeRead(t *testing.T) {
	d := load(t)
	for _, spec := range []string{
		"keystone: {limits: {cpu: 1e99999999999999999999}}", "keystone: {requests: {memory: 1e99999999999999999999}}", "keystone: {limits: {cpu: 1e19, memory: 1e-3}}",
		"keystone: {limits: {cpu: 99999999999999999999999, memory: 1e30}}", "keystone: {limits: {cpu: -1, memory: '1e+3'}}", "keystone: {limits: {cpu: 1E5}}",
		"host: {maxUnavailable: 3000000000}", "host: {maxUnavailableCount: 3000000000}", "keystone: {tolerations: [{tolerationSeconds: 99999999999999999999}]}",
		"etcd: {etcdBackendQuotaSize: 99999999999999999999}", "regionDNS: {cache_ttl: 3000000000}", "machines: {settings: {conntrackMaxPerCore: 3000000000}}",
		"keystone: {replicas: 1.0}", "keystone: {replicas: 5e0}", "components: {x: {maxUnavailable: 99999999999999999999}}",
	} {
		o := object(t, mysql+spec)
		raw, err := json.Marshal(o)
		require.NoError(t, err)
		if why := d.refuse(t, o, nil); why != "" {
			continue
		}
		if err := json.Unmarshal(raw, &v1alpha1.OnecloudCluster{}); err != nil {
			t.Errorf("%s is accepted: %v", spec, err)
		}
	}
}
