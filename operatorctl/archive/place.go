// SPDX-License-Identifier: Apache-2.0

package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/secrets"
)

// Place is where a cloud is restored. Empty fields stay as saved.
type Place struct {
	Namespace string
	// MySQL is the database server; its password goes into a Secret, unless it is in one already.
	MySQL v1alpha1.DatabaseServer
	// Address is spec.loadBalancerEndpoint.
	Address string
	// Spec sets other fields, by their paths below spec ("web.hostPorts"); nil removes one.
	Spec map[string]any
}

// databaseSecret is a suffix: Secret <cloud>-database holds the password of the database server, if the place has another server.
const databaseSecret, databaseKey = "database", "password"

// Objects returns the objects of a backup for a place, the cloud last. It is pure.
func (p Place) Objects(c backup.Contents) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	var cloud *unstructured.Unstructured
	for _, o := range c.Objects {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(o.JSON, &u.Object); err != nil {
			return nil, fmt.Errorf("reading %s %q of the backup: %w", o.Kind, o.Name, err)
		}
		// Whoever can write to the store could otherwise have any object created by the administrator who restores.
		if is := u.GetAPIVersion() + " " + u.GetKind(); !slices.Contains([]string{"v1 Secret", "v1 ConfigMap", v1alpha1.GroupVersion.String() + " " + v1alpha1.Kind}, is) {
			return nil, fmt.Errorf("reading %s %q of the backup: it is a %s, which is not part of a backup", o.Kind, o.Name, is)
		}
		u.SetNamespace(p.Namespace)
		if u.GetKind() == v1alpha1.Kind {
			cloud = u
		} else {
			out = append(out, u)
		}
	}
	if cloud == nil {
		return nil, fmt.Errorf("the backup contains no %s", v1alpha1.Kind)
	}
	set := func(v any, path ...string) {
		_ = unstructured.SetNestedField(cloud.Object, v, append([]string{"spec"}, path...)...)
	}
	if p.MySQL.Host != "" {
		at := p.MySQL
		at.Password, at.MovedFrom = "", ""
		if at.PasswordSecretRef == nil {
			name := cloud.GetName() + "-" + databaseSecret
			at.PasswordSecretRef = &v1alpha1.SecretKeyRef{Name: name, Key: databaseKey}
			out = slices.DeleteFunc(out, func(u *unstructured.Unstructured) bool { return u.GetKind() == "Secret" && u.GetName() == name })
			out = append(out, password(p, name))
		}
		if at.TLS.Mode == "" { // the backup's mode remains
			at.TLS = v1alpha1.DatabaseTLS{}
		}
		server, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&at)
		if err != nil {
			return nil, fmt.Errorf("encoding the database server: %w", err)
		}
		if tls, there, _ := unstructured.NestedMap(cloud.Object, "spec", "mysql", "tls"); there && at.TLS.Mode == "" {
			server["tls"] = tls
		}
		set(server, "mysql")
	}
	if c.Header.Version != "" { // the databases have this version, whatever the spec requested
		set(c.Header.Version, "version")
	}
	if p.Address != "" {
		set(p.Address, "loadBalancerEndpoint")
	}
	for path, v := range p.Spec {
		fields := strings.Split(path, ".")
		if v == nil {
			unstructured.RemoveNestedField(cloud.Object, append([]string{"spec"}, fields...)...)
		} else {
			set(v, fields...)
		}
	}
	return append(out, cloud), nil
}

func password(p Place, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
		"stringData": map[string]any{databaseKey: p.MySQL.Password}}}
	u.SetName(name)
	u.SetNamespace(p.Namespace)
	return u
}

// Server returns the database server of the cloud in a backup, with its password.
func Server(c backup.Contents) (v1alpha1.DatabaseServer, error) {
	cloud := &v1alpha1.OnecloudCluster{}
	list := map[string]corev1.Secret{}
	for _, o := range c.Objects {
		switch o.Kind {
		case v1alpha1.Kind:
			if err := json.Unmarshal(o.JSON, cloud); err != nil {
				return v1alpha1.DatabaseServer{}, fmt.Errorf("reading the cloud of the backup: %w", err)
			}
		case "Secret":
			var s corev1.Secret
			if err := json.Unmarshal(o.JSON, &s); err != nil {
				return v1alpha1.DatabaseServer{}, fmt.Errorf("reading Secret %q of the backup: %w", o.Name, err)
			}
			list[o.Name] = s
		}
	}
	server := cloud.Spec.MySQL
	if ref := server.PasswordSecretRef; ref != nil && server.Password == "" {
		server.Password = string(list[ref.Name].Data[ref.Key])
	}
	return server, nil
}

// Put creates objects. It leaves existing ones as they are, except for the Secret with the cloud's ID: its passwords become those of the backup. It
// returns a line for each change.
func Put(ctx context.Context, c client.Client, manager string, objects []*unstructured.Unstructured) ([]string, error) {
	var lines []string
	for _, u := range objects {
		err := c.Create(ctx, u.DeepCopy(), client.FieldOwner(manager))
		if err == nil {
			lines = append(lines, fmt.Sprintf("%s %s created", u.GetKind(), u.GetName()))
			continue
		}
		if !apierrors.IsAlreadyExists(err) {
			return lines, fmt.Errorf("creating %s %s: %w", u.GetKind(), u.GetName(), err)
		}
		if given, is := u.Object["stringData"]; is { // the place's password, which an earlier run may have got wrong
			if err := kube.Merge(ctx, c, u.DeepCopy(), client.FieldOwner(manager), map[string]any{"stringData": given}); err != nil {
				return lines, fmt.Errorf("updating %s %s: %w", u.GetKind(), u.GetName(), err)
			}
			continue
		}
		changed, err := Passwords(ctx, c, manager, u)
		if err != nil {
			return lines, err
		}
		if changed {
			lines = append(lines, fmt.Sprintf("%s %s: passwords restored from the backup", u.GetKind(), u.GetName()))
		}
	}
	return lines, nil
}

// Passwords replaces the passwords of a cloud with those of a backup, if u is the Secret with them.
func Passwords(ctx context.Context, c client.Client, manager string, u *unstructured.Unstructured) (changed bool, err error) {
	saved, _, _ := unstructured.NestedStringMap(u.Object, "data")
	if saved[component.CloudID] == "" {
		return false, nil
	}
	live := &corev1.Secret{}
	key := client.ObjectKeyFromObject(u)
	if err := c.Get(ctx, key, live); err != nil {
		return false, fmt.Errorf("reading Secret %s: %w", key, err)
	}
	want := &corev1.Secret{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, want); err != nil {
		return false, fmt.Errorf("reading Secret %s of the backup: %w", key.Name, err)
	}
	before := live.DeepCopy()
	if live.Data == nil {
		live.Data = map[string][]byte{}
	}
	maps.Copy(live.Data, want.Data)
	if maps.EqualFunc(live.Data, before.Data, bytes.Equal) {
		return false, nil
	}
	if err := c.Patch(ctx, live, client.MergeFrom(before), client.FieldOwner(manager)); err != nil {
		return false, fmt.Errorf("restoring the passwords in Secret %s: %w", key, err)
	}
	return true, nil
}

// CredentialsID returns the ID of a cloud, "" if there is no such cloud.
func CredentialsID(ctx context.Context, c client.Reader, key client.ObjectKey) (string, error) {
	s := &corev1.Secret{}
	_, err := kube.Find(ctx, c, client.ObjectKey{Namespace: key.Namespace, Name: secrets.CredentialsSecret(key.Name)}, s, "the passwords of cloud "+key.String())
	return string(s.Data[component.CloudID]), err
}
