// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

const (
	registry = "registry.cn-beijing.aliyuncs.com/yunionio"
	pinned   = "192.168.0.1:5000/mine/logger@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// TestChoices tests which fields of the spec are shown and what they mean, for every way of writing them. No database is reachable: the cloud gets
// only its first objects, but its status shows the images.
func TestChoices(t *testing.T) {
	e := newCloudTest(t, env.Options{})
	e.StartOperator()
	e.Create(e.CloudAt("127.0.0.1", 1))
	for _, part := range []struct {
		name string
		do   func(*cloudTest)
	}{
		{"every service is filled in", (*cloudTest).filledIn},
		{"kubectl edit", (*cloudTest).chooseByEdit},
		{"kubectl patch", (*cloudTest).chooseByPatch},
		{"kubectl apply --server-side", (*cloudTest).chooseByServerSideApply},
		{"kubectl apply", (*cloudTest).chooseByClientSideApply},
		{"switched off and on, nothing is lost", (*cloudTest).offAndOn},
		{"a new release moves what is ours", (*cloudTest).newRelease},
		{"a saved file moves every service", (*cloudTest).savedFiles},
	} {
		if !t.Run(part.name, func(t *testing.T) { part.do(e.in(t)) }) {
			return
		}
	}
}

// shows waits until fields of the spec have these values; "" means that a field is absent.
func (e *cloudTest) shows(want map[string]string) {
	e.Helper()
	e.Until(&v1alpha1.OnecloudCluster{}, cloud, func(o client.Object) (bool, string) {
		cr, ok := o.(*v1alpha1.OnecloudCluster)
		if !ok {
			return false, "it is gone"
		}
		spec := savedSpec(e.T, cr)
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

// imageIs waits until the status shows the image of a component, and whether a user chose it.
func (e *cloudTest) imageIs(name, image string, choice bool) {
	e.Helper()
	e.UntilComponent(name, func(c v1alpha1.ComponentStatus) bool { return c.Image == image && c.Pinned == choice })
}

func (e *cloudTest) filledIn() {
	e.shows(map[string]string{"keystone.image": registry + "/keystone:v4.0.4", "zone": "zone0"})
	spec := savedSpec(e.T, e.Cloud())
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
				e.Errorf("spec.%s.%s is not filled in", c.SpecKey, f)
			}
		}
	}
}

// chooseByEdit checks that an editor, which sends back the whole object, owns only the differences.
func (e *cloudTest) chooseByEdit() {
	cr := e.Cloud()
	three := int32(3)
	cr.Spec.Glance.Replicas = &three
	cr.Spec.Keystone.Image = registry + "/keystone:v4.0.0" // one service goes back to an earlier release
	e.update(cr)
	e.shows(map[string]string{"glance.replicas": "3", "keystone.replicas": "1"})
	e.imageIs("keystone", registry+"/keystone:v4.0.0", true)
	e.Edit(`{"spec":{"version":"v4.0.5"}}`)
	e.shows(map[string]string{"glance.replicas": "3", "keystone.image": registry + "/keystone:v4.0.0", "glance.image": registry + "/glance:v4.0.5"})
	cr = e.Cloud()
	cr.Spec.Glance.Replicas, cr.Spec.Keystone.Image = nil, ""
	e.update(cr)
	e.shows(map[string]string{"glance.replicas": "1", "keystone.image": registry + "/keystone:v4.0.5"})
	e.imageIs("keystone", registry+"/keystone:v4.0.5", false)
}

// update does the final update of `kubectl edit`, with a retry if the operator was faster.
func (e *cloudTest) update(cr *v1alpha1.OnecloudCluster) {
	e.Helper()
	err := e.Client.Update(e.Context(), cr, client.FieldOwner("kubectl-edit"))
	for tries := 0; apierrors.IsConflict(err) && tries < 20; tries++ {
		cr.ResourceVersion = e.Cloud().ResourceVersion
		err = e.Client.Update(e.Context(), cr, client.FieldOwner("kubectl-edit"))
	}
	require.NoError(e, err)
}

func (e *cloudTest) chooseByPatch() {
	e.Edit(`{"spec":{"scheduler":{"replicas":2,"tolerations":[{"operator":"Exists"}]},"logger":{"image":"` + pinned + `"}}}`)
	e.imageIs("logger", pinned, true)
	e.Edit(`{"spec":{"version":"v4.0.3"}}`)
	e.shows(map[string]string{"scheduler.replicas": "2", "scheduler.tolerations": "[map[operator:Exists]]", "logger.image": pinned, "scheduler.image": registry + "/scheduler:v4.0.3"})
	e.Edit(`{"spec":{"scheduler":{"replicas":null,"tolerations":null},"logger":{"image":null}}}`)
	e.shows(map[string]string{"scheduler.replicas": "1", "logger.image": registry + "/logger:v4.0.3"})
	if n := len(e.Cloud().Spec.Scheduler.Tolerations); n != 3 {
		e.Errorf("scheduler has %d tolerations", n)
	}
}

// chooseByServerSideApply applies a file with a few fields. Fields removed from it are given up.
func (e *cloudTest) chooseByServerSideApply() {
	spec := map[string]any{
		"mysql": map[string]any{"host": "127.0.0.1"}, "logger": map[string]any{"image": pinned, "replicas": int64(2)},
		"glance": map[string]any{"service": map[string]any{"nodePort": int64(31292)}},
	}
	e.serverSideApply(spec, true)
	e.imageIs("logger", pinned, true)
	e.shows(map[string]string{"logger.replicas": "2", "glance.service.nodePort": "31292"})
	e.serverSideApply(map[string]any{"mysql": map[string]any{"host": "127.0.0.1"}}, true)
	e.shows(map[string]string{"logger.replicas": "1", "logger.image": registry + "/logger:v4.0.3", "glance.service.nodePort": "30292"})
	e.imageIs("logger", registry+"/logger:v4.0.3", false)
}

// chooseByClientSideApply checks that kubectl itself determines what was removed from a file.
func (e *cloudTest) chooseByClientSideApply() {
	file := func(more map[string]any) map[string]any {
		spec := map[string]any{"mysql": map[string]any{"host": "127.0.0.1"}, "version": "v4.0.3"}
		for k, v := range more {
			spec[k] = v
		}
		return spec
	}
	e.clientSideApply(file(map[string]any{"logger": map[string]any{"image": pinned, "replicas": int64(2)}, "imageRepository": "r.example.com/x"}))
	e.imageIs("logger", pinned, true)
	e.shows(map[string]string{"logger.replicas": "2", "keystone.image": "r.example.com/x/keystone:v4.0.3"})
	e.clientSideApply(file(nil))
	e.shows(map[string]string{"logger.replicas": "1", "logger.image": registry + "/logger:v4.0.3", "imageRepository": registry, "keystone.image": registry + "/keystone:v4.0.3"})
	e.imageIs("logger", registry+"/logger:v4.0.3", false)
}

func (e *cloudTest) offAndOn() {
	e.Edit(`{"spec":{"logger":{"replicas":3,"image":"` + pinned + `","disable":true}}}`)
	e.Until(&v1alpha1.OnecloudCluster{}, cloud, func(o client.Object) (bool, string) {
		cr, ok := o.(*v1alpha1.OnecloudCluster)
		return ok && slices.ContainsFunc(cr.Status.Components, func(c v1alpha1.ComponentStatus) bool { return c.Name == "logger" && c.State == v1alpha1.Disabled }), "logger is on"
	})
	e.Edit(`{"spec":{"logger":{"disable":false}}}`)
	e.imageIs("logger", pinned, true)
	e.shows(map[string]string{"logger.replicas": "3", "logger.image": pinned})
	e.Edit(`{"spec":{"logger":{"replicas":null,"image":null,"disable":null}}}`)
	e.shows(map[string]string{"logger.replicas": "1"})
}

// newRelease checks that this release replaces the defaults of an older release, including a field that no longer exists, and recognizes a choice among them.
func (e *cloudTest) newRelease() {
	e.Edit(`{"spec":{"ovnNorth":{"replicas":2}}}`)
	e.shows(map[string]string{"ovnNorth.replicas": "2"})
	e.StopOperator()
	ours := savedSpec(e.T, e.Cloud())
	now := map[string]string{}
	old := map[string]any{}
	for path, value := range map[string]any{
		"ovnNorth.image": registry + "/openvswitch:2.12.4-2", "etcd.image": registry + "/etcd:3.4.6", "glance.requests.storage": "50G",
		"keystone.imagePullPolicy": "Always", "scheduler.replicas": int64(2), "region": "region0", "zone": "zone0", "yunionconf.storageClassName": "gone-since",
	} {
		now[path] = textAt(ours, path)
		require.NoError(e, unstructured.SetNestedField(old, value, strings.Split(path, ".")...))
	}
	if err := e.Client.Patch(e.Context(), file(old), client.Apply, client.FieldOwner(v1alpha1.ManagerDefaults), client.ForceOwnership); err != nil { //nolint:staticcheck // as the operator does
		e.Fatal(err)
	}
	if have := textAt(savedSpec(e.T, e.Cloud()), "scheduler.replicas"); have != "2" {
		e.Fatalf("the older release's default is not there: %s", have)
	}
	e.StartOperator()
	now["ovnNorth.replicas"] = "2"
	e.shows(now)
	e.filledAgain()
}

// filledAgain checks that all defaults are shown again, after an older release that showed few.
func (e *cloudTest) filledAgain() {
	cr := e.Cloud()
	for _, m := range cr.ManagedFields {
		if m.Manager == v1alpha1.ManagerDefaults && m.Operation == metav1.ManagedFieldsOperationApply && strings.Contains(m.FieldsV1.GetRawString(), "f:webconsole") {
			return
		}
	}
	e.Error("the defaults are not filled in again")
}

// savedFiles tests: kubectl get oc -o yaml > f; edit spec.version in f; kubectl apply -f f. Then it applies the same old file again.
func (e *cloudTest) savedFiles() {
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
	saved := savedSpec(e.T, e.Cloud())
	e.fileAnnotations = map[string]string{v1alpha1.AnnotationDefaultImages: e.Cloud().Annotations[v1alpha1.AnnotationDefaultImages]}
	for i, apply := range []func(map[string]any){
		e.clientSideApply, e.clientSideApply,
		func(spec map[string]any) {
			// By now the file's images differ from the operator's, and kubectl reports a conflict.
			if err := e.tryServerSideApply(spec, false); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), v1alpha1.ManagerDefaults) {
				e.Errorf("no conflict: %v", err)
			}
			e.serverSideApply(spec, true)
		},
	} {
		version := fmt.Sprintf("v4.1.%d", i)
		saved["version"] = version
		apply(saved)
		e.shows(everything(version))
		e.imageIs("keystone", registry+"/keystone:"+version, false)
	}
	// A choice in such a file remains a choice.
	require.NoError(e, unstructured.SetNestedField(saved, pinned, "logger", "image"))
	saved["version"] = "v4.2.0"
	e.serverSideApply(saved, true)
	want := everything("v4.2.0")
	want["logger.image"] = pinned
	e.shows(want)
	e.imageIs("logger", pinned, true)
}
