// SPDX-License-Identifier: Apache-2.0

package installer_test

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/require"
)

func uninstall(e *existing) {
	before := e.seen()
	status, _, story := e.ocadm(e.api.Kubeconfig, "uninstall", "--yes")
	e.want(70, status, story, "OCA-7035", "ocadm cluster delete --namespace onecloud --name default")
	e.unchanged(before)
	cr := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: "default"}}
	require.NoError(e, e.c.Delete(e.Context(), cr))
	delete(before, "OnecloudCluster onecloud/default")
	status, out, _ := e.ocadm(e.api.Kubeconfig, "uninstall", "--dry-run")
	e.want(0, status, out, "delete Deployment onecloud/onecloud-operator", "kept Secret onecloud/ocadm-mysql", "kept Namespace onecloud")
	status, _, story = e.ocadm(e.api.Kubeconfig, "uninstall")
	e.want(4, status, story, "OCA-0404", "--yes")
	e.unchanged(before)
	status, out, _ = e.ocadm(e.api.Kubeconfig, "uninstall", "--yes")
	e.want(0, status, out, "deleted CustomResourceDefinition onecloudclusters.onecloud.yunion.io", "configured Node node2", "kept PersistentVolumeClaim onecloud/data-ocadm-mysql-0")
	want := []string{
		"ConfigMap onecloud/ocadm-cloud", "Namespace /onecloud", "PersistentVolumeClaim onecloud/data-ocadm-mysql-0", "Secret onecloud/ocadm-mysql",
	}
	if got := e.left(); !slices.Equal(got, want) {
		e.Errorf("left:\n%s", strings.Join(got, "\n"))
	}
	// The data is reused.
	secret, again := &corev1.Secret{}, &corev1.Secret{}
	e.get("onecloud", "ocadm-mysql", secret)
	status, _, _ = e.install("--onecloud-version", "v4.0.4", "--wait=false", "--controller-nodes", "node2")
	e.want(0, status, "")
	e.get("onecloud", "ocadm-mysql", again)
	if !bytes.Equal(secret.Data["password"], again.Data["password"]) {
		e.Error("the password of the kept database was recreated")
	}
	e.get("onecloud", "default", cr)
	require.NoError(e, e.c.Delete(e.Context(), cr))
}

// left returns the objects of installations that still exist.
func (e *existing) left() []string {
	seen := e.seen()
	maps.DeleteFunc(seen, func(name, state string) bool { return strings.HasPrefix(name, "Node ") && state == "" })
	return slices.Sorted(maps.Keys(seen))
}

func uninstallData(e *existing) {
	status, _, _ := e.ocadm(e.api.Kubeconfig, "uninstall", "--yes", "--delete-data")
	e.want(0, status, "")
	if left := e.left(); len(left) > 0 {
		e.Errorf("left:\n%s", strings.Join(left, "\n"))
	}
	before := e.seen()
	status, out, _ := e.ocadm(e.api.Kubeconfig, "uninstall", "--yes")
	e.want(0, status, out, "The operator is not installed")
	e.unchanged(before)
}

// foreignNamespace checks that an existing namespace, and a role that a user assigned, do not belong to the installation.
func foreignNamespace(e *existing) {
	e.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "onecloud"}})
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}}
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"onecloud.yunion.io/controller":"enable"}}}`))
	require.NoError(e, e.c.Patch(e.Context(), n, label))
	status, _, _ := e.install()
	e.want(0, status, "")
	status, out, _ := e.ocadm(e.api.Kubeconfig, "uninstall", "--yes", "--delete-data")
	e.want(0, status, out, "kept Namespace onecloud (operator install did not create it)")
	if got := e.left(); !slices.Equal(got, []string{"Namespace /onecloud", "Node /node1"}) {
		e.Errorf("left:\n%s", strings.Join(got, "\n"))
	}
	if e.get("", "node1", n); n.Labels["onecloud.yunion.io/controller"] != "enable" {
		e.Error("the role that a person gave is gone")
	}
}
