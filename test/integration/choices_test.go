// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/integration/harness"
)

const (
	registry = "registry.cn-beijing.aliyuncs.com/yunionio"
	pinned   = "192.168.0.1:5000/mine/logger@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// TestChoices is what the spec shows and what it means, with every way in which people write it. No database is reached: the cloud gets
// no further than its first objects, and its status tells the images all the same.
func TestChoices(t *testing.T) {
	r := &rig{t: t, whole: t.Context(), log: &harness.Log{}, namespaces: []string{namespace}, dial: (&net.Dialer{}).DialContext}
	r.cluster = harness.Require(t, harness.Options{})
	var err error
	if r.client, err = kube.New(r.cluster.Config(harness.Admin)); err != nil {
		t.Fatal(err)
	}
	r.apply("operator/deployment", "operator/rbac", "operator/namespace", "operator/crds")
	r.startOperator()
	t.Cleanup(r.stopOperator)
	if err := r.client.Create(t.Context(), r.cloudAt("127.0.0.1", 1), client.FieldOwner("kubectl-create")); err != nil {
		t.Fatal(err)
	}
	r.run([]part{
		{"every service is filled in", (*rig).filledIn},
		{"kubectl edit", (*rig).chooseByEdit},
		{"kubectl patch", (*rig).chooseByPatch},
		{"kubectl apply --server-side", (*rig).chooseByServerSideApply},
		{"kubectl apply", (*rig).chooseByClientSideApply},
		{"switched off and on, nothing is lost", (*rig).offAndOn},
		{"a new release moves what is ours", (*rig).newRelease},
		{"a saved file moves every service", (*rig).savedFiles},
	})
	if t.Failed() {
		said := r.log.String()
		t.Logf("operator:\n%s", said[max(0, len(said)-4000):])
	}
}

// shows waits until fields of the spec have these values, "" for none.
func (r *rig) shows(want map[string]string) {
	r.t.Helper()
	r.until(&v1alpha1.OnecloudCluster{}, cloud, func(o client.Object) (bool, string) {
		cr, ok := o.(*v1alpha1.OnecloudCluster)
		if !ok {
			return false, "it is gone"
		}
		spec := savedSpec(r.t, cr)
		var wrong []string
		for path, value := range want {
			if have := textAt(spec, path); have != value {
				wrong = append(wrong, fmt.Sprintf("spec.%s is %q, want %q", path, have, value))
			}
		}
		return len(wrong) == 0, strings.Join(wrong, "; ")
	})
}

func textAt(spec map[string]any, path string) string {
	value, found, err := unstructured.NestedFieldNoCopy(spec, strings.Split(path, ".")...)
	if err != nil || !found {
		return ""
	}
	if n, ok := value.(float64); ok {
		value = int64(n)
	}
	return fmt.Sprint(value)
}

// imageIs waits until the status tells which image a component runs, and whether somebody chose it.
func (r *rig) imageIs(name, image string, choice bool) {
	r.t.Helper()
	r.until(&v1alpha1.OnecloudCluster{}, cloud, func(o client.Object) (bool, string) {
		cr, ok := o.(*v1alpha1.OnecloudCluster)
		if !ok {
			return false, "it is gone"
		}
		i := slices.IndexFunc(cr.Status.Components, func(c v1alpha1.ComponentStatus) bool { return c.Name == name })
		if i < 0 {
			return false, "no status of " + name
		}
		c := cr.Status.Components[i]
		return c.Image == image && c.Pinned == choice, fmt.Sprintf("%s runs %s (pinned %v), want %s", name, c.Image, c.Pinned, image)
	})
}

func (r *rig) filledIn() {
	r.shows(map[string]string{"keystone.image": registry + "/keystone:v4.0.4", "zone": "zone0"})
	spec := savedSpec(r.t, r.cloud())
	for _, c := range catalog.All() {
		if c.Releases.Lacks("v4.0.4") != "" {
			continue
		}
		if c.SpecKey == "" || len(c.Editions) > 0 || c.Gate != nil || c.Workload.Kind == component.NoWorkload || c.OffByDefault {
			continue
		}
		fields := []string{"image", "imagePullPolicy"}
		if !strings.Contains(c.SpecKey, ".") {
			fields = append(fields, "tolerations")
			if c.Workload.Kind == "" {
				fields = append(fields, "replicas")
			}
			if c.Storage != nil {
				fields = append(fields, "requests.storage", "storageClassName")
			}
			if c.Service != nil && len(c.Service.Ports) > 0 && c.Service.Ports[0].SpecKey != "" {
				fields = append(fields, c.Service.Ports[0].SpecKey)
			}
		}
		for _, f := range fields {
			if textAt(spec, c.SpecKey+"."+f) == "" {
				r.t.Errorf("spec.%s.%s is not filled in", c.SpecKey, f)
			}
		}
	}
}

// chooseByEdit: the editor sends the whole object back; whoever wrote it owns what differs, and only that.
func (r *rig) chooseByEdit() {
	cr := r.cloud()
	three := int32(3)
	cr.Spec.Glance.Replicas = &three
	cr.Spec.Keystone.Image = registry + "/keystone:v4.0.0" // one service goes back a release
	r.update(cr)
	r.shows(map[string]string{"glance.replicas": "3", "keystone.replicas": "1"})
	r.imageIs("keystone", registry+"/keystone:v4.0.0", true)
	r.edit(r.cloud(), `{"spec":{"version":"v4.0.5"}}`)
	r.shows(map[string]string{"glance.replicas": "3", "keystone.image": registry + "/keystone:v4.0.0", "glance.image": registry + "/glance:v4.0.5"})
	cr = r.cloud()
	cr.Spec.Glance.Replicas, cr.Spec.Keystone.Image = nil, ""
	r.update(cr)
	r.shows(map[string]string{"glance.replicas": "1", "keystone.image": registry + "/keystone:v4.0.5"})
	r.imageIs("keystone", registry+"/keystone:v4.0.5", false)
}

// update is the end of `kubectl edit`, again if the operator was faster.
func (r *rig) update(cr *v1alpha1.OnecloudCluster) {
	r.t.Helper()
	err := r.client.Update(r.t.Context(), cr, client.FieldOwner("kubectl-edit"))
	for tries := 0; apierrors.IsConflict(err) && tries < 20; tries++ {
		cr.ResourceVersion = r.cloud().ResourceVersion
		err = r.client.Update(r.t.Context(), cr, client.FieldOwner("kubectl-edit"))
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) chooseByPatch() {
	r.edit(r.cloud(), `{"spec":{"scheduler":{"replicas":2,"tolerations":[{"operator":"Exists"}]},"logger":{"image":"`+pinned+`"}}}`)
	r.imageIs("logger", pinned, true)
	r.edit(r.cloud(), `{"spec":{"version":"v4.0.3"}}`)
	r.shows(map[string]string{"scheduler.replicas": "2", "scheduler.tolerations": "[map[operator:Exists]]", "logger.image": pinned, "scheduler.image": registry + "/scheduler:v4.0.3"})
	r.edit(r.cloud(), `{"spec":{"scheduler":{"replicas":null,"tolerations":null},"logger":{"image":null}}}`)
	r.shows(map[string]string{"scheduler.replicas": "1", "logger.image": registry + "/logger:v4.0.3"})
	if n := len(r.cloud().Spec.Scheduler.Tolerations); n != 3 {
		r.t.Errorf("scheduler has %d tolerations", n)
	}
}

// chooseByServerSideApply: a file of a few fields. What it says no longer is given up.
func (r *rig) chooseByServerSideApply() {
	spec := map[string]any{
		"mysql": map[string]any{"host": "127.0.0.1"}, "logger": map[string]any{"image": pinned, "replicas": int64(2)},
		"glance": map[string]any{"service": map[string]any{"nodePort": int64(31292)}},
	}
	r.serverSideApply(spec, true)
	r.imageIs("logger", pinned, true)
	r.shows(map[string]string{"logger.replicas": "2", "glance.service.nodePort": "31292"})
	r.serverSideApply(map[string]any{"mysql": map[string]any{"host": "127.0.0.1"}}, true)
	r.shows(map[string]string{"logger.replicas": "1", "logger.image": registry + "/logger:v4.0.3", "glance.service.nodePort": "30292"})
	r.imageIs("logger", registry+"/logger:v4.0.3", false)
}

// chooseByClientSideApply: kubectl works out itself what a file no longer says.
func (r *rig) chooseByClientSideApply() {
	file := func(more map[string]any) map[string]any {
		spec := map[string]any{"mysql": map[string]any{"host": "127.0.0.1"}, "version": "v4.0.3"}
		for k, v := range more {
			spec[k] = v
		}
		return spec
	}
	r.clientSideApply(file(map[string]any{"logger": map[string]any{"image": pinned, "replicas": int64(2)}, "imageRepository": "r.example.com/x"}))
	r.imageIs("logger", pinned, true)
	r.shows(map[string]string{"logger.replicas": "2", "keystone.image": "r.example.com/x/keystone:v4.0.3"})
	r.clientSideApply(file(nil))
	r.shows(map[string]string{"logger.replicas": "1", "logger.image": registry + "/logger:v4.0.3", "imageRepository": registry, "keystone.image": registry + "/keystone:v4.0.3"})
	r.imageIs("logger", registry+"/logger:v4.0.3", false)
}

func (r *rig) offAndOn() {
	r.edit(r.cloud(), `{"spec":{"logger":{"replicas":3,"image":"`+pinned+`","disable":true}}}`)
	r.until(&v1alpha1.OnecloudCluster{}, cloud, func(o client.Object) (bool, string) {
		cr, ok := o.(*v1alpha1.OnecloudCluster)
		return ok && slices.ContainsFunc(cr.Status.Components, func(c v1alpha1.ComponentStatus) bool { return c.Name == "logger" && c.State == v1alpha1.Disabled }), "logger is on"
	})
	r.edit(r.cloud(), `{"spec":{"logger":{"disable":false}}}`)
	r.imageIs("logger", pinned, true)
	r.shows(map[string]string{"logger.replicas": "3", "logger.image": pinned})
	r.edit(r.cloud(), `{"spec":{"logger":{"replicas":null,"image":null,"disable":null}}}`)
	r.shows(map[string]string{"logger.replicas": "1"})
}

// newRelease: an older release showed other defaults, and one that there is no more. This one finds them, and a choice among them.
func (r *rig) newRelease() {
	r.edit(r.cloud(), `{"spec":{"ovnNorth":{"replicas":2}}}`)
	r.shows(map[string]string{"ovnNorth.replicas": "2"})
	r.stopOperator()
	ours := savedSpec(r.t, r.cloud())
	now := map[string]string{}
	old := map[string]any{}
	for path, value := range map[string]any{
		"ovnNorth.image": registry + "/openvswitch:2.12.4-2", "etcd.image": registry + "/etcd:3.4.6", "glance.requests.storage": "50G",
		"keystone.imagePullPolicy": "Always", "scheduler.replicas": int64(2), "region": "region0", "zone": "zone0", "yunionconf.storageClassName": "gone-since",
	} {
		now[path] = textAt(ours, path)
		if err := unstructured.SetNestedField(old, value, strings.Split(path, ".")...); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := r.client.Patch(r.t.Context(), file(old), client.Apply, client.FieldOwner(v1alpha1.ManagerDefaults), client.ForceOwnership); err != nil { //nolint:staticcheck // as the operator does
		r.t.Fatal(err)
	}
	if have := textAt(savedSpec(r.t, r.cloud()), "scheduler.replicas"); have != "2" {
		r.t.Fatalf("the older release's default is not there: %s", have)
	}
	r.startOperator()
	now["ovnNorth.replicas"] = "2"
	r.shows(now)
	r.filledAgain()
}

// filledAgain: the older release here showed little; everything is there again.
func (r *rig) filledAgain() {
	cr := r.cloud()
	for _, m := range cr.ManagedFields {
		if m.Manager == v1alpha1.ManagerDefaults && m.Operation == metav1.ManagedFieldsOperationApply && strings.Contains(m.FieldsV1.GetRawString(), "f:webconsole") {
			return
		}
	}
	r.t.Error("the defaults are not filled in again")
}

// savedFiles: kubectl get oc -o yaml > f; edit spec.version in f; kubectl apply -f f. And once more with the same old file.
func (r *rig) savedFiles() {
	everything := func(version string) map[string]string {
		want := map[string]string{}
		for key, name := range map[string]string{
			"keystone": "keystone", "regionServer": "region", "scheduler": "scheduler", "glance": "glance", "logger": "logger", "climc": "climc", "web": "web",
			"apiGateway": "apigateway", "hostagent": "host", "hostdeployer": "host-deployer", "hostagent.SdnAgent": "sdnagent", "telegraf": "telegraf",
		} {
			want[key+".image"] = registry + "/" + name + ":" + version
			if key == "telegraf" {
				want[key+".image"] = registry + "/telegraf:release-1.36.4-6"
			}
		}
		return want
	}
	saved := savedSpec(r.t, r.cloud())
	r.fileAnnotations = map[string]string{v1alpha1.AnnotationDefaultImages: r.cloud().Annotations[v1alpha1.AnnotationDefaultImages]}
	for i, apply := range []func(map[string]any){
		r.clientSideApply, r.clientSideApply,
		func(spec map[string]any) {
			// By now the file's images are others than ours: kubectl says so and asks.
			if err := r.tryServerSideApply(spec, false); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), v1alpha1.ManagerDefaults) {
				r.t.Errorf("no conflict: %v", err)
			}
			r.serverSideApply(spec, true)
		},
	} {
		version := fmt.Sprintf("v4.1.%d", i)
		saved["version"] = version
		apply(saved)
		r.shows(everything(version))
		r.imageIs("keystone", registry+"/keystone:"+version, false)
	}
	// A choice in such a file stays one.
	if err := unstructured.SetNestedField(saved, pinned, "logger", "image"); err != nil {
		r.t.Fatal(err)
	}
	saved["version"] = "v4.2.0"
	r.serverSideApply(saved, true)
	want := everything("v4.2.0")
	want["logger.image"] = pinned
	r.shows(want)
	r.imageIs("logger", pinned, true)
}
