// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// FromBackup copies the cloud of a backup into a configuration, and that configuration's environment into the restore: database server, address, storage
// class and ingress. It is pure.
func FromBackup(c *config.Config, r *cluster.Restore, contents backup.Contents) error {
	cr, err := savedCloud(contents)
	if err != nil {
		return err
	}
	for _, saved := range []struct {
		key, value string
		field      *string
		update     string // the flag of ocadm cluster update that changes it later
	}{
		{"cloud.version", cmp.Or(contents.Header.Version, cr.Spec.Version), &c.Cloud.Version, "--version"}, // an update may have been pending
		{"cloud.name", contents.Header.Cloud.Name, &c.Cloud.Name, ""},
		{"cloud.namespace", contents.Header.Cloud.Namespace, &c.Cloud.Namespace, ""},
		{"cloud.region", cr.Spec.Region, &c.Cloud.Region, ""},
		{"cloud.zone", cr.Spec.Zone, &c.Cloud.Zone, ""},
		{"cloud.edition", cr.Annotations[v1alpha1.AnnotationEdition], &c.Cloud.Edition, "--edition"},
		{"cloud.productVersion", cr.Spec.ProductVersion, &c.Cloud.ProductVersion, ""},
		{"cloud.profile", cr.Spec.Profile, &c.Cloud.Profile, "--profile"},
	} {
		if flag := "--" + config.Find(saved.key).Flag; saved.value != "" && c.Gives(saved.key) && *saved.field != saved.value {
			remedy := "omit " + flag
			if saved.update != "" {
				remedy += "; once the cloud runs: ocadm cluster update " + saved.update + " " + *saved.field
			}
			return finding.New("OCA-7148", flag+" contradicts the backup", fmt.Sprintf("in the backup it is %s, not %s", saved.value, *saved.field), remedy)
		}
		*saved.field = cmp.Or(saved.value, *saved.field)
	}
	o := Options(c)
	r.Namespace, r.Address = o.Namespace, o.LoadBalancerEndpoint
	r.MySQL = v1alpha1.DatabaseServer{
		Host: o.Database.Host, Port: int32(o.Database.Port), Username: o.Database.Username, //nolint:gosec // Validate has checked the port
		PasswordSecretRef: &v1alpha1.SecretKeyRef{Name: o.Database.Secret, Key: o.Database.SecretKey},
		TLS:               v1alpha1.DatabaseTLS{Mode: cmp.Or(o.Database.TLS, string(mysql.TLSPreferred)), CA: o.Database.CA},
	}
	r.Spec = map[string]any{
		"storageClassName": given(o.StorageClass), "ingressClassName": given(o.IngressClass), "imagePullSecrets": nil, "web.hostPorts": nil,
	}
	if at := cr.Spec.Backup.NodeSelector[corev1.LabelHostname]; at != "" && at != c.Node.Name {
		r.Spec["backup.nodeSelector"] = nil // no node of this cluster has that name: backups would never run
	}
	if o.PullSecret != "" {
		r.Spec["imagePullSecrets"] = []any{map[string]any{"name": o.PullSecret}}
	}
	if o.WebHostPorts {
		r.Spec["web.hostPorts"] = true
	}
	if o.ImageRepository != "" {
		r.Spec["imageRepository"] = o.ImageRepository
	}
	return nil
}

// given returns nil for an empty text, which removes a field.
func given(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func savedCloud(contents backup.Contents) (*v1alpha1.OnecloudCluster, error) {
	for _, o := range contents.Objects {
		if o.Kind != v1alpha1.Kind {
			continue
		}
		cr := &v1alpha1.OnecloudCluster{}
		if err := json.Unmarshal(o.JSON, cr); err != nil {
			return nil, fmt.Errorf("reading the cloud of the backup: %w", err)
		}
		return cr, nil
	}
	return nil, fmt.Errorf("the backup contains no %s", v1alpha1.Kind)
}

// restoreTimeout bounds the restore of all databases.
const restoreTimeout = 4 * time.Hour

// serverPatience is how long the database server may be unreachable. The embedded one has only just become ready, and a busy node learns the address of its
// Service late.
const serverPatience = 2 * time.Minute

// Restore restores the databases of the backup that --restore-from names, and creates its cloud. A cloud that exists was created by an earlier run and is
// left unchanged.
func Restore() host.Phase {
	return host.Phase{
		Name: "restore", Short: "Restore the cloud from a backup", Timeout: restoreTimeout,
		Long: "Restores the databases of the backup that --restore-from names, compares every table, and creates the cloud with its passwords,\n" +
			"certificates and options, at the address of this cluster. An existing cloud is left unchanged.",
		Skip: workflow.SkipIf("--restore-from was not given", func(h *host.Host) bool { return h.Restore == nil }),
		Check: func(ctx context.Context, h *host.Host) (there bool, err error) {
			err = h.Look(ctx, func(ctx context.Context, c client.WithWatch) error {
				there, err = h.Restore.Exists(ctx, c)
				return err
			})
			return err == nil && there, nil // Run reports what is wrong
		},
		Plan: func(_ context.Context, h *host.Host) ([]string, error) {
			r := h.Restore
			return []string{
				fmt.Sprintf("restore the databases of cloud %s on %s from %s", r.Key(), r.MySQL.Host, r.Name),
				fmt.Sprintf("create OnecloudCluster %s version %s at %s", r.Key(), h.Config.Cloud.Version, r.Address),
			}, nil
		},
		Run: runRestore,
	}
}

func runRestore(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	c, err := h.Kube(ctx)
	if err != nil {
		return err
	}
	if there, err := h.Restore.Exists(ctx, c); err != nil || there {
		return err
	}
	from := *h.Restore
	from.Show = cluster.ShowOn(r)
	from.Patience, from.Waiting = serverPatience, r.Waiting
	done, err := from.Apply(ctx, c)
	if err != nil {
		return err
	}
	for _, line := range done.Changes {
		r.Changed("%s", line)
	}
	return nil
}
