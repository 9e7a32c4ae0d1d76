// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/base64"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
)

// Options describes a new cloud. Empty fields are left to the operator.
type Options struct {
	Name                      string   `json:"name"`
	Namespace                 string   `json:"namespace"`
	Version                   string   `json:"version,omitempty"`
	ImageRepository           string   `json:"imageRepository,omitempty"`
	Edition                   string   `json:"edition,omitempty"`
	ProductVersion            string   `json:"productVersion,omitempty"`
	Profile                   string   `json:"profile,omitempty"`
	Region                    string   `json:"region,omitempty"`
	Zone                      string   `json:"zone,omitempty"`
	LoadBalancerEndpoint      string   `json:"loadBalancerEndpoint,omitempty"`
	Database                  Database `json:"database"`
	DisableResourceManagement bool     `json:"disableResourceManagement,omitempty"`
	UseHyperImage             bool     `json:"useHyperImage,omitempty"`
	// WebHostPorts makes the console listen on ports 80 and 443 of the nodes, for clusters without an ingress controller.
	WebHostPorts bool `json:"webHostPorts,omitempty"`
	// PullSecret is the name of a Secret with registry credentials.
	PullSecret string `json:"pullSecret,omitempty"`
	// StorageClass and IngressClass are spec.storageClassName and spec.ingressClassName.
	StorageClass string `json:"storageClass,omitempty"`
	IngressClass string `json:"ingressClass,omitempty"`
}

// Database is the administrator's access to the database server. The password is in a Secret.
type Database struct {
	Host      string `json:"host,omitempty"`
	Port      int    `json:"port,omitempty"`
	Username  string `json:"username,omitempty"`
	Secret    string `json:"secret,omitempty"`
	SecretKey string `json:"secretKey,omitempty"`
	// TLS and CA are spec.mysql.tls.mode and spec.mysql.tls.ca.
	TLS string `json:"tls,omitempty"`
	CA  string `json:"ca,omitempty"`
}

// Key names the cloud.
func (o Options) Key() client.ObjectKey {
	return client.ObjectKey{Namespace: o.Namespace, Name: o.Name}
}

// Manifest returns the resource of a new cloud. It is pure.
func Manifest(o Options) *unstructured.Unstructured {
	u := empty(o.Key())
	mysql := map[string]any{"host": o.Database.Host}
	spec := map[string]any{"mysql": mysql}
	set := func(m map[string]any, key, value string) {
		if value != "" {
			m[key] = value
		}
	}
	set(mysql, "username", o.Database.Username)
	if o.Database.Port != 0 {
		mysql["port"] = int64(o.Database.Port)
	}
	if o.Database.Secret != "" {
		mysql["passwordSecretRef"] = map[string]any{"name": o.Database.Secret, "key": o.Database.SecretKey}
	}
	if o.Database.TLS != "" {
		tls := map[string]any{"mode": o.Database.TLS}
		set(tls, "ca", o.Database.CA)
		mysql["tls"] = tls
	}
	for key, value := range map[string]string{
		"version": o.Version, "imageRepository": o.ImageRepository, "productVersion": o.ProductVersion, "profile": o.Profile, "region": o.Region, "zone": o.Zone,
		"loadBalancerEndpoint": o.LoadBalancerEndpoint, "storageClassName": o.StorageClass, "ingressClassName": o.IngressClass,
	} {
		set(spec, key, value)
	}
	for key, on := range map[string]bool{"disableResourceManagement": o.DisableResourceManagement, "useHyperImage": o.UseHyperImage} {
		if on {
			spec[key] = true
		}
	}
	if o.PullSecret != "" {
		spec["imagePullSecrets"] = []any{map[string]any{"name": o.PullSecret}}
	}
	if o.WebHostPorts {
		spec["web"] = map[string]any{"hostPorts": true}
	}
	u.Object["spec"] = spec
	if o.Edition != "" {
		u.SetAnnotations(map[string]string{v1alpha1.AnnotationEdition: o.Edition})
	}
	return u
}

// Where init stores its settings for the cloud, for a later "cluster create".
const (
	SettingsName = "ocadm-cloud"
	settingsKey  = "cloud.yaml"
	// DatabaseSecret holds the administrator's password of a database server outside the cluster.
	DatabaseSecret    = v1alpha1.DatabaseSecret
	DatabaseSecretKey = "password"
	// PullSecret holds the credentials of --registry-config, in every namespace in which init runs pods.
	PullSecret = "ocadm-registry"
)

// Settings returns the objects in which init stores the options of the cloud; password is that of an external database, or empty.
func Settings(o Options, password string) ([]*unstructured.Unstructured, error) {
	text, err := yaml.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("writing the settings of the cloud: %w", err)
	}
	objs := []*unstructured.Unstructured{
		object("Namespace", "", o.Namespace, nil),
		object("ConfigMap", o.Namespace, SettingsName, map[string]any{"data": map[string]any{settingsKey: string(text)}}),
	}
	if password != "" {
		objs = append(objs, object("Secret", o.Namespace, DatabaseSecret, map[string]any{"type": "Opaque", "data": map[string]any{
			"username":        base64.StdEncoding.EncodeToString([]byte(o.Database.Username)),
			DatabaseSecretKey: base64.StdEncoding.EncodeToString([]byte(password)),
		}}))
	}
	return objs, nil
}

func object(kind, namespace, name string, content map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: content}
	if content == nil {
		u.Object = map[string]any{}
	}
	u.SetAPIVersion("v1")
	u.SetKind(kind)
	u.SetName(name)
	u.SetNamespace(namespace)
	return u
}

// LoadSettings reads what init stored. Without any, it returns the zero value with the default names.
func LoadSettings(ctx context.Context, c client.Client, namespace string) (Options, error) {
	o := Options{Name: DefaultName, Namespace: namespace}
	cm := &corev1.ConfigMap{}
	if found, err := kube.Find(ctx, c, client.ObjectKey{Namespace: namespace, Name: SettingsName}, cm, "the settings of the cloud"); !found {
		return o, err
	}
	if err := yaml.UnmarshalStrict([]byte(cm.Data[settingsKey]), &o); err != nil {
		return o, fmt.Errorf("reading the settings of the cloud in ConfigMap %s/%s: %w", namespace, SettingsName, err)
	}
	return o, nil
}

// MoveSettings changes the address of later clouds: in every namespace, it replaces the former address in the settings that init stored. It returns
// the names of the changed ConfigMaps; a dry run only lists them.
func MoveSettings(ctx context.Context, c client.Client, from, to string, dryRun bool) (changed []string, _ error) {
	var list corev1.ConfigMapList
	if err := c.List(ctx, &list, client.MatchingFields{"metadata.name": SettingsName}); err != nil {
		return nil, fmt.Errorf("listing the settings of clouds: %w", err)
	}
	for i := range list.Items {
		cm := &list.Items[i]
		var o Options
		if yaml.UnmarshalStrict([]byte(cm.Data[settingsKey]), &o) != nil || o.LoadBalancerEndpoint != from { // cluster create reports what it cannot read
			continue
		}
		name := cm.Namespace + "/" + cm.Name
		if !dryRun {
			before := cm.DeepCopy()
			o.LoadBalancerEndpoint = to
			text, err := yaml.Marshal(o)
			if err != nil {
				return changed, fmt.Errorf("writing the settings of the cloud: %w", err)
			}
			cm.Data[settingsKey] = string(text)
			if err := c.Patch(ctx, cm, kube.IfUnchanged(before), client.FieldOwner(kube.FieldManager)); err != nil {
				return changed, fmt.Errorf("changing ConfigMap %s: %w", name, err)
			}
		}
		changed = append(changed, name)
	}
	return changed, nil
}
