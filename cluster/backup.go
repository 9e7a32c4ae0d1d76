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
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/operatorctl/archive"
	"yunion.io/x/ocadm/operatorctl/operation"
)

// Backup makes a backup of a cloud, as an operation.
type Backup struct {
	Key client.ObjectKey
	Recorded
	// Place describes the destination, and Open opens it. Out is a stream to use instead; its backup cannot be proven.
	Place string
	Open  func(context.Context) (backup.Store, error)
	Out   io.Writer
	// Recipients can decrypt it. Identity is the one of a passphrase.
	Recipients []age.Recipient
	Identity   age.Identity
	// Keep is the number of backups of the cloud to keep in the store; 0 keeps all.
	Keep      int
	SkipProof bool
	// Snapshots locates the etcd snapshots. The newest is stored with the backup, and the proof records it; without a directory, none is.
	Snapshots Snapshots
	// Now updates the Backup from the cloud when its turn has come; nil if nothing depends on the cloud.
	Now func(cr *v1alpha1.OnecloudCluster, b *Backup)
}

// Make makes the backup and records the outcome in the cluster. It only warns if older backups were not removed or no etcd snapshot was stored.
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

// Within makes the backup as part of another operation.
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

type making struct {
	Backup
	client   client.WithWatch
	plan     *backup.Plan
	info     backup.Info
	warnings finding.List
	// part is true for a backup that belongs to another operation. half names the restore that left the databases half replaced.
	part bool
	half string
}

func (m *making) close() {
	if m.plan != nil && m.plan.Admin != nil {
		m.plan.Admin.Close()
	}
}

// result records the backup in the status of the operation.
func (m *making) result(s *v1alpha1.OnecloudOperationStatus) {
	if m.info.Size > 0 {
		s.Backup = &v1alpha1.OperationBackup{Name: m.info.Name, Place: m.Place, Size: m.info.Size, Tables: m.info.Tables, Rows: m.info.Rows, Problem: m.info.Problem}
		if p := m.info.Proven; p != nil {
			s.Backup.Proven = metav1.NewTime(*p)
		}
	}
	s.Findings = append(s.Findings, operation.Findings(m.warnings)...)
}

// warn records a problem that did not prevent the backup.
func (m *making) warn(r workflow.Reporter, f finding.Finding) {
	m.warnings = append(m.warnings, f)
	r.Changed("%s %v", f.Code, f)
}

func backupSteps() []workflow.Phase[*making] {
	return []workflow.Phase[*making]{
		{Name: "prepare", Short: "Check the destination and the databases", Timeout: longStep, Run: step((*making).prepare)},
		{Name: "dump", Short: "Write the databases, passwords and options into the file", Timeout: longStep, Run: step((*making).dump)},
		{
			Name: "etcd", Short: "Store the newest snapshot of etcd beside the file", Timeout: longStep, Run: step((*making).etcd),
			Skip: workflow.SkipIf("--etcd-snapshots was not given", func(m *making) bool { return m.Snapshots.Dir == "" || m.Out != nil }),
		},
		{
			Name: "prove", Short: "Restore the file into scratch databases, and compare", Timeout: longStep, Run: step((*making).prove),
			Skip: func(m *making) string {
				switch {
				case m.Out != nil:
					return "a stream cannot be read back"
				case m.SkipProof:
					return "no proof was requested"
				}
				return ""
			},
		},
		{
			Name: "retention", Short: "Remove older backups", Timeout: longStep, Run: step((*making).retain),
			Skip: workflow.SkipIf("all backups are kept", func(m *making) bool { return m.Out != nil || m.Keep == 0 }),
		},
	}
}

// prepare reads the cloud when the backup starts: while it waited, an update may have changed the version, a move the database server, a user the
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
	if m.half != "" {
		m.warn(r, m.keepsOlder())
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

// betweenReleases refuses a backup while an operation changes the release of the cloud: it would mix databases of both. This can only happen to a
// backup that starts without the operator.
func betweenReleases(ctx context.Context, c client.Client, cr *v1alpha1.OnecloudCluster) error {
	var name string
	list, err := Operations(ctx, c, cr.Namespace, cr.Name)
	switch i := slices.IndexFunc(list, func(o Operation) bool { return o.Status.Phase.Active() && o.Status.Rollout != nil }); {
	case i >= 0:
		name = list[i].Name
	case err != nil && cr.Status.Rollout != nil: // this account may not list operations, but the cloud shows it, too
		name = cr.Status.Rollout.Operation
	default:
		return nil
	}
	return finding.New("OCA-7421", "Another operation of the cloud runs", fmt.Sprintf("operation %s moves the cloud to another release, and has not ended", name),
		"ocadm operation show "+name+"; once it has ended, run the command again. If nothing happens: kubectl -n onecloud get pods -l app=onecloud-operator")
}

func (m *making) dump(ctx context.Context, r workflow.Reporter) (err error) {
	if m.Out != nil {
		m.info, err = m.plan.Stream(ctx, r, m.Out)
	} else {
		m.info, err = m.plan.Write(ctx, r)
	}
	if err == nil {
		r.Changed("%s in %s: %d bytes, %s with %s and %s", cmp.Or(m.info.Name, "a stream"), m.Place, m.info.Size, lists.Counted(len(m.info.Databases), "database"),
			lists.Counted(m.info.Tables, "table"), lists.Counted(m.info.Rows, "row"))
	}
	return err
}

func (m *making) prove(ctx context.Context, r workflow.Reporter) error {
	err := m.plan.Prove(ctx, r, &m.info)
	if err == nil {
		r.Changed("every table matches")
	}
	return err
}

// retain removes older backups. It only warns if that fails, as the new one is good.
func (m *making) retain(ctx context.Context, r workflow.Reporter) error {
	if m.half != "" { // prepare has warned
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

// Recipients returns the public keys in the spec of a cloud.
func Recipients(ctx context.Context, c client.Client, key client.ObjectKey) ([]age.Recipient, error) {
	u, err := get(ctx, c, key)
	if err != nil {
		return nil, err
	}
	lines, _, _ := unstructured.NestedStringSlice(u.Object, "spec", "backup", "recipients")
	return backup.Recipients(lines...)
}

// defaultKeep is the number of backups to keep if the spec does not say.
const defaultKeep = 7

// Mounted describes the volume of a backup pod: Dir is its path in the pod, Place its name for users. Snapshots locates the etcd snapshots of the
// pod's node.
type Mounted struct {
	Dir, Place string
	Snapshots  Snapshots
}

// ScheduledBackup makes the backup described in the spec of a cloud. It runs in a pod.
func ScheduledBackup(ctx context.Context, c client.WithWatch, key client.ObjectKey, at Mounted, by Recorded) (info backup.Info, warning error, err error) {
	_, cr, err := load(ctx, c, key)
	if err != nil {
		return backup.Info{}, nil, err
	}
	b := Backup{Key: key, Recorded: by, Snapshots: at.Snapshots}
	b.Now = func(cr *v1alpha1.OnecloudCluster, b *Backup) { b.asScheduled(c, cr, at) }
	b.Now(cr, &b) // the operation names the current place
	return b.Make(ctx, c)
}

// asScheduled configures the backup from the spec.
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

// recordTimeout bounds recording a backup, even one that was interrupted.
const recordTimeout = 15 * time.Second

// record stores the outcome of an attempt in the cluster, where the operator sees it.
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
