// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/reconcile"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
)

// anotherBuild returns the catalogue of another build: with another pod template of glance, an additional port of keystone and an additional component.
func anotherBuild(n int) []component.Component {
	all := slices.Clone(catalog.All())
	for i := range all {
		switch c := &all[i]; c.Name {
		case "glance":
			c.Workload.Env = func(component.Inputs) []corev1.EnvVar {
				return []corev1.EnvVar{{Name: "NEWER", Value: strconv.Itoa(n)}}
			}
		case "keystone":
			c.Service = new(*c.Service)
			c.Service.Ports = append(slices.Clone(c.Service.Ports), component.Port{Name: "newer", Port: 30790 + int32(n)})
		}
	}
	return append(all, component.Component{
		Name: "newcomer", Image: component.Image{Name: "newcomer"}, Workload: component.Workload{Command: []string{"/newcomer"}}, After: []string{"keystone"},
		Service: &component.Service{Ports: []component.Port{{Name: "api", Port: 30780}}}, Database: &component.Database{Name: "newcomer"},
	})
}

func builtFrom(all []component.Component) func(*env.Launch) {
	return func(l *env.Launch) { l.Options.Components = all }
}

// changesOf returns the objects that the operator changed, as KIND/NAME in lower case, without its own records.
func (e *cloudTest) changesOf(requests []harness.Request) []string {
	e.Helper()
	var out []string
	for _, q := range (env.Work{Kubernetes: requests}).Changes() {
		bookkeeping := q.Resource == "onecloudoperations" || strings.Contains(q.Name, "-release-") || strings.HasSuffix(q.Name, "-log")
		if q.Code < 300 && !bookkeeping && !strings.Contains(q.URI, "dryRun=All") {
			out = append(out, singular(q.Resource)+"/"+q.Name)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// singular returns the kind of a resource in lower case.
func singular(resource string) string {
	if resource == "ingresses" {
		return "ingress"
	}
	return strings.TrimSuffix(resource, "s")
}

// TestAnotherBuildOnRunningCloud starts another build of the operator on a running cloud, with a real API server. It reports what it would change but
// changes nothing. An update makes these changes in waves.
func TestAnotherBuildOnRunningCloud(t *testing.T) {
	e := installed(t, env.Options{}, env.Small...)
	e.StopOperator()
	newer, from := builtFrom(anotherBuild(1)), e.Mark()
	e.StartOperator(newer)
	e.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
		return cr != nil && meta.IsStatusConditionTrue(cr.Status.Conditions, v1alpha1.ConditionUpdateAvailable)
	})
	e.Rest()
	if wrote := e.changesOf(e.Requests(from, harness.Filter{User: env.OperatorUser})); len(wrote) > 0 {
		t.Errorf("another build alone changed %q", wrote)
	}
	c := meta.FindStatusCondition(e.Cloud().Status.Conditions, v1alpha1.ConditionUpdateAvailable)
	for _, name := range []string{"glance", "keystone", "newcomer"} {
		if !strings.Contains(c.Message, name) {
			t.Errorf("%s is not named: %s", name, c.Message)
		}
	}
	if strings.Contains(c.Message, "region") {
		t.Errorf("region is named: %s", c.Message)
	}

	from = e.Mark()
	e.Operation("newer", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionUpdate, Update: &v1alpha1.UpdateParameters{}})
	if o := e.UntilOperation("newer", env.Ended); o.Status.Phase != v1alpha1.OperationSucceeded {
		t.Fatalf("%s: %s: %+v", o.Status.Phase, o.Status.Message, o.Status.Steps)
	}
	e.UntilReady()
	e.Rest()
	d, s := &appsv1.Deployment{}, &corev1.Service{}
	e.Get(d, cloud+"-glance")
	if got := d.Spec.Template.Spec.Containers[0].Env; !slices.Contains(got, corev1.EnvVar{Name: "NEWER", Value: "1"}) {
		t.Errorf("glance: %v", got)
	}
	e.Get(s, cloud+"-keystone")
	if !slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == 30791 }) {
		t.Errorf("keystone: %v", s.Spec.Ports)
	}
	e.Get(d, cloud+"-newcomer")
	if meta.IsStatusConditionTrue(e.Cloud().Status.Conditions, v1alpha1.ConditionUpdateAvailable) {
		t.Error("an update is still available")
	}
	first := func(object string) int {
		all := e.changesInOrder(e.Requests(from, harness.Filter{User: env.OperatorUser}))
		return slices.Index(all, object)
	}
	if keystone, glance := first("service/default-keystone"), first("deployment/default-glance"); keystone < 0 || glance < keystone {
		t.Errorf("the wave of keystone is not before that of glance: %d, %d", keystone, glance)
	}
}

// changesInOrder returns the changed objects in the order of the requests.
func (e *cloudTest) changesInOrder(requests []harness.Request) []string {
	var out []string
	for _, q := range (env.Work{Kubernetes: requests}).Changes() {
		out = append(out, singular(q.Resource)+"/"+q.Name)
	}
	return out
}

// realChanges returns the changes that the exactness test makes to a cloud; each takes a number.
func realChanges() map[string]func(e *cloudTest, n int) {
	spec := func(format string) func(*cloudTest, int) {
		return func(e *cloudTest, n int) { e.Edit(`{"spec":` + strings.ReplaceAll(format, "N", strconv.Itoa(n)) + `}`) }
	}
	option := func(component, format string) func(*cloudTest, int) {
		return func(e *cloudTest, n int) {
			e.EditObject(&corev1.ConfigMap{}, cloud+"-"+component, `{"data":`+strings.ReplaceAll(format, "N", strconv.Itoa(n))+`}`)
		}
	}
	return map[string]func(*cloudTest, int){
		"replicas": spec(`{"glance":{"replicas":N}}`), "version": func(e *cloudTest, n int) { e.MoveAtOnce("v4.0." + strconv.Itoa(n)) }, "repository": spec(`{"imageRepository":"r.example.com/N"}`),
		"image": spec(`{"glance":{"image":"r.example.com/glance:N"}}`), "tag": spec(`{"regionServer":{"tag":"hotfix-N"}}`),
		"off": spec(`{"web":{"disable":true}}`), "on": spec(`{"web":{"disable":false}}`), "address": spec(`{"loadBalancerEndpoint":"10.0.0.1N"}`),
		"certificate": spec(`{"certSANs":["n.example.com","cN.example.com"]}`), "limits": spec(`{"keystone":{"limits":{"cpu":"N"}}}`),
		"annotations": spec(`{"region":"region0","yunionconf":{"annotations":{"some.example.com/key":"N"}}}`),
		"tolerations": spec(`{"glance":{"tolerations":[{"key":"key-N","operator":"Exists"}]}}`),
		"option":      option("glance", `{"log_level":"debug","image_stream_worker_count":"N"}`), "option back": option("glance", `{"log_level":null}`),
		"wrong option": option("yunionconf", `{"no_such_option":"N"}`), "option of region": option("region", `{"request_worker_count":"N"}`),
	}
}

// configMaps returns the options in the ConfigMaps, by configmap/NAME.
func (e *cloudTest) configMaps() map[string]map[string]string {
	e.Helper()
	out := map[string]map[string]string{}
	for _, o := range e.Objects(&corev1.ConfigMap{}) {
		out["configmap/"+o.GetName()] = o.(*corev1.ConfigMap).Data
	}
	return out
}

// TestDiffIsWhatFollows checks that a diff lists the changes that the API server's audit log then shows, for random changes and builds of the
// operator: 20 with OCADM_SWEEP, otherwise ten. TestDiffIsExact has more, with a client in memory.
func TestDiffIsWhatFollows(t *testing.T) {
	count := 10
	if os.Getenv("OCADM_SWEEP") != "" {
		count = 20
	}
	e := installed(t, env.Options{}, env.Small...)
	all := realChanges()
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	random := rand.New(rand.NewPCG(20, 11))
	build, least, somewhat := 0, count/2, 0
	for i := range count {
		e.StopOperator()
		n, what := 1+random.IntN(4), names[random.IntN(len(names))]
		if i%5 == 4 {
			build++
			what = "update to build " + strconv.Itoa(build)
			e.Edit(fmt.Sprintf(`{"metadata":{"annotations":{%[1]q:"%[2]d",%[3]q:"%[2]d"}}}`, v1alpha1.AnnotationUpdateFrom, e.Cloud().Status.Release.Revision, v1alpha1.AnnotationAtOnce))
		} else {
			all[what](e, n)
		}
		var components []component.Component
		if build > 0 {
			components = anotherBuild(build)
		}
		view, err := reconcile.PreviewOf(t.Context(), e.Client, e.Client, reconcile.Options{Components: components, Operations: true}, e.Cloud())
		if err != nil {
			t.Fatalf("%d: %s %d: %v", i, what, n, err)
		}
		diff := release.Compare(view.Now, view.Next, view.Redact)
		var want []string
		for _, o := range diff.Objects {
			want = append(want, strings.ToLower(o.Kind)+"/"+o.Name)
		}
		slices.Sort(want)
		from, options := e.Mark(), e.configMaps()
		before := e.Cloud().Status.Release.Revision
		passes, _ := e.Passes()
		e.StartOperator(builtFrom(components))
		e.UntilCloud(func(cr *v1alpha1.OnecloudCluster) bool {
			return env.IsReady(cr) && (diff.Empty() || cr.Status.Release.Revision > before)
		})
		e.UntilQuiet(passes)
		now := e.configMaps()
		got := slices.DeleteFunc(e.changesOf(e.Requests(from, harness.Filter{User: env.OperatorUser})), func(object string) bool {
			// The operator gives up an option that a user has adopted: only its owner changes.
			is, there := now[object]
			was, known := options[object]
			return there && known && maps.Equal(is, was)
		})
		if !slices.Equal(got, want) {
			t.Errorf("%d: %s %d: changed %q, the diff says %q", i, what, n, got, want)
		}
		if len(want) > 0 {
			somewhat++
		}
	}
	if somewhat < least {
		t.Errorf("only %d of %d changes changed anything", somewhat, count)
	}
}
