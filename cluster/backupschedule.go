// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
)

// Schedule configures the scheduled backups of a cloud. Nil and empty fields change nothing.
type Schedule struct {
	Key client.ObjectKey
	Off bool
	// At is a cron expression.
	At         string
	Keep       *int32
	Recipients []string
	// Unencrypted permits backups without recipients.
	Unencrypted bool
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
	if err := s.valid(ctx, c, u); err != nil {
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
		set("recipients", lists.Map(s.Recipients, func(r string) any { return r }))
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

// valid refuses what the operator could not carry out, and the beginning of backups that everyone who gets a file could read. The API server knows the
// syntax of times; an account that may not ask it learns of a mistake from the status of the cloud.
func (s Schedule) valid(ctx context.Context, c client.Client, u *unstructured.Unstructured) error {
	const what, remedy = "The schedule of the backups is not valid", "correct it, for example: ocadm cluster backup schedule --at @daily"
	off, set, _ := unstructured.NestedBool(u.Object, "spec", "backup", "disable")
	recipients, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "backup", "recipients")
	if begins := !s.Off && (off || !set); begins && len(s.Recipients)+len(recipients) == 0 && !s.Unencrypted {
		return finding.New("OCA-7406", "The backups have no recipient", "each file would hold all passwords in clear text, and spec.backup.recipients is empty",
			"give --recipient; or --unencrypted, and keep the files safe")
	}
	if s.Node != "" {
		if err := c.Get(ctx, client.ObjectKey{Name: s.Node}, &corev1.Node{}); apierrors.IsNotFound(err) {
			return finding.New("OCA-7438", what, fmt.Sprintf("there is no node %q", s.Node), "kubectl get nodes")
		}
	}
	if s.At == "" {
		return nil
	}
	job := &batchv1.CronJob{Spec: batchv1.CronJobSpec{Schedule: s.At}}
	job.Namespace, job.Name = s.Key.Namespace, "ocadm-schedule"
	job.Spec.JobTemplate.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "none", Image: "none"}}}
	if err := c.Create(ctx, job, client.DryRunAll); apierrors.IsInvalid(err) {
		return finding.Errorf("OCA-7438", what, remedy, "%w", err)
	}
	return nil
}

func valueOrNone(value any) string {
	if value == nil {
		return orNone("")
	}
	return orNone(text(value))
}

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
