// SPDX-License-Identifier: Apache-2.0

package catalog_test

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/images"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/test/require"
)

// everything enables all options, so that every option and every object of a component shows.
const everything = `
mysql: {host: 10.0.0.5}
clickhouse: {host: 10.0.0.6}
version: v4.0.4
loadBalancerEndpoint: LB
enableCloudNet: true
enableS3Gateway: true
minio: {enable: true}
monitorStack: {disable: false}
regionServer: {dnsDomain: example.org}
apiGateway: {corsHosts: [example.org]}
apiMap: {disable: false}
cloudmux: {disable: false}
echartsSSR: {disable: false}
onecloudServiceOperator: {disable: false}
backup: {disable: false}
`

var (
	allEditions = []string{"ce", "ce/support", "ee"}
	allProducts = []string{"AI", "CMP", "Edge", "FullStack", "LightEdge"}
)

func cloud(t *testing.T, spec, edition, product string, change ...func(*v1alpha1.OnecloudClusterSpec)) component.Cluster {
	t.Helper()
	cr := &v1alpha1.OnecloudCluster{}
	cr.Name, cr.Namespace, cr.Annotations = "default", "onecloud", map[string]string{v1alpha1.AnnotationEdition: edition}
	require.NoError(t, yaml.UnmarshalStrict([]byte(spec), &cr.Spec))
	cr.Spec.ProductVersion = product
	for _, c := range change {
		c(&cr.Spec)
	}
	table, err := images.Load()
	require.NoError(t, err)
	cluster, err := resolve.Cluster(cr, resolve.Facts{Components: catalog.All(), Images: table.Refs()})
	require.NoError(t, err)
	return cluster
}

// shortImage returns an image without its registry.
func shortImage(s string) string { return path.Base(s) }

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

// factsOf returns the facts about a component that testdata/earlier.yaml also states.
func factsOf(t *testing.T, name string) map[string]string {
	f := map[string]string{}
	editions, products, image := where(t, name)
	set := func(k, v string) {
		if v != "" {
			f[k] = v
		}
	}
	if len(editions) < len(allEditions) {
		set("editions", strings.Join(editions, ", "))
	}
	if len(products) < len(allProducts) {
		set("products", strings.Join(products, ", "))
	}
	if minimal := cloud(t, "mysql: {host: 10.0.0.5}", editions[0], products[0]); !minimal.Components[name].Enabled {
		set("default", "off")
	}
	for e, i := range image {
		if i == image[editions[0]] {
			continue
		}
		set("image in "+e, i)
	}
	set("image", image[editions[0]])
	one := cloud(t, everything, editions[0], products[0], func(s *v1alpha1.OnecloudClusterSpec) { s.UseHyperImage = true }).Components[name]
	set("image in one", yes(strings.HasPrefix(shortImage(one.FullImage), "cloudpods")))

	product := "FullStack"
	if !slices.Contains(products, product) {
		product = products[0]
	}
	cluster := cloud(t, everything, editions[0], product)
	r := cluster.Components[name]
	set("spec", r.SpecKey)
	set("status", r.StatusKey)
	set("read replicas", yes(r.Workload.ReadReplicas))
	set("per zone", yes(r.Workload.PerZone))
	outside(cluster, r, set)
	options(cluster, r, set)
	o := objectsOf(t, cluster, r)
	objectFacts(r, o, set)
	main := containers(o, r, "container", "init", set)
	if slices.Contains(editions, "ee") && editions[0] != "ee" {
		ee := cloud(t, everything, "ee", product)
		f2 := map[string]string{}
		if main != containers(objectsOf(t, ee, ee.Components[name]), ee.Components[name], "container in ee", "", func(k, v string) {
			if v != "" && !strings.Contains(k, " mount ") && !strings.HasSuffix(k, " image") {
				f2[k] = v
			}
		}) {
			for k, v := range f2 {
				set(k, v)
			}
		}
	}
	return f
}

// where returns the editions and products that have a component, and its image in each edition.
func where(t *testing.T, name string) (editions, products []string, image map[string]string) {
	t.Helper()
	image = map[string]string{}
	for _, e := range allEditions {
		for _, p := range allProducts {
			r := cloud(t, everything, e, p).Components[name]
			if !r.Enabled {
				continue
			}
			if !slices.Contains(editions, e) {
				editions = append(editions, e)
			}
			if !slices.Contains(products, p) {
				products = append(products, p)
			}
			if r.FullImage != "" {
				image[e] = shortImage(r.FullImage)
			}
		}
	}
	slices.Sort(products)
	if len(editions) == 0 {
		t.Fatalf("%s runs nowhere", name)
	}
	return editions, products, image
}

func objectsOf(t *testing.T, cluster component.Cluster, r component.Resolved) component.Objects {
	t.Helper()
	o, err := render.Component(r, component.Inputs{Cluster: cluster, Credentials: component.Placeholders(cluster)})
	require.NoError(t, err)
	return o
}

// outside sets the facts outside Kubernetes: databases, accounts, the service catalog.
func outside(cluster component.Cluster, r component.Resolved, set func(k, v string)) {
	if d := r.Database; d != nil {
		set("database", d.Name+" of "+d.Account())
	}
	if r.Config != nil && slices.Contains(r.Config.Groups, component.GroupClickHouse) && r.Database != nil {
		set("clickhouse", r.Database.Name+" of "+r.Database.Account())
	}
	if r.Config != nil && r.Config.AccountOf != "" {
		set("database", "uses "+r.Config.AccountOf)
		set("account", cluster.Components[r.Config.AccountOf].Account.User)
	}
	if r.Config != nil && r.Config.Of != "" {
		set("account", cluster.Components[r.Config.Of].Account.User)
	}
	if r.Account != nil {
		set("account", r.Account.User)
	}
	for _, s := range r.Register {
		set("record "+s.Name, s.Type)
	}
	for _, e := range r.Endpoints {
		interfaces := e.Interfaces
		if interfaces == nil {
			interfaces = []string{"public", "internal"}
		}
		for _, i := range interfaces {
			set("endpoint "+e.Service+" "+i, e.Type+" "+address(cluster, r, e, i))
		}
	}
}

func address(cluster component.Cluster, r component.Resolved, e component.Endpoint, iface string) string {
	if e.URL != "" {
		return e.URL
	}
	host, scheme, port := r.Name+e.ServiceSuffix, "https", cluster.NodePort(r.Name, e.Port)
	if e.ServiceSuffix != "" && iface != "internal" {
		port = cluster.NodePort(r.Name, e.ServiceSuffix+e.Port)
	}
	if iface != "internal" {
		host = cluster.LoadBalancer
	}
	if e.Scheme != "" {
		scheme = e.Scheme
	}
	return fmt.Sprintf("%s://%s:%d%s", scheme, host, port, e.Path)
}

// options sets the options of the configuration file, by name.
func options(cluster component.Cluster, r component.Resolved, set func(k, v string)) {
	if r.Config == nil {
		return
	}
	dir, file := r.Config.Dir, r.Config.File
	if dir == "" {
		dir = "/etc/yunion"
	}
	if file == "" {
		file = r.Name + ".conf"
	}
	set("file", dir+"/"+file)
	for _, g := range r.Config.Groups {
		set("options "+string(g), "yes")
	}
	in := component.Inputs{Cluster: cluster, Self: r, Credentials: component.Placeholders(cluster)}
	for _, make := range []func(component.Inputs) map[string]any{r.Config.Options, r.Config.Secrets} {
		if make == nil {
			continue
		}
		for k := range make(in) {
			if k != "port" || len(r.Config.Groups) == 0 { // otherwise it is in the group
				set("option "+k, "yes")
			}
		}
	}
}

// objectFacts sets the facts of everything but the containers.
func objectFacts(r component.Resolved, o component.Objects, set func(k, v string)) {
	kinds := map[string]bool{"ConfigMap": len(o.ConfigMaps) > 0, "PVC": len(o.PVCs) > 0, "Service": len(o.Services) > 0, "Ingress": len(o.Ingresses) > 0}
	if o.Workload != nil {
		kinds[strings.TrimPrefix(fmt.Sprintf("%T", o.Workload), "*v1.")] = true
	}
	var names []string
	for k, there := range kinds {
		if there {
			names = append(names, k)
		}
	}
	slices.Sort(names)
	set("kinds", strings.Join(names, ", "))
	for _, obj := range o.Services {
		s, _ := obj.(*corev1.Service)
		kind := string(s.Spec.Type)
		if s.Spec.ClusterIP == corev1.ClusterIPNone {
			kind = "headless"
		}
		var ports []string
		for _, p := range s.Spec.Ports {
			text := fmt.Sprintf("%s %d>%s", p.Name, p.Port, p.TargetPort.String())
			if p.NodePort > 0 {
				text += fmt.Sprintf("@%d", p.NodePort)
			}
			ports = append(ports, text)
		}
		set("service "+s.Name, strings.TrimSpace(kind+" "+strings.Join(ports, ", ")))
	}
	if len(o.PVCs) > 0 {
		text := r.StorageSize + " " + r.StorageClass
		for k, v := range o.PVCs[0].GetAnnotations() {
			text += " " + k + "=" + v
		}
		set("claim", text)
	}
	switch w := o.Workload.(type) {
	case *appsv1.Deployment:
		set("strategy", string(w.Spec.Strategy.Type))
	case *appsv1.DaemonSet:
		set("strategy", "maxUnavailable "+w.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable.String())
	}
	if pod := podSpec(o.Workload); pod != nil {
		podFacts(r, pod, set)
	}
}
