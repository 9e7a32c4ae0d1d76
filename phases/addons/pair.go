// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// Pair holds the values for the manifests of an embedded database with a replica.
type Pair struct {
	// Image is ocadm's image, for the agents. Password is that of the replication account.
	Image, Password string
}

// The keys of Secret ocadm-mysql-replication.
const (
	keyAuthority    = "ca.crt"
	keyAuthorityKey = "ca.key"
)

// findPair returns nil if the embedded database has no replica.
func findPair(ctx context.Context, c client.Reader, cfg *config.Config) (*Pair, error) {
	s := &corev1.Secret{ObjectMeta: named(cfg.Cloud.Namespace, dbpair.SecretName)}
	if found, err := kube.Find(ctx, c, client.ObjectKeyFromObject(s), s, "Secret "+s.Namespace+"/"+s.Name); !found {
		return nil, err
	}
	if pw := string(s.Data[keyPassword]); !plain.MatchString(pw) {
		return nil, fmt.Errorf("reading Secret %s/%s: %s is empty or has characters other than letters, digits and -_.", s.Namespace, s.Name, keyPassword)
	}
	return &Pair{Image: cfg.OperatorImage(), Password: string(s.Data[keyPassword])}, nil
}

// AddReplica adds a second server to the embedded database of a namespace. image is ocadm's. It may be repeated: existing objects stay.
func AddReplica(ctx context.Context, c client.WithWatch, namespace, image string) (kube.ChangeSet, error) {
	live := &appsv1.StatefulSet{ObjectMeta: named(namespace, dbpair.First)}
	if err := c.Get(ctx, client.ObjectKeyFromObject(live), live); err != nil {
		return nil, fmt.Errorf("reading StatefulSet %s/%s: %w", namespace, live.Name, err)
	}
	cfg := config.Default()
	cfg.Cloud.Namespace, cfg.Cloud.OperatorImage = namespace, image
	auth, err := credentials(ctx, c, namespace, &live.Spec.Template)
	if err != nil {
		return nil, err
	}
	set, err := ensurePairObjects(ctx, c, namespace)
	if err != nil {
		return set, err
	}
	p, _, err := ensurePassword(ctx, c, &cfg, true)
	if err != nil {
		return set, err
	}
	for _, k := range live.Spec.Template.Spec.Containers {
		p.DatabaseImage = k.Image
	}
	objs, err := database().Objects(&cfg, p)
	if err != nil {
		return set, err
	}
	if objs, err = host.WithPullSecret(auth, objs); err != nil {
		return set, err
	}
	applied, err := kube.Apply(ctx, c, kube.FieldManager, objs...)
	return append(set, applied...), err
}

// recordOf returns the record for a pair without one: that of a new pair or, if the Lease was deleted, one that names the pod labelled as the primary.
func recordOf(ctx context.Context, c client.Client, namespace string) (dbpair.Record, error) {
	key := client.ObjectKey{Namespace: namespace, Name: dbpair.SecretName}
	if found, err := kube.Find(ctx, c, key, &corev1.Secret{}, "Secret "+key.String()); !found {
		return dbpair.Record{Primary: dbpair.First}, err
	}
	for _, server := range dbpair.Servers() {
		pod := &corev1.Pod{}
		key.Name = dbpair.PodName(server)
		if _, err := kube.Find(ctx, c, key, pod, "pod "+key.Name); err != nil {
			return dbpair.Record{}, err
		}
		if pod.Labels[dbpair.RoleLabel] == dbpair.RolePrimary {
			return dbpair.Record{Primary: server, Term: 1}, nil
		}
	}
	// Either server may have the newer data, and a wrong guess would overwrite it.
	return dbpair.Record{}, finding.New("OCA-7436", "The primary of the embedded database is not known",
		"Lease "+namespace+"/"+dbpair.RecordName+" was deleted, and no pod is labelled as the primary",
		"find the pod that was the primary, "+dbpair.PodName(dbpair.First)+" or "+dbpair.PodName(dbpair.Second)+", as ocadm explain OCA-7436 says; then kubectl -n "+
			namespace+" label pod POD --overwrite "+dbpair.RoleLabel+"="+dbpair.RolePrimary+", and run the command again")
}

// ensurePairObjects creates the objects that are created once: the Secret, the Leases, and the ConfigMap with the redundancy.
func ensurePairObjects(ctx context.Context, c client.Client, namespace string) (kube.ChangeSet, error) {
	ca, err := pki.NewCA(time.Now(), "ocadm-mysql", nil)
	if err != nil {
		return nil, err
	}
	key, err := ca.KeyPEM()
	if err != nil {
		return nil, err
	}
	record := &coordinationv1.Lease{ObjectMeta: named(namespace, dbpair.RecordName)}
	if err := c.Get(ctx, client.ObjectKeyFromObject(record), record.DeepCopy()); err != nil {
		if !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("reading Lease %s/%s: %w", namespace, record.Name, err)
		}
		r, err := recordOf(ctx, c, namespace)
		if err != nil {
			return nil, err
		}
		r.Write(record)
	}
	objs := []client.Object{record, &corev1.Secret{
		ObjectMeta: named(namespace, dbpair.SecretName), Type: corev1.SecretTypeOpaque,
		Data: map[string][]byte{keyPassword: []byte(rand.Text()), keyAuthority: ca.CertPEM(), keyAuthorityKey: key},
	}}
	objs = append(objs, lists.Map(dbpair.Servers(), func(s string) client.Object {
		return &coordinationv1.Lease{ObjectMeta: named(namespace, dbpair.MemberName(s))}
	})...)
	state := &corev1.ConfigMap{ObjectMeta: named(namespace, dbpair.StateName)}
	state.Labels = map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ValueManagedBy} // the operator caches only labelled objects
	objs = append(objs, state)
	var set kube.ChangeSet
	for _, o := range objs {
		kind := map[string]string{dbpair.SecretName: "Secret", dbpair.StateName: "ConfigMap"}[o.GetName()]
		kind = cmp.Or(kind, "Lease")
		switch err := c.Create(ctx, o, client.FieldOwner(kube.FieldManager)); {
		case err == nil:
			set = append(set, kube.Change{Action: kube.Created, Kind: kind, Namespace: namespace, Name: o.GetName()})
		case !apierrors.IsAlreadyExists(err):
			return set, fmt.Errorf("creating %s %s/%s: %w", kind, namespace, o.GetName(), err)
		}
	}
	return set, nil
}
