// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/test/require"
)

// mayChange lists the fields of a pod template that differ on purpose; docs/decisions/0010-adoption.md has the reasons.
var mayChange = []string{
	"metadata.annotations", "spec.volumes", "spec.tolerations", "spec.securityContext", "spec.enableServiceLinks", "spec.automountServiceAccountToken",
	"spec.containers.resources", "spec.containers.readinessProbe", "spec.containers.startupProbe", "spec.containers.securityContext", "spec.containers.lifecycle", "spec.priorityClassName",
	"spec.containers.terminationMessagePolicy", "spec.initContainers.terminationMessagePolicy", "spec.initContainers.securityContext",
}

// mayChangeOf lists further fields for single components: those that the fixture omits from a large pod, and the console's second port.
var mayChangeOf = map[string][]string{
	"host": {"spec"}, "region-dns": {"spec"}, "web": {"spec.containers.ports"},
	"glance": {"spec.containers.volumeMounts", "spec.initContainers"}, // its images are in its claim
	"region": {"spec.serviceAccount", "spec.serviceAccountName"},      // it reads nodes with its own permissions
	"logger": {"spec.topologySpreadConstraints"},                      // the fixture runs two replicas
}

func (a *adoption) templates() {
	now := a.objects()
	changed := map[string][]string{}
	for key, old := range a.before {
		before, is := template(old)
		if !is {
			continue
		}
		after, is := template(now[key])
		if !is {
			a.Errorf("%s is gone", key)
			continue
		}
		name := strings.TrimPrefix(key[strings.Index(key, "/")+1:], "default-")
		for _, path := range differences("", a.tree(before), a.tree(after)) {
			changed[path] = append(changed[path], name)
			allowed := append(slices.Clone(mayChange), mayChangeOf[name]...)
			if !slices.ContainsFunc(allowed, func(p string) bool { return path == p || strings.HasPrefix(path, p+".") }) {
				a.Errorf("%s: %s changed", key, path)
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(changed)) {
		a.Logf("changed: %s (%s)", path, strings.Join(changed[path], ", "))
	}
}

func template(o client.Object) (corev1.PodTemplateSpec, bool) {
	switch w := o.(type) {
	case *appsv1.Deployment:
		return w.Spec.Template, true
	case *appsv1.DaemonSet:
		return w.Spec.Template, true
	}
	return corev1.PodTemplateSpec{}, false
}

func (a *adoption) tree(t corev1.PodTemplateSpec) map[string]any {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&t)
	require.NoError(a, err)
	return m
}

// differences returns the paths, up to three levels deep, at which two trees differ. It compares containers by position.
func differences(at string, a, b any) []string {
	if reflect.DeepEqual(a, b) {
		return nil
	}
	x, ok1 := a.(map[string]any)
	y, ok2 := b.(map[string]any)
	if l, ok := a.([]any); ok && strings.HasSuffix(strings.ToLower(at), "containers") {
		if m, ok := b.([]any); ok && len(l) == len(m) {
			var out []string
			for i := range l {
				out = append(out, differences(at, l[i], m[i])...)
			}
			slices.Sort(out)
			return slices.Compact(out)
		}
	}
	if !ok1 || !ok2 || strings.Count(at, ".") >= 2 {
		return []string{at}
	}
	keys := slices.Collect(maps.Keys(x))
	for k := range y {
		if _, both := x[k]; !both {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	var out []string
	for _, k := range keys {
		out = append(out, differences(strings.TrimPrefix(at+"."+k, "."), x[k], y[k])...)
	}
	return out
}

// objects returns the objects of the cloud by kind and name.
func (a *adoption) objects() map[string]client.Object {
	a.Helper()
	all := map[string]client.Object{}
	for _, list := range []client.ObjectList{
		&corev1.ConfigMapList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &corev1.PersistentVolumeClaimList{}, &appsv1.DeploymentList{},
		&appsv1.DaemonSetList{}, &appsv1.StatefulSetList{}, &networkingv1.IngressList{},
	} {
		require.NoError(a, a.Client.List(a.Context(), list, client.InNamespace(namespace)))
		kind := a.Kind(list)
		require.NoError(a, meta.EachListItem(list, func(o runtime.Object) error {
			if c, ok := o.(client.Object); ok {
				all[kind+"/"+c.GetName()] = c
			}
			return nil
		}))
	}
	return all
}
