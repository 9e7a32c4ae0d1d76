// SPDX-License-Identifier: Apache-2.0

package addons

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"regexp"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/dbpair"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
)

// DatabaseName is the name of the embedded database's Service and StatefulSet, and of the Secret with its administrator's password.
const DatabaseName = "ocadm-mysql"

// The keys of that Secret.
const (
	keyUser     = "username"
	keyPassword = "password"
)

// defaultStorage is the size of the embedded database's volume; local-path does not enforce it.
const defaultStorage = "20Gi"

func database() Addon {
	return Addon{
		Name: "database", Dir: "database", Short: "Install the embedded database",
		Long: "Installs one MariaDB on a local volume, with a generated administrator's password in Secret ocadm-mysql, which is created once and\n" +
			"never changed. With --mysql-host, your own server is used and nothing is installed.",
		Skip:   workflow.SkipIf("--mysql-host names a database server", func(c *config.Config) bool { return c.Database.Host != "" }),
		Images: []string{"mariadb"},
		Data: func(c *config.Config, image map[string]string, p Prepared) (any, error) {
			class := c.Cloud.StorageClass
			if class == "" && c.Addons.Storage != config.None { // "" is the cluster's default class
				class = config.DefaultStorageClass
			}
			size := cmp.Or(c.Database.StorageSize, defaultStorage)
			if p.Volume != nil {
				class, size = ptr.Deref(p.Volume.StorageClassName, ""), p.Volume.Resources.Requests.Storage().String()
			}
			return map[string]any{
				"Image": cmp.Or(p.DatabaseImage, image["mariadb"]), "Namespace": c.Cloud.Namespace, "Password": p.Password,
				"StorageClass": class, "StorageSize": size, "Pair": p.Pair, "Servers": databaseServers(p.Pair != nil),
			}, nil
		},
		Prepare: ensurePassword,
		Waits:   []client.Object{&appsv1.StatefulSet{ObjectMeta: named("", DatabaseName)}},
	}
}

// databaseServer is one server of the embedded database.
type databaseServer struct {
	Name string
	ID   int
}

func databaseServers(pair bool) []databaseServer {
	return lists.Pick(dbpair.Servers(), func(s string) (databaseServer, bool) {
		return databaseServer{Name: s, ID: dbpair.ID(s)}, s == dbpair.First || pair
	})
}

// EmbeddedDatabase returns the objects of the embedded database in a namespace, and those that hold its data. It is pure.
func EmbeddedDatabase(namespace string) (objs, data []*unstructured.Unstructured, err error) {
	c := config.Default()
	c.Cloud.Namespace = namespace
	objs, err = database().Objects(&c, Prepared{Pair: &Pair{}})
	for _, d := range []struct{ kind, name string }{
		{"PersistentVolumeClaim", dbpair.ClaimName(dbpair.First)}, {"PersistentVolumeClaim", dbpair.ClaimName(dbpair.Second)},
		{"Secret", DatabaseName}, {"Secret", dbpair.SecretName},
	} {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("v1")
		u.SetKind(d.kind)
		u.SetNamespace(namespace)
		u.SetName(d.name)
		data = append(data, u)
	}
	return objs, data, err
}

// ensurePassword reads the embedded database's administrator password, or creates one if there is none. It never replaces it: the database on the volume has
// the first one.
func ensurePassword(ctx context.Context, c client.WithWatch, cfg *config.Config, look bool) (Prepared, kube.ChangeSet, error) {
	s := &corev1.Secret{ObjectMeta: named(cfg.Cloud.Namespace, DatabaseName)}
	err := c.Get(ctx, client.ObjectKeyFromObject(s), s)
	if err == nil {
		pw := string(s.Data[keyPassword])
		if !plain.MatchString(pw) {
			return Prepared{}, nil, fmt.Errorf("reading Secret %s/%s: %s is empty or has characters other than letters, digits and -_.", s.Namespace, s.Name,
				keyPassword)
		}
		pair, err := findPair(ctx, c, cfg)
		if err != nil {
			return Prepared{}, nil, err
		}
		volume, err := findVolume(ctx, c, cfg.Cloud.Namespace)
		if err == nil {
			err = sameSize(cfg, volume)
		}
		return Prepared{Password: pw, Pair: pair, Volume: volume}, nil, err
	}
	if !apierrors.IsNotFound(err) {
		return Prepared{}, nil, fmt.Errorf("reading Secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	made := kube.ChangeSet{{Action: kube.Created, Kind: "Secret", Namespace: s.Namespace, Name: s.Name}}
	if look {
		return Prepared{}, made, nil
	}
	ns := &corev1.Namespace{ObjectMeta: named("", cfg.Cloud.Namespace)}
	if err := c.Create(ctx, ns, client.FieldOwner(kube.FieldManager)); err != nil && !apierrors.IsAlreadyExists(err) {
		return Prepared{}, nil, fmt.Errorf("creating namespace %s: %w", ns.Name, err)
	}
	pw := rand.Text()
	s.Type = corev1.SecretTypeOpaque
	s.Data = map[string][]byte{keyUser: []byte("root"), keyPassword: []byte(pw)}
	if err := c.Create(ctx, s, client.FieldOwner(kube.FieldManager)); err != nil {
		return Prepared{}, nil, fmt.Errorf("creating Secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	return Prepared{Password: pw}, made, nil
}

// findVolume returns the volume of the running embedded database, which cannot be changed, nil if there is none.
func findVolume(ctx context.Context, c client.Reader, namespace string) (*corev1.PersistentVolumeClaimSpec, error) {
	s := &appsv1.StatefulSet{ObjectMeta: named(namespace, DatabaseName)}
	if _, err := kube.Find(ctx, c, client.ObjectKeyFromObject(s), s, "StatefulSet "+namespace+"/"+s.Name); err != nil {
		return nil, err
	}
	if len(s.Spec.VolumeClaimTemplates) == 0 {
		return nil, nil
	}
	return &s.Spec.VolumeClaimTemplates[0].Spec, nil
}

// sameSize returns a finding if the user requests another size than that of the volume.
func sameSize(cfg *config.Config, volume *corev1.PersistentVolumeClaimSpec) error {
	if volume == nil || !cfg.Gives("database.storageSize") {
		return nil
	}
	is := volume.Resources.Requests.Storage()
	wanted, err := resource.ParseQuantity(cfg.Database.StorageSize)
	if err != nil || wanted.Cmp(*is) == 0 {
		return err
	}
	return finding.New("OCA-7439", "The volume of the embedded database keeps its size",
		"it was created with "+is.String()+", and "+cfg.Database.StorageSize+" is requested", "run the command again without --mysql-storage-size")
}

// plain matches a password that can be used in SQL and in an option file without quoting.
var plain = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
