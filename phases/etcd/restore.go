// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// Restore is the state shared by the steps of a restore.
type Restore struct {
	Host   *host.Host
	Member kubernetes.EtcdMember
	// File is the snapshot; "" restores from the member's own data. That loses only what the others accepted after its newest entry.
	File string
	// From is the file that the user named, if File is only a copy of its content.
	From string
	// Info describes the verified snapshot.
	Info snapshot.Info
	// Silent lists the addresses of other control-plane nodes; none answers. One that is merely unreachable from here continues with the former etcd.
	Silent []string
	// ForgetRotation discards the record of a CA rotation.
	ForgetRotation bool

	// began is the time of planning, at which the age of data is measured.
	began time.Time
	// fresh is the preview's verdict on the member's own data.
	fresh bool

	earlier
}

// RestoreStep is a step of a restore.
type RestoreStep = workflow.Phase[*Restore]

const (
	restoreName = "restore"
	// The directories inside etcd's own, so that data is moved, not copied. Package owned knows their names.
	restoredDir = "ocadm-restored"
	beforeDir   = "ocadm-before-"
	beforeTime  = "20060102T150405Z"
	// etcdPatience is how long etcd may take to answer.
	etcdPatience = 3 * time.Minute
	// restPatience exceeds the four minutes that each of the other three static pods may take.
	restPatience = 15 * time.Minute
)

// Named returns the snapshot as the user named it.
func (r *Restore) Named() string { return cmp.Or(r.From, r.File) }

func (r *Restore) source() string {
	if r.File == "" {
		return "data"
	}
	return r.Info.Digest
}

func (r *Restore) record() (record, error) { return r.load(r.Host, restoreName, r.source()) }

// PlanRestore verifies the data to restore. It refuses while other control-plane nodes run, because they would continue as another cluster, and while
// it is unknown whether there are any, unless alone says that there are none.
func PlanRestore(ctx context.Context, h *host.Host, file string, own, alone bool) (*Restore, error) {
	m, err := kubernetes.OwnEtcd(h)
	if err != nil {
		return nil, err
	}
	r := &Restore{Host: h, Member: m, File: file, began: time.Now()}
	switch {
	case own:
		r.Info.Size = size(h.Files.Path(snapshot.Database(m.DataDir)))
	case file == "":
		good, damaged, err := snapshot.LastGood(h.Files.Path(Dir))
		if err != nil {
			return nil, err
		}
		if good == nil {
			return nil, finding.New("OCA-4149", "There is no snapshot of etcd to restore", "no complete snapshot is in "+Dir,
				"copy one from another control-plane node, which has its own in "+Dir+", then: ocadm etcd restore FILE; or use one that was stored with the backups: "+
					"ocadm etcd restore NAME.ocadm-etcd --identity key.txt").With(damaged...)
		}
		r.File, r.Info = good.File, *good
	default:
		if r.Info, err = snapshot.Verify(file); err != nil {
			return nil, finding.Errorf("OCA-4150", "The snapshot cannot be restored", "ocadm etcd restore, which uses the last good snapshot in "+Dir, "%w", err)
		}
	}
	if err := r.look(h, restoreName, r.source()); err != nil {
		return nil, err
	}
	rec, err := r.record()
	if err != nil {
		return nil, err
	}
	if err := r.hasData(); own && rec.Before == "" && err != nil {
		if _, others := noneRuns(ctx, h, m, true); others != nil { // they may have the data that is missing here
			return nil, others
		}
		return nil, finding.Errorf("OCA-4150", "The data of this member cannot be restored",
			"if an etcd rejoin was started on this machine, move the directory member of the newest "+m.DataDir+"/"+beforeDir+"* to "+m.DataDir+
				", then run the same command again; otherwise: ocadm etcd restore", "%w", err)
	}
	if r.Silent, err = noneRuns(ctx, h, m, alone); err != nil {
		return nil, err
	}
	return r, nil
}

// noneRuns returns the other control-plane nodes if none of them answers. It returns a finding if one does and, without alone, if the list is incomplete.
func noneRuns(ctx context.Context, h *host.Host, m kubernetes.EtcdMember, alone bool) (silent []string, err error) {
	others, sure := known(ctx, h, m)
	u, err := url.Parse(m.ClientURL)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the member of etcd: %w", err)
	}
	if busy := running(ctx, others, cmp.Or(h.Config.Node.BindPort, config.DefaultPort)); len(busy) > 0 {
		return nil, finding.New("OCA-4151", "Other control-plane nodes still run", strings.Join(busy, ", ")+" would continue with the current etcd in addition to the restored one",
			"if etcd works there, on this machine instead: ocadm etcd rejoin; to discard their data, on each of them: ocadm etcd rejoin --after-restore "+u.Hostname()+
				", which waits for this one").With(busy...)
	}
	if !sure && !alone {
		return nil, finding.New("OCA-4156", "It cannot be determined whether other control-plane nodes run",
			"the database of etcd on this machine cannot be read, and the endpoint of the cluster is not this machine; another one would continue in addition to the restored etcd",
			"make sure that no other control-plane node runs, then run the same command with "+Alone)
	}
	return others, nil
}

func size(file string) int64 {
	st, err := os.Stat(file)
	if err != nil {
		return 0
	}
	return st.Size()
}

// Loses describes what the restore loses.
func (r *Restore) Loses(now time.Time) string {
	if r.File == "" {
		return "only what the other members accepted after this member's newest entry"
	}
	revision, err := snapshot.LastRevision(r.Host.Files.Path(snapshot.Database(r.Member.DataDir)))
	if err != nil {
		revision = 0
	}
	return Lost(r.Info, revision, now)
}

// RestoreSteps create a new etcd with one member from the snapshot.
func RestoreSteps() []RestoreStep {
	return []RestoreStep{
		{
			Name: "stop", Short: "Stop the control plane on this machine", Timeout: 5 * time.Minute,
			Check: did[*Restore](func(r record) bool { return r.Swapped }),
			Plan:  workflow.Says[*Restore]("stop " + strings.Join(kubernetes.StaticPods(), ", ")),
			Run: func(ctx context.Context, r *Restore, rep workflow.Reporter) error {
				return r.stop(ctx, r.Host, restoreName, rep)
			},
			Undo: func(ctx context.Context, r *Restore, rep workflow.Reporter) error {
				if err := r.hasData(); err != nil {
					return err
				}
				return startAgain(ctx, r.Host, rep)
			},
		},
		{
			Name: "prepare", Short: "Create the data of a new etcd from the snapshot", Timeout: 15 * time.Minute,
			Check: func(_ context.Context, r *Restore) (bool, error) {
				rec, err := r.record()
				return rec.Prepared && (rec.Before != "" || exists(r.path(restoredDir+"/member"))), err // it may have been deleted to free space
			},
			Plan: workflow.Line(func(r *Restore) string { return "create the data of a new etcd in " + r.path(restoredDir) }),
			Run:  prepare,
		},
		{
			Name: "swap", Short: "Replace the current data with the new data", Timeout: time.Minute,
			Check: did[*Restore](func(r record) bool { return r.Swapped }),
			Plan:  workflow.Line(func(r *Restore) string { return "keep the current data in " + r.path(beforeDir+"TIME") }),
			Run:   swap, Undo: unswap,
		},
		{
			Name: "etcd", Short: "Start etcd with the restored data", Timeout: etcdPatience + time.Minute,
			Plan: workflow.Says[*Restore]("start etcd"),
			Run: func(ctx context.Context, r *Restore, rep workflow.Reporter) error {
				if err := r.hasData(); err != nil {
					return err
				}
				return startEtcd(ctx, r.Host, rep)
			},
			Undo: func(ctx context.Context, r *Restore, rep workflow.Reporter) error {
				return kubernetes.StopStaticPods(ctx, r.Host, rep, kubernetes.StaticPods()...)
			},
		},
		holdStep(),
		{
			Name: "control-plane", Short: "Start the rest of the control plane", Timeout: restPatience,
			Plan: workflow.Says[*Restore]("start "+strings.Join(kubernetes.StaticPods()[1:], ", "), "restart the kubelet"),
			Run:  func(ctx context.Context, r *Restore, rep workflow.Reporter) error { return startRest(ctx, r.Host, rep) },
		},
		{
			Name: "finish", Short: "Record the end of the restore", Timeout: time.Minute,
			Plan: workflow.Says[*Restore](),
			Run:  func(_ context.Context, r *Restore, _ workflow.Reporter) error { return forget(r.Host, restoreName) },
		},
	}
}

// hasData returns an error if etcd would start without data, so that the kubelets would end every pod. An interrupted rejoin leaves no data.
func (r *Restore) hasData() error {
	if exists(r.path("member")) {
		return nil
	}
	return fmt.Errorf("starting etcd: there is no data in %s; the former data is in %s* there", r.Member.DataDir, beforeDir)
}

// path returns a path in the data directory of the member.
func (r *Restore) path(name string) string {
	return r.Host.Files.Path(filepath.Join(r.Member.DataDir, name))
}

func prepare(_ context.Context, r *Restore, rep workflow.Reporter) error {
	rec, err := r.record()
	if err != nil {
		return err
	}
	to := r.path(restoredDir)
	if err := os.RemoveAll(to); err != nil { // left by an interrupted attempt
		return fmt.Errorf("removing an unfinished restore: %w", err)
	}
	if err := os.MkdirAll(r.path(""), 0o700); err != nil { // it may have been deleted with the data
		return fmt.Errorf("creating the directory of etcd's data: %w", err)
	}
	lacking, err := snapshot.Lacking(r.path(""), r.Info.Size)
	if err != nil {
		return err
	}
	if lacking != "" {
		return finding.New("OCA-4148", "There is no space for the restored data of etcd", lacking, "free space there; then run the same command again")
	}
	file, raw := r.File, false
	if file == "" {
		file, raw = r.Host.Files.Path(snapshot.Database(r.Member.DataDir)), true
		if rec.Fresh, err = r.settle(file, rep); err != nil {
			return err
		}
	}
	if err := snapshot.Restore(file, raw, snapshot.Target{Name: r.Member.Name, PeerURL: r.Member.PeerURL, Dir: to}); err != nil {
		return unrestorable(err)
	}
	rec.Prepared, rec.Held = true, false
	rep.Changed("created the data of a new etcd with the only member %s", r.Member.Name)
	return rec.save(r.Host, restoreName)
}

func unrestorable(err error) error {
	return finding.Errorf("OCA-4150", "The snapshot cannot be restored", "ocadm etcd restore with another file; the snapshots of this machine are in "+Dir, "%w", err)
}

func swap(_ context.Context, r *Restore, rep workflow.Reporter) error {
	rec, err := r.record()
	if err != nil {
		return err
	}
	if rec.Before == "" {
		rec.Before = beforeDir + time.Now().UTC().Format(beforeTime)
		if err := rec.save(r.Host, restoreName); err != nil {
			return err
		}
	}
	if exists(r.path(restoredDir + "/member")) { // otherwise both moves are done
		if err := moveMember(r.path("member"), r.path(rec.Before)); err != nil {
			return err
		}
		if err := os.Rename(r.path(restoredDir+"/member"), r.path("member")); err != nil {
			return fmt.Errorf("moving the restored data into place: %w", err)
		}
	}
	if err := os.RemoveAll(r.path(restoredDir)); err != nil {
		return fmt.Errorf("removing the files of a restore: %w", err)
	}
	if err := lasting(r.path(rec.Before), r.path(".")); err != nil {
		return err
	}
	rec.Swapped = true
	rep.Changed("kept the former data of etcd in %s", filepath.Join(r.Member.DataDir, rec.Before))
	return rec.save(r.Host, restoreName)
}

// unswap restores the former data while etcd is stopped. It makes the moves of swap in reverse order, so that a restore can continue from any point.
func unswap(_ context.Context, r *Restore, rep workflow.Reporter) error {
	rec, err := r.record()
	if err != nil || rec.Before == "" {
		return err
	}
	if before := filepath.Join(r.path(rec.Before), "member"); exists(before) {
		rec.Swapped = false
		if err := rec.save(r.Host, restoreName); err != nil {
			return err
		}
		if err := moveMember(r.path("member"), r.path(restoredDir)); err != nil {
			return err
		}
		if err := os.Rename(before, r.path("member")); err != nil {
			return fmt.Errorf("restoring the former data: %w", err)
		}
		if err := lasting(r.path(rec.Before), r.path(".")); err != nil {
			return err
		}
		rep.Changed("restored the former data of etcd")
	}
	if err := forget(r.Host, restoreName); err != nil { // from here on, the next restore starts from the beginning
		return err
	}
	if err := disk.Remove(r.path(rec.Before)); err != nil {
		return fmt.Errorf("removing %s: %w", rec.Before, err)
	}
	if err := os.RemoveAll(r.path(restoredDir)); err != nil {
		return fmt.Errorf("removing the files of a restore: %w", err)
	}
	return nil
}
