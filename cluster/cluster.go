// SPDX-License-Identifier: Apache-2.0

// Package cluster implements the commands on a cloud: create, inspect, wait, update, delete, log in. It writes the custom resource and leaves the
// work to the operator. It only sends patches, so that it never drops fields that its Go types lack.
package cluster

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
)

const (
	DefaultName      = finding.DefaultName
	DefaultNamespace = finding.DefaultNamespace
	// OperatorName is the operator's Deployment in DefaultNamespace; its first container is the operator.
	OperatorName = "onecloud-operator"
)

// OperatorImageVariable is the environment variable that holds the operator's own image.
const OperatorImageVariable = "OPERATOR_IMAGE"

// AnnotationInstalled "true" marks namespaces that "operator install" created and nodes that it gave a role. "operator uninstall" undoes only these.
const AnnotationInstalled = "ocadm.yunion.io/installed"

// NamespacesFlag is the operator's argument that lists the namespaces to watch.
const NamespacesFlag = "--namespaces="

// WatchedBy returns the namespaces in which an operator manages clouds, according to its Deployment.
func WatchedBy(d *appsv1.Deployment) []string {
	for _, c := range d.Spec.Template.Spec.Containers {
		for _, arg := range c.Args {
			if list, ok := strings.CutPrefix(arg, NamespacesFlag); ok && c.Name == OperatorName {
				return strings.Split(list, ",")
			}
		}
	}
	return []string{DefaultNamespace}
}

// OfHelm returns a finding if Helm installed the operator: its next upgrade would undo any change but one to these values of the chart.
func OfHelm(d *appsv1.Deployment, values string) error {
	if d.Labels[v1alpha1.LabelManagedBy] != "Helm" {
		return nil
	}
	return finding.New("OCA-7031", "The operator was installed with Helm", "the next helm upgrade would undo this change of Deployment "+d.Namespace+"/"+d.Name,
		fmt.Sprintf("helm -n %s upgrade %s CHART --reuse-values --set '%s'", d.Namespace, cmp.Or(d.Annotations["meta.helm.sh/release-name"], "RELEASE"), values))
}

// All returns the clouds of a Kubernetes cluster; none without an operator.
func All(ctx context.Context, c client.Reader) ([]v1alpha1.OnecloudCluster, error) {
	var list v1alpha1.OnecloudClusterList
	if err := c.List(ctx, &list); err != nil && !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("listing clouds: %w", err)
	}
	return list.Items, nil
}

// InUse explains why removing the first node must not destroy the Kubernetes cluster: it has other nodes, or a cloud. It returns "" if it may.
func InUse(ctx context.Context, c client.Reader, first string) (string, error) {
	var nodes corev1.NodeList
	if err := c.List(ctx, &nodes); err != nil {
		return "", fmt.Errorf("listing nodes: %w", err)
	}
	for _, n := range nodes.Items {
		if n.Name != first {
			return "node " + n.Name + " has joined the cluster of this machine", nil
		}
	}
	clouds, err := All(ctx, c)
	if err != nil || len(clouds) == 0 {
		return "", err
	}
	return "cloud " + clouds[0].Namespace + "/" + clouds[0].Name + " existed before this run", nil
}

func empty(key client.ObjectKey) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	u.SetName(key.Name)
	u.SetNamespace(key.Namespace)
	return u
}

// get reads a cloud; a missing one is a finding.
func get(ctx context.Context, c client.Client, key client.ObjectKey) (*unstructured.Unstructured, error) {
	u := empty(key)
	err := c.Get(ctx, key, u)
	switch {
	case err == nil:
		return u, nil
	case meta.IsNoMatchError(err):
		return nil, notInstalled(err)
	case apierrors.IsNotFound(err):
		return nil, finding.Errorf("OCA-7002", fmt.Sprintf("Cloud %s not found", key), "create it: ocadm cluster create --version VERSION", "%w", err)
	}
	return nil, fmt.Errorf("reading cloud %s: %w", key, err)
}

func notInstalled(err error) error {
	return finding.Errorf("OCA-7005", "The operator is not installed in this cluster", finding.InstallOperator, "%w", err)
}

// load is like get, and also returns the cloud in typed form.
func load(ctx context.Context, c client.Client, key client.ObjectKey) (*unstructured.Unstructured, *v1alpha1.OnecloudCluster, error) {
	u, err := get(ctx, c, key)
	if err != nil {
		return nil, nil, err
	}
	cr, err := typed(u)
	return u, cr, err
}

func typed(u *unstructured.Unstructured) (*v1alpha1.OnecloudCluster, error) {
	cr := &v1alpha1.OnecloudCluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, cr); err != nil {
		return nil, fmt.Errorf("reading cloud %s: %w", u.GetName(), err)
	}
	return cr, nil
}

// PutSecret creates a Secret, or replaces the content of an existing one.
func PutSecret(ctx context.Context, c client.Client, key client.ObjectKey, data map[string][]byte) error {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Data: data}
	err := c.Create(ctx, s, client.FieldOwner(kube.FieldManager))
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	live := &corev1.Secret{}
	if err := c.Get(ctx, key, live); err != nil {
		return fmt.Errorf("reading Secret %s: %w", key.Name, err)
	}
	before := live.DeepCopy()
	live.Data = data
	if err := c.Patch(ctx, live, client.MergeFrom(before), client.FieldOwner(kube.FieldManager)); err != nil {
		return fmt.Errorf("writing Secret %s: %w", key.Name, err)
	}
	return nil
}
