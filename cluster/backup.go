// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/operatorctl/archive"
)

// Backup is a backup of a cloud that this program makes.
type Backup struct {
	Key client.ObjectKey
	// Store is where it goes; Out instead is a stream, which cannot be proven.
	Store backup.Store
	Out   io.Writer
	// Recipients can read it; Identity is that of a passphrase.
	Recipients []age.Recipient
	Identity   age.Identity
	// Keep is how many backups of the cloud stay in the store; 0 for all.
	Keep      int
	SkipProof bool
	Report    func(step string)
}

// Make makes the backup, and records in the cluster what became of it.
func (b Backup) Make(ctx context.Context, c client.Client) (backup.Info, error) {
	u, err := get(ctx, c, b.Key)
	if err != nil {
		return backup.Info{}, err
	}
	began := time.Now()
	info, err := b.make(ctx, c, u)
	if unrecorded := b.record(ctx, c, u, began, info, err); unrecorded != nil {
		b.Report("warning: " + unrecorded.Error())
	}
	return info, err
}

func (b Backup) make(ctx context.Context, c client.Client, u *unstructured.Unstructured) (backup.Info, error) {
	cr, err := typed(u)
	if err != nil {
		return backup.Info{}, err
	}
	source, err := archive.Gather(ctx, c, u, time.Now())
	if err != nil {
		return backup.Info{}, err
	}
	if source.Admin, err = openDatabases(ctx, c, cr, cr.Spec.MySQL, source.Header.Cloud.ID); err != nil {
		return backup.Info{}, err
	}
	defer source.Admin.Close()
	plan := backup.Plan{
		Source: source, Store: b.Store, Recipients: b.Recipients, Identity: b.Identity, Keep: b.Keep, SkipProof: b.SkipProof, Report: b.Report,
	}
	if b.Out != nil {
		info, err := plan.Stream(ctx, b.Out)
		return info, backupFinding(err)
	}
	info, err := plan.Run(ctx)
	return info, backupFinding(err)
}

// Recipients are the public keys in the spec of a cloud.
func Recipients(ctx context.Context, c client.Client, key client.ObjectKey) ([]age.Recipient, error) {
	u, err := get(ctx, c, key)
	if err != nil {
		return nil, err
	}
	lines, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "backup", "recipients")
	return backup.Recipients(lines...)
}

// defaultKeep is how many backups stay where the spec does not say.
const defaultKeep = 7

// ScheduledBackup makes the backup that the spec of a cloud describes; dir is where the volume for backups is mounted.
func ScheduledBackup(ctx context.Context, c client.Client, key client.ObjectKey, dir string, report func(step string)) (backup.Info, error) {
	u, err := get(ctx, c, key)
	if err != nil {
		return backup.Info{}, err
	}
	cr, err := typed(u)
	if err != nil {
		return backup.Info{}, err
	}
	b := Backup{Key: key, Store: backup.Dir(dir), Keep: defaultKeep, Report: report}
	if err := b.as(ctx, c, cr); err != nil {
		if unrecorded := b.record(ctx, c, u, time.Now(), backup.Info{}, err); unrecorded != nil {
			report("warning: " + unrecorded.Error())
		}
		return backup.Info{}, err
	}
	return b.Make(ctx, c)
}

// as takes place, recipients and number of backups from the spec of a cloud.
func (b *Backup) as(ctx context.Context, c client.Client, cr *v1alpha1.OnecloudCluster) error {
	if k := cr.Spec.Backup.Keep; k != nil {
		b.Keep = int(*k)
	}
	var err error
	if b.Recipients, err = backup.Recipients(cr.Spec.Backup.Recipients...); err != nil {
		return finding.Errorf("OCA-7406", "spec.backup.recipients is not valid", "ocadm cluster backup schedule --recipient age1…", "%w", err)
	}
	s := cr.Spec.Backup.S3
	if s == nil {
		return nil
	}
	secret := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: cr.Namespace, Name: s.Secret}, secret); err != nil {
		return fmt.Errorf("reading the keys of the object store: %w", err)
	}
	store, err := backup.NewS3(ctx, backup.S3Config{
		Endpoint: s.Endpoint, Plain: s.Plain, Region: s.Region, Bucket: s.Bucket, Prefix: s.Prefix,
		AccessKey: string(secret.Data[v1alpha1.BackupAccessKey]), SecretKey: string(secret.Data[v1alpha1.BackupSecretKey]),
	})
	if err != nil {
		return finding.Errorf("OCA-7412", "The object store cannot be used", "check spec.backup.s3 and Secret "+s.Secret, "%w", err)
	}
	b.Store = store
	return nil
}

// backupFinding says what to do about a backup that failed.
func backupFinding(err error) error {
	var space *backup.SpaceError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &space):
		return finding.Errorf("OCA-7402", "There is not enough space for the backup", "make room, or give another place with --to", "%w", err)
	case errors.Is(err, backup.ErrEncrypted):
		return finding.Errorf("OCA-7404", "The backup cannot be decrypted", "give the secret key of one of its recipients with --identity FILE, or its passphrase with "+
			"--passphrase-file FILE", "%w", err)
	case errors.Is(err, backup.ErrDamaged):
		return finding.Errorf("OCA-7405", "The backup is damaged", "use another one: ocadm cluster backup list", "%w", err)
	}
	return databaseFinding(err)
}

// Verified is what verifying a backup found.
type Verified struct {
	backup.Info
	Objects []string `json:"objects"`
	Images  []string `json:"images"`
}

// Verify reads a backup to its end. With a cloud, it also restores it into scratch databases on the cloud's server and compares.
func Verify(ctx context.Context, c client.Client, key *client.ObjectKey, s backup.Store, name string, ids ...age.Identity) (Verified, error) {
	info, err := backup.ReadInfo(ctx, s, name)
	if err != nil {
		return Verified{}, err
	}
	var contents backup.Contents
	if key == nil {
		contents, err = backup.Verify(ctx, s, info, ids...)
	} else {
		contents, err = proveOn(ctx, c, *key, s, info, ids)
	}
	if err != nil {
		return Verified{}, backupFinding(err)
	}
	out := Verified{Info: info, Images: contents.Manifest.Images}
	out.Header = contents.Header
	out.Tables, out.Rows = contents.Manifest.Data.Count()
	for _, o := range contents.Objects {
		out.Objects = append(out.Objects, o.Kind+"/"+o.Name)
	}
	if key != nil {
		now := time.Now().UTC().Truncate(time.Second)
		out.Proven = &now
		return out, provenNow(ctx, c, *key, s, out.Info)
	}
	return out, nil
}

// provenNow records the proof of a backup, if it is one of this cloud.
func provenNow(ctx context.Context, c client.Client, key client.ObjectKey, s backup.Store, info backup.Info) error {
	u, err := get(ctx, c, key)
	if err != nil {
		return err
	}
	id, err := archive.CredentialsID(ctx, c, key)
	if err != nil || id != info.Cloud.ID {
		return err
	}
	return addRecord(ctx, c, u, backup.Record{Name: info.Name, Place: s.String(), Time: info.Time, Seconds: info.Seconds, Size: info.Size,
		Tables: info.Tables, Rows: info.Rows, Proven: info.Proven})
}

func proveOn(ctx context.Context, c client.Client, key client.ObjectKey, s backup.Store, info backup.Info, ids []age.Identity) (backup.Contents, error) {
	u, err := get(ctx, c, key)
	if err != nil {
		return backup.Contents{}, err
	}
	cr, err := typed(u)
	if err != nil {
		return backup.Contents{}, err
	}
	id, err := archive.CredentialsID(ctx, c, key)
	if err != nil {
		return backup.Contents{}, err
	}
	a, err := openDatabases(ctx, c, cr, cr.Spec.MySQL, id)
	if err != nil {
		return backup.Contents{}, err
	}
	defer a.Close()
	return backup.Prove(ctx, s, info, a, ids...)
}

// Schedule is how a cloud is backed up by itself; what is nil or empty stays.
type Schedule struct {
	Key client.ObjectKey
	Off bool
	// At is a cron expression.
	At         string
	Keep       *int32
	Recipients []string
	S3         *v1alpha1.BackupS3
	// AccessKey and SecretKey of S3 go into a Secret.
	AccessKey, SecretKey string
}

// s3Secret is a suffix: the Secret <cloud>-backup-s3 holds the keys of the object store.
const s3Secret = "-backup-s3"

// Apply writes the schedule into the cloud, and returns a line for each change.
func (s Schedule) Apply(ctx context.Context, c client.Client) ([]string, error) {
	if _, err := backup.Recipients(s.Recipients...); err != nil {
		return nil, finding.Errorf("OCA-7406", "A recipient of the backup is not valid", "give what age-keygen prints as public key: age1…", "%w", err)
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
			lines = append(lines, fmt.Sprintf("spec.backup.%s: %s → %s", field, orNone(text(got)), text(want)))
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
	if s.S3 != nil {
		s.S3.Secret = s.Key.Name + s3Secret
		if err := s.keys(ctx, c); err != nil {
			return nil, err
		}
		set("s3", map[string]any{"endpoint": s.S3.Endpoint, "bucket": s.S3.Bucket, "prefix": s.S3.Prefix, "region": s.S3.Region, "plain": s.S3.Plain, "secret": s.S3.Secret})
	}
	if len(patch) == 0 {
		return nil, nil
	}
	if err := merge(ctx, c, u, map[string]any{"spec": map[string]any{"backup": patch}}); err != nil {
		return nil, fmt.Errorf("scheduling backups of cloud %s: %w", s.Key, err)
	}
	return lines, nil
}

// keys writes the Secret with the keys of the object store.
func (s Schedule) keys(ctx context.Context, c client.Client) error {
	want := map[string][]byte{v1alpha1.BackupAccessKey: []byte(s.AccessKey), v1alpha1.BackupSecretKey: []byte(s.SecretKey)}
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = s.Key.Namespace, s.S3.Secret
	err := c.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	if client.IgnoreNotFound(err) == nil && err != nil {
		secret.Data = want
		err = c.Create(ctx, secret)
	} else if err == nil && (s.AccessKey != "" || s.SecretKey != "") {
		secret.Data = want
		err = c.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("keeping the keys of the object store: %w", err)
	}
	return nil
}
