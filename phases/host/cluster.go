// SPDX-License-Identifier: Apache-2.0

package host

import (
	"cmp"
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/config"
)

// Cluster describes a cluster that others built. It is gathered once, before the first phase.
type Cluster struct {
	// Version is that of the API server: "v1.30.2".
	Version                        string
	Nodes                          []corev1.Node
	StorageClasses, IngressClasses []Class
	// Definition is the CRD of OnecloudCluster, or nil if the cluster has none.
	Definition *apiextensionsv1.CustomResourceDefinition
	// Operators holds the Deployments of that name in any namespace, including the earlier operator's.
	Operators []appsv1.Deployment
	// Settings are those stored by an earlier run.
	Settings cluster.Options
	// RegistryAuth holds the registry credentials stored by an earlier run, as a docker config.json.
	RegistryAuth string
}

// Class is a storage class or an ingress class.
type Class struct {
	Name    string
	Default bool
}

// ForCluster returns a host without a machine: its phases only work on the cluster of a kubeconfig. With Config.Run.DryRun, the result cannot be used
// to change the cluster.
func ForCluster(c *config.Config) *Host {
	h := &Host{Config: c, Files: Files{DryRun: c.Run.DryRun}}
	h.REST = lazy(func(context.Context) (*rest.Config, error) { return kube.Config(h.Kubeconfig()) })
	h.Kube = lazyKube(h)
	return h
}

// GatherCluster reads the state of a cluster. It changes nothing.
func GatherCluster(ctx context.Context, h *Host) (*Cluster, error) {
	cfg, err := h.REST(ctx)
	if err != nil {
		return nil, err
	}
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating a client for the API server: %w", err)
	}
	version, err := d.ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("reading the version of the API server: %w", err)
	}
	c, err := h.Kube(ctx)
	if err != nil {
		return nil, err
	}
	out := &Cluster{Version: version.GitVersion}
	if err := out.lists(ctx, c); err != nil {
		return nil, err
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	found, err := kube.Find(ctx, c, client.ObjectKey{Name: "onecloudclusters." + v1alpha1.Group}, definition, "the definition of "+v1alpha1.Kind)
	if err != nil {
		return nil, err
	}
	if found {
		out.Definition = definition
	}
	return out, out.Stored(ctx, h, c)
}

// Stored reads what an earlier run stored in the cluster.
func (k *Cluster) Stored(ctx context.Context, h *Host, c client.Client) (err error) {
	pull := &corev1.Secret{}
	if _, err := kube.Find(ctx, c, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: cluster.PullSecret}, pull, "the registry credentials"); err != nil {
		return err
	}
	k.RegistryAuth = string(pull.Data[corev1.DockerConfigJsonKey])
	k.Settings, err = StoredSettings(ctx, h, c)
	return err
}

// StoredSettings reads the settings that an earlier run stored. Unless a namespace is given, it looks in all in which the operator manages clouds.
func StoredSettings(ctx context.Context, h *Host, c client.Client) (s cluster.Options, err error) {
	namespaces := []string{cmp.Or(h.Config.Cloud.Namespace, cluster.DefaultNamespace)}
	if !h.Config.Gives("cloud.namespace") {
		d := &appsv1.Deployment{}
		if _, err := kube.Find(ctx, c, client.ObjectKey{Namespace: cluster.DefaultNamespace, Name: cluster.OperatorName}, d, "the namespaces of the operator"); err != nil {
			return s, err
		}
		namespaces = append(namespaces, cluster.WatchedBy(d)...)
	}
	for _, name := range namespaces {
		if s, err = cluster.LoadSettings(ctx, c, name); err != nil || s.Database.Host != "" {
			break
		}
	}
	return s, err
}

func (k *Cluster) lists(ctx context.Context, c client.Client) error {
	var nodes corev1.NodeList
	var storage storagev1.StorageClassList
	var ingress networkingv1.IngressClassList
	var deployments appsv1.DeploymentList
	for what, list := range map[string]client.ObjectList{
		"nodes": &nodes, "storage classes": &storage, "ingress classes": &ingress, "Deployments": &deployments,
	} {
		if err := c.List(ctx, list); err != nil {
			return fmt.Errorf("listing %s: %w", what, err)
		}
	}
	k.Nodes = nodes.Items
	k.StorageClasses = lists.Map(storage.Items, func(s storagev1.StorageClass) Class {
		return Class{s.Name, s.Annotations["storageclass.kubernetes.io/is-default-class"] == "true"}
	})
	k.IngressClasses = lists.Map(ingress.Items, func(i networkingv1.IngressClass) Class {
		return Class{i.Name, i.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true"}
	})
	k.Operators = lists.Filter(deployments.Items, func(d appsv1.Deployment) bool { return d.Name == cluster.OperatorName })
	return nil
}
