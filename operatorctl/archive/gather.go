// SPDX-License-Identifier: Apache-2.0

// Package archive selects the objects of a cloud for a backup, and restores them to another namespace, address or database server. A backup contains
// what users chose and what cannot be recreated; the operator renders the rest.
package archive

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/certreport"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/operatorctl/adopt"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/operatorctl/secrets"
)

// Gather reads the contents of a cloud's backup, without its databases.
func Gather(ctx context.Context, c client.Reader, cr *unstructured.Unstructured, now time.Time) (backup.Source, error) {
	var none backup.Source
	cloud := &v1alpha1.OnecloudCluster{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(cr.Object, cloud); err != nil {
		return none, fmt.Errorf("reading cloud %s: %w", cr.GetName(), err)
	}
	var allSecrets corev1.SecretList
	if err := c.List(ctx, &allSecrets, client.InNamespace(cr.GetNamespace())); err != nil {
		return none, fmt.Errorf("listing the Secrets of cloud %s: %w", cr.GetName(), err)
	}
	var configMaps corev1.ConfigMapList
	if err := c.List(ctx, &configMaps, client.InNamespace(cr.GetNamespace())); err != nil {
		return none, fmt.Errorf("listing the ConfigMaps of cloud %s: %w", cr.GetName(), err)
	}
	out, err := collect(cr, cloud, allSecrets.Items, configMaps.Items)
	if err != nil {
		return none, err
	}
	out.Header.Time, out.Header.Ocadm = now.UTC().Truncate(time.Second), version.Version
	return out, nil
}

// collect selects the contents of the backup. It is pure.
func collect(cr *unstructured.Unstructured, cloud *v1alpha1.OnecloudCluster, all []corev1.Secret, configMaps []corev1.ConfigMap) (backup.Source, error) {
	out := backup.Source{Header: backup.Header{
		Cloud: backup.Cloud{Namespace: cloud.Namespace, Name: cloud.Name, ID: IDOf(cloud, all)}, Version: versionOf(cloud), Release: cloud.Status.Release.Revision,
	}}
	out.Images = lists.Unique(lists.Pick(cloud.Status.Components, func(c v1alpha1.ComponentStatus) (string, bool) { return c.Image, c.Image != "" }))
	slices.Sort(out.Images)
	objects := []*unstructured.Unstructured{chosen(cr)}
	for i := range all {
		if belongs(cloud, &all[i]) {
			u, err := bare(&all[i], "Secret")
			if err != nil {
				return out, err
			}
			objects = append(objects, u)
		}
	}
	for i := range configMaps {
		cm := configMaps[i].DeepCopy()
		made := cm.Name == backup.HistoryName || cm.Name == certreport.ConfigMap // they belong to this cluster, not to the cloud
		if cm.Data = render.Chosen(cm); !strings.HasPrefix(cm.Name, cloud.Name+"-") || cm.Labels[v1alpha1.LabelManagedBy] == "" || len(cm.Data) == 0 || made {
			continue
		}
		u, err := bare(cm, "ConfigMap")
		if err != nil {
			return out, err
		}
		objects = append(objects, u)
	}
	for _, u := range objects {
		text, err := u.MarshalJSON()
		if err != nil {
			return out, fmt.Errorf("saving %s %q: %w", u.GetKind(), u.GetName(), err)
		}
		out.Objects = append(out.Objects, backup.Object{Kind: u.GetKind(), Name: u.GetName(), JSON: text})
	}
	return out, nil
}

// versionOf returns the version of the databases. spec.version may be that of an update that is still to come. Only after a restore, which lets the
// operator follow immediately, do the databases already have that version.
func versionOf(cloud *v1alpha1.OnecloudCluster) string {
	in := cloud.Status.Release
	if cloud.Annotations[v1alpha1.AnnotationAtOnce] == strconv.Itoa(in.Revision) {
		in.Version = ""
	}
	return cmp.Or(in.Version, cloud.Spec.Version, cloud.Status.Version)
}

// IDOf returns the ID with which a cloud's databases are marked.
func IDOf(cloud *v1alpha1.OnecloudCluster, all []corev1.Secret) string {
	for i := range all {
		if id := all[i].Data[component.CloudID]; all[i].Name == secrets.CredentialsSecret(cloud.Name) && len(id) > 0 {
			return string(id)
		}
	}
	return string(cloud.UID)
}

// Names reports whether the spec of a cloud refers to a Secret: a server's password, or the login for its backups.
func Names(cloud *v1alpha1.OnecloudCluster, secret string) bool {
	mysql, clickhouse, s3 := cloud.Spec.MySQL.PasswordSecretRef, cloud.Spec.Clickhouse.PasswordSecretRef, cloud.Spec.Backup.S3
	return mysql != nil && mysql.Name == secret || clickhouse != nil && clickhouse.Name == secret || s3 != nil && s3.Secret == secret
}

// belongs reports whether a Secret cannot be recreated: passwords, certificates, releases, and what the spec refers to.
func belongs(cloud *v1alpha1.OnecloudCluster, s *corev1.Secret) bool {
	kept := append([]string{secrets.CredentialsSecret(cloud.Name), secrets.CertsSecret(cloud.Name), secrets.EtcdCASecret(cloud.Name)},
		secrets.EtcdSecrets(cloud.Name)...)
	n := release.Revision(s)
	return Names(cloud, s.Name) || slices.Contains(kept, s.Name) || n > 0 && s.Name == release.SecretName(cloud.Name, n)
}

// chosen returns a cloud without its status and without what the operator wrote into its spec: with another owner, a default would become a choice.
func chosen(cr *unstructured.Unstructured) *unstructured.Unstructured {
	out := &unstructured.Unstructured{Object: map[string]any{"apiVersion": cr.GetAPIVersion(), "kind": cr.GetKind()}}
	spec, _, _ := unstructured.NestedMap(cr.Object, "spec")
	out.Object["spec"] = spec
	metadata(out, cr)
	defaults, others := fieldpath.NewSet(), fieldpath.NewSet()
	for _, m := range cr.GetManagedFields() {
		s, err := engine.FieldsOf(m)
		if m.Subresource != "" || err != nil { // the API server only writes readable entries
			continue
		}
		if m.Manager == v1alpha1.ManagerDefaults {
			defaults = defaults.Union(s)
		} else {
			others = others.Union(s)
		}
	}
	defaults.Difference(others).Leaves().Iterate(func(p fieldpath.Path) {
		var path []string
		for _, e := range p {
			if e.FieldName == nil {
				return
			}
			path = append(path, *e.FieldName)
		}
		if len(path) > 1 && (path[0] == "spec" || path[0] == "metadata" && path[1] == "annotations") {
			unstructured.RemoveNestedField(out.Object, path...)
		}
	})
	return out
}

// metadata copies the metadata that does not depend on place and time.
func metadata(to, from *unstructured.Unstructured) {
	to.SetName(from.GetName())
	to.SetLabels(from.GetLabels())
	annotations := from.GetAnnotations()
	if annotations[engine.HashAnnotation] != "" { // adopted; a restore must not adopt it again
		delete(annotations, adopt.LastApplied)
	}
	for _, a := range []string{v1alpha1.AnnotationUpdateFrom, v1alpha1.AnnotationAtOnce, v1alpha1.AnnotationPaused, v1alpha1.AnnotationPausedBefore,
		v1alpha1.AnnotationStoppedBy, engine.HashAnnotation, lastApplied} {
		delete(annotations, a)
	}
	to.SetAnnotations(annotations)
}

// lastApplied is where kubectl stores a file.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// bare returns an object without what depends on place and time.
func bare(o client.Object, kind string) (*unstructured.Unstructured, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, fmt.Errorf("saving %s %q: %w", kind, o.GetName(), err)
	}
	from := &unstructured.Unstructured{Object: content}
	out := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
	for _, field := range []string{"data", "binaryData", "type", "immutable"} {
		if v, there := content[field]; there {
			out.Object[field] = v
		}
	}
	metadata(out, from)
	return out, nil
}

// Dial replaces the usual dialer, unless it is nil.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// patience bounds each statement of a dump or load: an index on a large table takes long.
const patience = 2 * time.Hour

// Connect connects to a database server as the administrator of a cloud. A password in a Secret is read from namespace.
func Connect(ctx context.Context, c client.Reader, namespace string, server v1alpha1.DatabaseServer, owner backup.Cloud, dial Dial) (*mysql.Admin, error) {
	cfg, err := Login(ctx, c, namespace, server, owner, dial)
	if err != nil {
		return nil, err
	}
	return mysql.Open(ctx, cfg)
}

// Login returns the configuration of such a connection.
func Login(ctx context.Context, c client.Reader, namespace string, server v1alpha1.DatabaseServer, owner backup.Cloud, dial Dial) (mysql.Config, error) {
	password, err := effects.AdminPassword(ctx, effects.Secrets(c, namespace), server)
	if err != nil {
		return mysql.Config{}, err
	}
	return mysql.Config{
		Host: server.Host, Port: int(server.Port), User: cmp.Or(server.Username, resolve.DefaultMysqlUser), Password: password,
		TLS: mysql.TLSMode(server.TLS.Mode), CA: server.TLS.CA, Patience: patience,
		Owner: mysql.Owner{ID: owner.ID, Namespace: owner.Namespace, Name: owner.Name}, Dial: dial,
	}, nil
}

// History returns the records of the backups of the cloud in a namespace, the latest first.
func History(ctx context.Context, c client.Reader, namespace string) (backup.History, error) {
	cm := &corev1.ConfigMap{}
	if _, err := kube.Find(ctx, c, client.ObjectKey{Namespace: namespace, Name: backup.HistoryName}, cm, "the history of backups"); err != nil {
		return nil, err
	}
	return backup.ParseHistory(cm.Data[backup.HistoryKey])
}

// AddRecord adds a record to the history of a cloud: docs/decisions/0052.
func AddRecord(ctx context.Context, c client.Client, by client.FieldOwner, cloud client.Object, one backup.Record) error {
	err := retry.OnError(retry.DefaultBackoff, func(err error) bool { return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) }, func() error {
		cm := &corev1.ConfigMap{}
		err := c.Get(ctx, client.ObjectKey{Namespace: cloud.GetNamespace(), Name: backup.HistoryName}, cm)
		if client.IgnoreNotFound(err) != nil {
			return err
		}
		before := cm.DeepCopy()
		history, _ := backup.ParseHistory(cm.Data[backup.HistoryKey]) // a damaged history starts again
		cm.Namespace, cm.Name = cloud.GetNamespace(), backup.HistoryName
		cm.Labels = map[string]string{
			v1alpha1.LabelName: v1alpha1.ValueName, v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy, v1alpha1.LabelInstance: v1alpha1.InstancePrefix + cloud.GetName(),
		}
		cm.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind, Name: cloud.GetName(), UID: cloud.GetUID()}}
		cm.Data = map[string]string{backup.HistoryKey: history.With(one, time.Now()).String()}
		if err != nil {
			return c.Create(ctx, cm, by)
		}
		err = c.Patch(ctx, cm, kube.IfUnchanged(before), by)
		if apierrors.IsForbidden(err) { // the pods of component backup have the permissions of an earlier release
			err = c.Update(ctx, cm, by)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("recording the backup in ConfigMap %s/%s: %w", cloud.GetNamespace(), backup.HistoryName, err)
	}
	return nil
}
