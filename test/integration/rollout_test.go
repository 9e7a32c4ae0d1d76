// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// state waits until a component is as described.
func (r *rig) state(name string, is func(v1alpha1.ComponentStatus) bool) {
	r.t.Helper()
	r.until(&v1alpha1.OnecloudCluster{}, cloud, func(o client.Object) (bool, string) {
		cr, ok := o.(*v1alpha1.OnecloudCluster)
		if !ok {
			return false, "there is no cloud"
		}
		i := slices.IndexFunc(cr.Status.Components, func(c v1alpha1.ComponentStatus) bool { return c.Name == name })
		return i >= 0 && is(cr.Status.Components[i]), states(cr)
	})
}

// image waits until the workload of a component runs an image.
func (r *rig) image(component, want string) {
	r.t.Helper()
	r.until(&appsv1.Deployment{}, cloud+"-"+component, func(o client.Object) (bool, string) {
		d, ok := o.(*appsv1.Deployment)
		return ok && d.Spec.Template.Spec.Containers[0].Image == want, "the image is not " + want
	})
}

// pause: what a person changes in a paused component survives, and goes when it is no longer paused. The others go on.
func (r *rig) pause() {
	const mine = "example.com/mine:v1"
	usual := r.deployments()["logger"].Spec.Template.Spec.Containers[0].Image
	r.edit(r.minimal(), `{"metadata":{"annotations":{"onecloud.yunion.io/paused":"logger"}}}`)
	r.state("logger", func(c v1alpha1.ComponentStatus) bool {
		return c.State == v1alpha1.Available && c.Reason == "Paused"
	})
	for _, name := range []string{"logger", "yunionconf"} {
		d := r.deployments()[name]
		patch := `{"spec":{"template":{"spec":{"containers":[{"name":"` + d.Spec.Template.Spec.Containers[0].Name + `","image":"` + mine + `"}]}}}}`
		if err := r.client.Patch(r.t.Context(), &d, client.RawPatch(types.StrategicMergePatchType, []byte(patch)), client.FieldOwner("kubectl-edit")); err != nil {
			r.t.Fatal(err)
		}
	}
	r.image("yunionconf", strings.Replace(usual, "logger", "yunionconf", 1))
	r.untilReady()
	if got := r.deployments()["logger"].Spec.Template.Spec.Containers[0].Image; got != mine {
		r.t.Errorf("the paused logger runs %s", got)
	}
	r.edit(r.minimal(), `{"metadata":{"annotations":{"onecloud.yunion.io/paused":null}}}`)
	r.image("logger", usual)
	r.untilReady()
}

// fix: keystone, which everything comes after, gets an option with which it does not start. The way back and a new release get through,
// though that rollout has failed and nothing can be asked of keystone.
func (r *rig) fix() {
	cm := &corev1.ConfigMap{}
	r.get(cm, "default-keystone")
	r.edit(cm, `{"metadata":{"annotations":{"onecloud.yunion.io/accept-options":"no_such_option"}},"data":{"no_such_option":"1"}}`)
	r.state("keystone", func(c v1alpha1.ComponentStatus) bool {
		return c.State == v1alpha1.Degraded && strings.Contains(c.Message, "CrashLoopBackOff")
	})
	// Still wrong, but another rollout: it is not held up by the one before.
	r.edit(r.minimal(), `{"spec":{"keystone":{"tag":"v4.0.4-fix"},"logger":{"tag":"v4.0.4-fix"}}}`)
	r.image("keystone", "registry.cn-beijing.aliyuncs.com/yunionio/keystone:v4.0.4-fix")
	r.state("logger", func(c v1alpha1.ComponentStatus) bool { return slices.Contains(c.BlockedBy, "keystone") })
	r.edit(cm, `{"data":{"no_such_option":null}}`)
	r.untilReady()
	r.image("logger", "registry.cn-beijing.aliyuncs.com/yunionio/logger:v4.0.4-fix")
	r.edit(r.minimal(), `{"spec":{"keystone":{"tag":null},"logger":{"tag":null}}}`)
	r.untilReady()
}
