// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
)

// Schedule configures the scheduled backups of a cloud. Nil and empty fields change nothing.
type Schedule struct {
	Key client.ObjectKey
	Off bool
	// At is a cron expression.
	At         string
	Keep       *int32
	Recipients []string
	// Dir is a directory on Node; "" means the node in the spec, or any. Dir and S3 replace each other.
	Dir, Node string
	S3        *v1alpha1.BackupS3
	// AccessKey and SecretKey for S3 are stored in a Secret.
	AccessKey, SecretKey string
}

// s3Secret is a suffix: Secret <cloud>-backup-s3 holds the keys of the object store.
const s3Secret = "-backup-s3"

// Apply writes the schedule to the cloud, and returns a line for each change.
func (s Schedule) Apply(ctx context.Context, c client.Client) ([]string, error) {
	if _, err := backup.Recipients(s.Recipients...); err != nil {
		return nil, finding.Errorf("OCA-7406", "A recipient of the backup is not valid", "give the public key that age-keygen prints: age1…", "%w", err)
	}
	u, err := get(ctx, c, s.Key)
	if err != nil {
		return nil, err
	}
	patch := map[string]any{}
	var lines []string
	set := func(field string, want any) {
		got, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "backup", field)
		if text(got) != text(want) {
			patch[field] = want
			lines = append(lines, fmt.Sprintf("spec.backup.%s: %s → %s", field, valueOrNone(got), valueOrNone(want)))
		}
	}
	set("disable", s.Off)
	if s.At != "" {
		set("schedule", s.At)
	}
	if s.Keep != nil {
		set("keep", int64(*s.Keep))
	}
	if len(s.Recipients) > 0 {
		var list []any
		for _, r := range s.Recipients {
			list = append(list, r)
		}
		set("recipients", list)
	}
	if s.Dir != "" {
		set("hostPath", s.Dir)
		set("s3", nil)
	}
	if s.Node != "" {
		set("nodeSelector", map[string]any{corev1.LabelHostname: s.Node})
	}
	if s.S3 != nil {
		set("hostPath", nil)
		s.S3.Secret = s.Key.Name + s3Secret
		if err := s.keys(ctx, c); err != nil {
			return nil, err
		}
		set("s3", map[string]any{"endpoint": s.S3.Endpoint, "bucket": s.S3.Bucket, "prefix": s.S3.Prefix, "region": s.S3.Region, "ca": s.S3.CA,
			"plain": s.S3.Plain, "secret": s.S3.Secret})
	}
	if len(patch) == 0 {
		return nil, nil
	}
	if err := merge(ctx, c, u, map[string]any{"spec": map[string]any{"backup": patch}}); err != nil {
		return nil, fmt.Errorf("scheduling backups of cloud %s: %w", s.Key, err)
	}
	return lines, nil
}

func valueOrNone(value any) string {
	if value == nil {
		return orNone("")
	}
	return orNone(text(value))
}

// keys writes the Secret with the keys of the object store.
func (s Schedule) keys(ctx context.Context, c client.Client) error {
	key := client.ObjectKey{Namespace: s.Key.Namespace, Name: s.S3.Secret}
	err := c.Get(ctx, key, &corev1.Secret{})
	if client.IgnoreNotFound(err) == nil && (err != nil || s.AccessKey != "" || s.SecretKey != "") { // without new keys, it keeps the old ones
		err = PutSecret(ctx, c, key, map[string][]byte{v1alpha1.BackupAccessKey: []byte(s.AccessKey), v1alpha1.BackupSecretKey: []byte(s.SecretKey)})
	}
	if err != nil {
		return fmt.Errorf("storing the keys of the object store: %w", err)
	}
	return nil
}
