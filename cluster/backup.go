// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/archive"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// Backup is a backup of a cloud that this program makes, as an operation.
type Backup struct {
	Key client.ObjectKey
	Recorded
	// Place says where it goes, and Open opens that. Out instead is a stream, which cannot be proven.
	Place string
	Open  func(context.Context) (backup.Store, error)
	Out   io.Writer
	// Recipients can read it; Identity is that of a passphrase.
	Recipients []age.Recipient
	Identity   age.Identity
	// Keep is how many backups of the cloud stay in the store; 0 for all.
	Keep      int
	SkipProof bool
	// Snapshots are those of etcd of which the newest goes beside the backup; none without a directory. The proof notes it with the rest.
	Snapshots Snapshots
	// Now sets what the cloud asks for once the backup has its turn; nil where nothing depends on the cloud.
	Now func(cr *v1alpha1.OnecloudCluster, b *Backup)
}

// Make makes the backup, and records in the cluster what became of it. A warning says that older backups could not be removed, or that no snapshot of etcd is
// with it.
func (b Backup) Make(ctx context.Context, c client.WithWatch) (info backup.Info, warning error, err error) {
	u, err := get(ctx, c, b.Key)
	if err != nil {
		return backup.Info{}, nil, err
	}
	m := &making{Backup: b, client: c}
	defer m.close()
	began := time.Now()
	spec := v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionBackup, Backup: &v1alpha1.BackupParameters{Place: b.Place}}
	err = operation.Perform(ctx, b.runner(c, b.Key, spec), operation.Work[*making]{Steps: backupSteps(), Unlocked: true}, m, m.result)
	if len(m.warnings) > 0 {
		warning = m.warnings
	}
	return m.info, errors.Join(warning, m.record(ctx, c, u, began, m.info, err)), err
}

// Within makes the backup as a part of another operation.
func (b Backup) Within(ctx context.Context, c client.WithWatch, report workflow.Reporter) (backup.Info, error) {
	u, err := get(ctx, c, b.Key)
	if err != nil {
		return backup.Info{}, err
	}
	m := &making{Backup: b, client: c, part: true}
	defer m.close()
	began := time.Now()
	for _, p := range backupSteps() {
		if p.Skip != nil && p.Skip(m) != "" {
			continue
		}
		if err = p.Run(ctx, m, report); err != nil {
			break
		}
	}
	if unrecorded := m.record(ctx, c, u, began, m.info, err); unrecorded != nil {
		report.Info("%v", unrecorded)
	}
	return m.info, err
}

// making is a backup in the making.
type making struct {
	Backup
	client   client.WithWatch
	plan     *backup.Plan
	info     backup.Info
	warnings finding.List
	// part is true for a backup that another operation makes; half is the restore that has left the databases half replaced.
	part bool
	half string
}

func (m *making) close() {
	if m.plan != nil && m.plan.Admin != nil {
		m.plan.Admin.Close()
	}
}

// result is what the operation says of the backup.
func (m *making) result(s *v1alpha1.OnecloudOperationStatus) {
	if m.info.Size > 0 {
		s.Backup = &v1alpha1.OperationBackup{Name: m.info.Name, Place: m.Place, Size: m.info.Size, Tables: m.info.Tables, Rows: m.info.Rows, Problem: m.info.Problem}
		if p := m.info.Proven; p != nil {
			s.Backup.Proven = metav1.NewTime(*p)
		}
	}
	s.Findings = append(s.Findings, operation.Findings(m.warnings)...)
}

// warn notes what did not keep the backup from being made.
func (m *making) warn(r workflow.Reporter, f finding.Finding) {
	m.warnings = append(m.warnings, f)
	r.Changed("%s %v", f.Code, f)
}

// backupSteps are the steps of action Backup.
func backupSteps() []workflow.Phase[*making] {
	return []workflow.Phase[*making]{
		{Name: "prepare", Short: "Look at the place and the databases", Timeout: longStep, Run: step((*making).prepare)},
		{Name: "dump", Short: "Write the databases, passwords and options into the file", Timeout: longStep, Run: step((*making).dump)},
		{
			Name: "etcd", Short: "Store the newest snapshot of etcd beside the file", Timeout: longStep, Run: step((*making).etcd),
			Skip: func(m *making) string {
				if m.Snapshots.Dir == "" || m.Out != nil {
					return "without --etcd-snapshots there is none"
				}
				return ""
			},
		},
		{
			Name: "prove", Short: "Restore the file into scratch databases, and compare", Timeout: longStep, Run: step((*making).prove),
			Skip: func(m *making) string {
				switch {
				case m.Out != nil:
					return "a stream cannot be read back"
				case m.SkipProof:
					return "no proof was asked for"
				}
				return ""
			},
		},
		{
			Name: "retention", Short: "Remove older backups", Timeout: longStep, Run: step((*making).retain),
			Skip: func(m *making) string {
				if m.Out != nil || m.Keep == 0 {
					return "all are kept"
				}
				return ""
			},
		},
	}
}

// prepare reads the cloud only now: while the backup waited for its turn, an update may have changed its version, a move its database server, a person its
// schedule.
func (m *making) prepare(ctx context.Context, r workflow.Reporter) error {
	cloud, cr, err := load(ctx, m.client, m.Key)
	if err != nil {
		return err
	}
	if m.Now != nil {
		m.Now(cr, &m.Backup)
	}
	if err := betweenReleases(ctx, m.client, cr); err != nil {
		return err
	}
	if err := m.whole(ctx, cr); err != nil {
		return err
	}
	source, err := archive.Gather(ctx, m.client, cloud, time.Now())
	if err != nil {
		return err
	}
	m.plan = &backup.Plan{Source: source, Recipients: m.Recipients, Identity: m.Identity, Keep: m.Keep, SkipProof: m.SkipProof}
	if m.Out == nil {
		if m.plan.Store, err = m.Open(ctx); err != nil {
			return err
		}
	}
	if m.plan.Admin, err = openDatabases(ctx, m.client, cr, cr.Spec.MySQL, source.Header.Cloud.ID); err != nil {
		return err
	}
	if err := m.complete(ctx, cr); err != nil || m.Out != nil {
		return err
	}
	return m.plan.Prepare(ctx, r)
}

// betweenReleases refuses a backup while an operation brings the cloud to another release: its databases would be of both. A backup that was given its
// turn meets none; one that begins without the operator may.
func betweenReleases(ctx context.Context, c client.Client, cr *v1alpha1.OnecloudCluster) error {
	var name string
	list, err := Operations(ctx, c, cr.Namespace, cr.Name)
	switch i := slices.IndexFunc(list, func(o Operation) bool { return o.Status.Phase.Active() && o.Status.Rollout != nil }); {
	case i >= 0:
		name = list[i].Name
	case err != nil && cr.Status.Rollout != nil: // this account may not list them, but the cloud says so, too
		name = cr.Status.Rollout.Operation
	default:
		return nil
	}
	return finding.New("OCA-7421", "Another operation of the cloud runs", fmt.Sprintf("operation %s brings the cloud to another release, and has not ended", name),
		"ocadm operation show "+name+"; once it has ended, run the command again. Nothing moves? kubectl -n onecloud get pods -l app=onecloud-operator")
}

func (m *making) dump(ctx context.Context, r workflow.Reporter) (err error) {
	if m.Out != nil {
		m.info, err = m.plan.Stream(ctx, r, m.Out)
	} else {
		m.info, err = m.plan.Write(ctx, r)
	}
	if err == nil {
		r.Changed("%s in %s: %d bytes, %d databases with %d tables and %d rows", cmp.Or(m.info.Name, "a stream"), m.Place, m.info.Size, len(m.info.Databases),
			m.info.Tables, m.info.Rows)
	}
	return err
}

func (m *making) prove(ctx context.Context, r workflow.Reporter) error {
	err := m.plan.Prove(ctx, r, &m.info)
	if err == nil {
		r.Changed("every table is as it was saved")
	}
	return err
}

// retain warns where older backups cannot be removed: the new one is good.
func (m *making) retain(ctx context.Context, r workflow.Reporter) error {
	if m.half != "" {
		m.warn(r, m.keepsOlder())
		return nil
	}
	gone, err := m.plan.Retain(ctx)
	if len(gone) > 0 {
		r.Changed("removed %s", strings.Join(gone, ", "))
	}
	if err != nil {
		m.warn(r, finding.Warn("OCA-7417", "Older backups could not be removed", err.Error(),
			"allow the deletion in "+m.Place+", or remove them there; --keep 0 (spec.backup.keep: 0) keeps all"))
	}
	return ctx.Err()
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

// Mounted is where a pod that makes backups has its volume, what people call that place, as the path in the pod means nothing to them, and the snapshots of
// etcd of its node.
type Mounted struct {
	Dir, Place string
	Snapshots  Snapshots
}

// ScheduledBackup makes the backup that the spec of a cloud describes, in a pod.
func ScheduledBackup(ctx context.Context, c client.WithWatch, key client.ObjectKey, at Mounted, by Recorded) (info backup.Info, warning error, err error) {
	_, cr, err := load(ctx, c, key)
	if err != nil {
		return backup.Info{}, nil, err
	}
	b := Backup{Key: key, Recorded: by, Snapshots: at.Snapshots}
	b.Now = func(cr *v1alpha1.OnecloudCluster, b *Backup) { b.asScheduled(c, cr, at) }
	b.Now(cr, &b) // the operation names the place of now
	return b.Make(ctx, c)
}

// asScheduled makes the backup the one that the spec describes.
func (b *Backup) asScheduled(c client.Reader, cr *v1alpha1.OnecloudCluster, at Mounted) {
	b.Place, b.Keep = cmp.Or(at.Place, at.Dir), defaultKeep
	if k := cr.Spec.Backup.Keep; k != nil {
		b.Keep = int(*k)
	}
	if s := cr.Spec.Backup.S3; s != nil {
		b.Place = s3Of(s).String()
	}
	var invalid error
	if b.Recipients, invalid = backup.Recipients(cr.Spec.Backup.Recipients...); invalid != nil {
		invalid = finding.Errorf("OCA-7406", "spec.backup.recipients is not valid", "ocadm cluster backup schedule --recipient age1…", "%w", invalid)
	}
	b.Open = func(ctx context.Context) (backup.Store, error) {
		if s := cr.Spec.Backup.S3; s == nil || invalid != nil {
			return backup.Dir(at.Dir), invalid
		}
		return openS3(ctx, c, cr)
	}
}

func s3Of(s *v1alpha1.BackupS3) backup.S3Config {
	return backup.S3Config{Endpoint: s.Endpoint, Plain: s.Plain, Region: s.Region, Bucket: s.Bucket, Prefix: s.Prefix, CA: s.CA}
}

// openS3 opens the bucket in the spec of a cloud.
func openS3(ctx context.Context, c client.Reader, cr *v1alpha1.OnecloudCluster) (backup.Store, error) {
	cfg, name := s3Of(cr.Spec.Backup.S3), cr.Spec.Backup.S3.Secret
	secret := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: cr.Namespace, Name: name}, secret); err != nil {
		return nil, finding.Errorf("OCA-7414", "The object store refuses the keys", "ocadm cluster backup schedule --to s3://… with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
			"reading the keys of the object store: %w", err)
	}
	cfg.AccessKey, cfg.SecretKey = string(secret.Data[v1alpha1.BackupAccessKey]), string(secret.Data[v1alpha1.BackupSecretKey])
	return OpenS3(ctx, cfg)
}

// recordTimeout bounds the record of a backup, which also one that was interrupted gets.
const recordTimeout = 15 * time.Second

// record keeps what became of an attempt in the cluster, where the operator sees it.
func (b Backup) record(ctx context.Context, c client.Client, u *unstructured.Unstructured, began time.Time, info backup.Info, failed error) error {
	one := backup.Record{Name: info.Name, Time: began.UTC().Truncate(time.Second), Seconds: time.Since(began).Seconds(), Size: info.Size,
		Tables: info.Tables, Rows: info.Rows, Proven: info.Proven, Problem: info.Problem, Etcd: info.Etcd}
	one.Place = b.Place
	if failed != nil && one.Problem == "" {
		one.Error = failed.Error()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), recordTimeout)
	defer cancel()
	return archive.AddRecord(ctx, c, kube.FieldManager, u, one)
}
