// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/test/require"
)

// few returns the components of a small cloud.
func few() []string {
	return []string{"keystone", "region", "scheduler", "glance", "logger", "webconsole", "host", "notify"}
}

// small limits a cloud to a few components: the fake client is slow with every object.
func (b *bench) small() {
	table := b.r.reads.catalog.only(few())
	b.r.reads.catalog, b.r.acts.catalog = table, table
}

// smallBench is a bench of a small cloud.
func smallBench(t *testing.T) *bench {
	cr := newCloud()
	cr.Spec.Logger.Service.NodePort = 31700 // the fake client loses a choice in a block that otherwise only has defaults
	b := newBench(t, interceptor.Funcs{}, cr)
	b.small()
	b.settle()
	return b
}

// live returns the objects of the cloud, without the operator's own records, as a release.
func (b *bench) live() *release.Release {
	b.t.Helper()
	out := &release.Release{}
	for _, kind := range render.Kinds() {
		err := b.r.reads.each(b.t.Context(), kind, cloudKey.Namespace, func(key engine.Key, o client.Object) {
			if release.Revision(o) > 0 {
				return
			}
			o = render.Kind(o.DeepCopyObject().(client.Object))
			if cm, ok := o.(*corev1.ConfigMap); ok { // options of users are not part of a release
				for k := range render.Chosen(cm) {
					delete(cm.Data, k)
				}
			}
			one, err := release.ObjectOf("", 0, "", o)
			require.NoError(b.t, err)
			out.Objects = append(out.Objects, one)
		})
		require.NoError(b.t, err)
	}
	out.Effects = maps.Clone(b.cloud().Status.Effects)
	return out
}

// said returns the lines that compare two differences: objects, fields, and what is done outside Kubernetes.
func said(d release.Diff) []string {
	var out []string
	for _, o := range d.Objects {
		if o.Kind == v1alpha1.Kind {
			continue // the fake client has no schema for it
		}
		if o.Action != release.Change {
			out = append(out, o.Action+" "+o.Kind+" "+o.Name)
		}
		for _, f := range o.Fields {
			line := o.Kind + " " + o.Name + ": " + f.String()
			if strings.Contains(f.Path, v1alpha1.AnnotationCertHash) { // keys are generated each time
				line = o.Kind + " " + o.Name + ": " + f.Path
			}
			out = append(out, line)
		}
	}
	for _, key := range d.Effects {
		out = append(out, "effect "+key)
	}
	slices.Sort(out)
	return out
}

// mutation is a random change.
type mutation struct {
	name string
	do   func(b *bench, n int)
}

// mutations returns changes of the spec, the ConfigMaps, the Secrets and the operator's build.
func mutations() []mutation {
	spec := func(format string) func(*bench, int) {
		return func(b *bench, n int) {
			b.edit(fmt.Sprintf(`{"metadata":{"generation":%d},"spec":%s}`, b.cloud().Generation+1, strings.ReplaceAll(format, "N", strconv.Itoa(n))))
		}
	}
	option := func(component, format string) func(*bench, int) {
		return func(b *bench, n int) {
			require.NoError(b.t, edit(b.t, &corev1.ConfigMap{}, "default-"+component, `{"data":`+strings.ReplaceAll(format, "N", strconv.Itoa(n))+`}`)(b.api))
		}
	}
	build := func(change func(*catalogue, int)) func(*bench, int) {
		return func(b *bench, n int) { b.build(&[]string{}, func(c *catalogue) { change(c, n) }) }
	}
	return []mutation{
		{"replicas", spec(`{"glance":{"replicas":N}}`)},
		{"version", spec(`{"version":"v4.0.N"}`)},
		{"repository", spec(`{"imageRepository":"r.example.com/N"}`)},
		{"image", spec(`{"webconsole":{"image":"r.example.com/webconsole:N"}}`)},
		{"tag", spec(`{"regionServer":{"tag":"hotfix-N"}}`)},
		{"off", spec(`{"notify":{"disable":true}}`)},
		{"on", spec(`{"notify":{"disable":false}}`)},
		{"port", spec(`{"logger":{"service":{"nodePort":3170N}}}`)},
		{"address", spec(`{"loadBalancerEndpoint":"10.0.0.1N"}`)},
		{"name in the certificate", spec(`{"certSANs":["n.example.com","cN.example.com"]}`)},
		{"maxUnavailable", spec(`{"hostagent":{"maxUnavailable":N}}`)},
		{"option", option("logger", `{"action_log_exceed_count":"10N"}`)},
		{"own option", option("region", `{"request_worker_count":"N"}`)},
		{"option taken back", option("logger", `{"action_log_exceed_count":null}`)},
		{"wrong option", option("scheduler", `{"no_such_option":"N"}`)},
		{"password", func(b *bench, n int) {
			patch := fmt.Sprintf(`{"stringData":null,"data":{"glance.account-password":"cGFzc3dvcmQt%dA=="}}`, n)
			require.NoError(b.t, edit(b.t, &corev1.Secret{}, "default-credentials", patch)(b.api))
		}},
		{"build: template", build(func(c *catalogue, n int) {
			c.edit("glance", func(c *component.Component) {
				c.Workload.Command = append(slices.Clone(c.Workload.Command), "--newer="+strconv.Itoa(n))
			})
		})},
		{"build: port", build(func(c *catalogue, n int) {
			c.edit("keystone", func(c *component.Component) {
				c.Service = new(*c.Service)
				c.Service.Ports = append(slices.Clone(c.Service.Ports[:2]), component.Port{Name: "newer", Port: 30770 + int32(n)})
			})
		})},
		{"build: option", build(func(c *catalogue, n int) {
			c.edit("region", func(c *component.Component) {
				c.Config = new(*c.Config)
				c.Config.Options = func(component.Inputs) map[string]any { return map[string]any{"newer": n} }
			})
		})},
		{"build: component", build(func(c *catalogue, n int) {
			name := "newcomer" + strconv.Itoa(n)
			if !slices.Contains(c.names, name) {
				c.add(component.Component{Name: name, Image: component.Image{Name: name}, Workload: component.Workload{Command: []string{"/newcomer"}}, Database: &component.Database{Name: name}, After: []string{"keystone"},
					Service: &component.Service{Ports: []component.Port{{Name: "api", Port: 30780 + int32(n)}}}})
			}
		})},
		{"build: one less", build(func(c *catalogue, n int) {
			last := func(name string) bool { return name == "newcomer"+strconv.Itoa(n) }
			c.components = slices.DeleteFunc(c.components, func(c component.Component) bool { return last(c.Name) })
			c.names, c.order = slices.DeleteFunc(c.names, last), slices.DeleteFunc(c.order, last)
		})},
		{"update", func(b *bench, _ int) {
			b.edit(fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, v1alpha1.AnnotationUpdateFrom, b.cloud().Status.Release.Revision))
		}},
	}
}

// The diff announces exactly the changes that follow: random changes, each with a diff before it is made. A full run (OCADM_SWEEP) makes 200, which
// takes minutes, otherwise one of each kind.
func TestDiffIsExact(t *testing.T) {
	b := smallBench(t)
	random := rand.New(rand.NewPCG(11, 200))
	all, somewhat := mutations(), 0
	count, least := len(all), len(all)/3
	if os.Getenv("OCADM_SWEEP") != "" {
		count, least = 200, 60
	}
	each := random.Perm(len(all))
	for i := range count {
		m, n := all[each[i%len(all)]], 1+random.IntN(5)
		if i >= len(all) {
			m = all[random.IntN(len(all))]
		}
		m.do(b, n)
		view, err := b.r.preview(t.Context(), &cloud{effects: effects.NewMemory()}, b.cloud())
		if err != nil {
			t.Fatalf("%d: %s %d: %v", i, m.name, n, err)
		}
		predicted := said(release.Compare(view.Now, view.Next, view.Redact))
		before := b.live()
		b.settleAll()
		follows := said(release.Compare(before, b.live(), view.Redact))
		if d := cmp.Diff(predicted, follows); d != "" {
			t.Fatalf("%d: %s %d: what was said (-) and what followed (+):\n%s", i, m.name, n, d)
		}
		if len(follows) > 0 {
			somewhat++
		}
		if strings.HasPrefix(m.name, "build") && len(follows) > 0 {
			t.Fatalf("%d: %s %d: a build alone wrote:\n%s", i, m.name, n, strings.Join(follows, "\n"))
		}
		text := fmt.Sprint(predicted)
		for key, password := range b.r.reads.clouds.of[cloudKey].memos.desired.value.Credentials {
			if len(password) > 8 && strings.Contains(text, password) {
				t.Fatalf("%d: %s: it shows %s", i, m.name, key)
			}
		}
	}
	t.Logf("%d of %d changes changed something", somewhat, count)
	if somewhat < least {
		t.Errorf("only %d changes changed anything", somewhat)
	}
}

// The diff of a paused cloud shows what follows the end of the pause.
func TestDiffDuringAPause(t *testing.T) {
	b := smallBench(t)
	b.edit(fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}},"spec":{"glance":{"replicas":3}}}`, v1alpha1.AnnotationPaused))
	b.settleAll()
	view, err := b.r.preview(t.Context(), &cloud{effects: effects.NewMemory()}, b.cloud())
	require.NoError(t, err)
	d := release.Compare(view.Now, view.Next, view.Redact)
	if !slices.ContainsFunc(d.Objects, func(o release.ObjectDiff) bool { return o.Kind == "Deployment" && o.Name == "default-glance" }) {
		t.Errorf("%+v", d)
	}
}
