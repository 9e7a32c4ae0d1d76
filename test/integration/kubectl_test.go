// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

// lastApplied is the annotation of kubectl apply. Below are the requests of kubectl, each under the field manager that the API server gives it.
const lastApplied = corev1.LastAppliedConfigAnnotation

// savedSpec returns the spec in the file of `kubectl get oc -o yaml`.
func savedSpec(t env.T, cr *v1alpha1.OnecloudCluster) map[string]any {
	t.Helper()
	b, err := json.Marshal(cr.Spec)
	require.NoError(t, err)
	var spec map[string]any
	require.NoError(t, json.Unmarshal(b, &spec))
	return spec
}

func file(spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	u.SetNamespace(namespace)
	u.SetName(cloud)
	return u
}

// serverSideApply is `kubectl apply --server-side [--force-conflicts]`.
func (e *cloudTest) serverSideApply(spec map[string]any, force bool) {
	e.Helper()
	require.NoError(e, e.tryServerSideApply(spec, force))
}

func (e *cloudTest) tryServerSideApply(spec map[string]any, force bool) error {
	options := []client.PatchOption{client.FieldOwner("kubectl")}
	if force {
		options = append(options, client.ForceOwnership)
	}
	u := file(runtime.DeepCopyJSON(spec))
	u.SetAnnotations(e.fileAnnotations)
	return e.Client.Patch(e.Context(), u, client.Apply, options...) //nolint:staticcheck // as kubectl does
}

// clientSideApply is `kubectl apply`: a merge of what was applied last, the file, and the current object.
func (e *cloudTest) clientSideApply(spec map[string]any) {
	e.Helper()
	u := file(runtime.DeepCopyJSON(spec))
	u.SetAnnotations(e.fileAnnotations)
	whole, err := json.Marshal(u.Object)
	require.NoError(e, err)
	live := file(nil)
	require.NoError(e, e.Client.Get(e.Context(), client.ObjectKeyFromObject(live), live))
	original := []byte(live.GetAnnotations()[lastApplied])
	annotations := map[string]string{lastApplied: string(whole)}
	maps.Copy(annotations, e.fileAnnotations)
	u.SetAnnotations(annotations)
	modified, err := json.Marshal(u.Object)
	require.NoError(e, err)
	current, err := json.Marshal(live.Object)
	require.NoError(e, err)
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(original, modified, current)
	require.NoError(e, err)
	require.NoError(e, e.Client.Patch(e.Context(), u, client.RawPatch(types.MergePatchType, patch), client.FieldOwner("kubectl-client-side-apply")))
}

// everyServiceRuns checks the registry and the version of the images of all Deployments, except those with their own versions and those that a user chose.
func (e *cloudTest) everyServiceRuns(registry, version string, chosen map[string]string) {
	e.Helper()
	own := []string{"ovn-north", "victoria-metrics"}
	for name, d := range e.Deployments() {
		for _, c := range append(slices.Clone(d.Spec.Template.Spec.InitContainers), d.Spec.Template.Spec.Containers...) {
			if c.Name == "volume-on-node" { // not the cloud's own
				continue
			}
			if image := chosen[name]; image != "" {
				if c.Image != image {
					e.Errorf("%s/%s runs %s, not %s as was chosen", name, c.Name, c.Image, image)
				}
				continue
			}
			if !strings.HasPrefix(c.Image, registry+"/") || !strings.HasSuffix(c.Image, ":"+version) && !slices.Contains(own, name) {
				e.Errorf("%s/%s runs %s", name, c.Name, c.Image)
			}
		}
	}
}
