// SPDX-License-Identifier: Apache-2.0

package host

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/require"
)

func TestWithPullSecret(t *testing.T) {
	const text = `
apiVersion: v1
kind: ConfigMap
metadata: {name: a, namespace: empty}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: b, namespace: one}
spec: {template: {spec: {containers: []}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: c, namespace: one}
spec: {template: {spec: {containers: []}}}
`
	objs, err := kube.Decode([]byte(text))
	require.NoError(t, err)
	if same, err := WithPullSecret("", objs); err != nil || len(same) != 3 || strings.Contains(describe(same), "imagePullSecrets") {
		t.Errorf("without credentials: %v, %v", same, err)
	}
	objs, err = WithPullSecret(`{"auths":{"r":{"auth":"canary"}}}`, objs)
	require.NoError(t, err)
	if d := cmp.Diff("ConfigMap empty/a; DaemonSet one/b imagePullSecrets ocadm-registry; Deployment one/c imagePullSecrets ocadm-registry; Secret one/ocadm-registry", describe(objs)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	secret, _, err := unstructured.NestedString(objs[3].Object, "data", ".dockerconfigjson")
	if err != nil || secret == "" || strings.Contains(secret, "canary") {
		t.Errorf("%q, %v", secret, err)
	}
}

func describe(objs []*unstructured.Unstructured) string {
	var out []string
	for _, o := range objs {
		line := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		list, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "imagePullSecrets")
		for _, s := range list {
			line += " imagePullSecrets " + s.(map[string]any)["name"].(string)
		}
		out = append(out, line)
	}
	return strings.Join(out, "; ")
}
