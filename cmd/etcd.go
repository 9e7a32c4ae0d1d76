// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/etcd/snapshot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/ui"
	etcdphase "yunion.io/x/ocadm/phases/etcd"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// newEtcd groups the commands about the etcd of the control plane.
func newEtcd(a *app) *cobra.Command {
	return group(&cobra.Command{
		Use: "etcd", Short: "Check, save and restore etcd",
		Long: "Commands for the etcd of Kubernetes' control plane. They run on a control-plane node, as root, and need no API server. docs/day2.md\n" +
			"describes when to use which.",
		Example: "  ocadm etcd status\n  ocadm etcd snapshot\n  ocadm etcd restore --dry-run",
	}, newEtcdStatus(a), newEtcdSnapshot(a), newEtcdRestore(a), newEtcdRejoin(a), newEtcdDefrag(a), newEtcdKeep(a))
}

func newEtcdStatus(a *app) *cobra.Command {
	return shows(a, &cobra.Command{
		Use: "status", Short: "Show the members of etcd, their databases, and the snapshots",
		Long: "Shows each member: whether it is the leader or a learner, the size of its database, how much of it is in use, its quota, its revision\n" +
			"and its alarms. If the member of this machine does not answer, the command shows why; if its data is damaged, it also shows the last\n" +
			"good snapshot and what restoring it would lose.",
		Example: "  ocadm etcd status\n  ocadm etcd status -o json | jq .problems",
	}, "table", func(c *cobra.Command, _ []string) (etcdphase.Status, error) {
		h, err := controlPlaneHost(c.Context(), true)
		if err != nil {
			return etcdphase.Status{}, err
		}
		s, err := etcdphase.Look(c.Context(), h)
		if len(s.Members) > 0 {
			err = butError{err}
		}
		return s, err
	}, printEtcd)
}

func printEtcd(p *page, s etcdphase.Status) {
	table(p, []string{"MEMBER", "ROLE", "VERSION", "SIZE", "IN USE", "QUOTA", "REVISION", "ALARMS"}, s.Members, func(m etcd.Observed) []string {
		role := "follower"
		switch {
		case !m.Answers:
			role = "silent"
		case m.Leader:
			role = "leader"
		case m.Learner:
			role = "learner"
		}
		return []string{m.Node(), role, m.Version, ui.Bytes(m.Size), ui.Bytes(m.InUse), ui.Bytes(m.Quota), fmt.Sprint(m.Revision), strings.Join(m.Alarms, ", ")}
	})
	last := "no snapshot on this machine"
	if s.Snapshots.Last != nil {
		n, is := lists.Counted(s.Snapshots.Count, "snapshot"), s.Snapshots.Last
		last = fmt.Sprintf("%s on this machine, the last of %s, revision %d", n, is.Time.Format(time.RFC3339), is.Revision)
	}
	p.line("\n%d more member(s) may be lost; %s", s.Tolerates, last)
	p.list("\nProblems:", s.Problems)
}

func newEtcdSnapshot(a *app) *cobra.Command {
	return shows(a, &cobra.Command{
		Use: "snapshot [DIRECTORY]", Short: "Save a snapshot of etcd and verify it",
		Long: "Saves a snapshot of this machine's member to " + etcdphase.Dir + ", or to DIRECTORY, reads all of it to verify it, and only then gives it\n" +
			"its name. It contains every Secret of the cluster: protect it like a password. Each control-plane node also saves a snapshot every hour,\n" +
			"and keeps the last twelve and one for each of seven days. Nothing is deleted from another DIRECTORY.",
		Example: "  ocadm etcd snapshot\n\n  # before a risky change, on another disk\n  ocadm etcd snapshot /mnt/backup -o json",
		Args:    cobra.MaximumNArgs(1),
	}, "text", func(c *cobra.Command, args []string) (info snapshot.Info, err error) {
		h, err := controlPlaneHost(c.Context(), false)
		if err != nil {
			return info, err
		}
		m, err := kubernetes.OwnEtcd(h)
		if err != nil {
			return info, err
		}
		dir, keep := etcdphase.Dir, etcdphase.DefaultKeep
		if len(args) == 1 {
			dir, keep = args[0], snapshot.Keep{Last: 1 << 30}
		}
		return etcdphase.Take(c.Context(), h.Files, m.ClientURL, dir, keep)
	}, func(p *page, info snapshot.Info) {
		p.line("%s: %s, revision %d, %d keys, verified", info.File, ui.Bytes(info.Size), info.Revision, info.Keys)
	})
}

// newEtcdKeep returns the command of the static pod.
func newEtcdKeep(a *app) *cobra.Command {
	endpoint, every := "https://127.0.0.1:2379", time.Hour
	c := &cobra.Command{
		Use: "keep", Short: "Save snapshots of etcd at a fixed interval", Hidden: true,
		Long:    "Saves a snapshot at once if the last one is older than an interval, and one after each interval, until it is stopped.",
		Example: "  # as the static pod does\n  ocadm etcd keep\n\n  ocadm etcd keep --every 10m",
		RunE: func(c *cobra.Command, _ []string) error {
			log := slog.New(slog.NewTextHandler(a.Err, nil))
			return etcdphase.KeepSnapshots(c.Context(), host.Files{}, endpoint, etcdphase.Dir, every, log)
		},
	}
	c.Flags().StringVar(&endpoint, "endpoint", endpoint, "address at which etcd listens")
	c.Flags().DurationVar(&every, "every", every, "the interval")
	return c
}

func newEtcdDefrag(a *app) *cobra.Command {
	return shows(a, &cobra.Command{
		Use: "defrag", Short: "Release the space of deleted keys in etcd",
		Long: "Defragments the databases that would shrink by at least a third, one member after the other, the leader last. Meanwhile the member\n" +
			"serves no requests, for some seconds per GiB. If a member is not healthy, the command stops and fails with OCA-4147. If etcd accepts no\n" +
			"writes because its quota is reached (alarm NOSPACE), it first drops all old revisions, and then disarms the alarm.",
		Example: "  ocadm etcd defrag\n  ocadm etcd defrag -o json",
	}, "text", func(c *cobra.Command, _ []string) (out defragmented, err error) {
		h, err := controlPlaneHost(c.Context(), false)
		if err == nil {
			out, err = defragment(c.Context(), h)
		}
		return out, err
	}, func(p *page, out defragmented) {
		if len(out.Lifted) > 0 {
			p.line("disarmed the alarm NOSPACE of %s", strings.Join(out.Lifted, ", "))
		}
		p.line("freed %s", ui.Bytes(out.Freed))
	})
}

// defragmented is the output of "etcd defrag -o json".
type defragmented struct {
	Freed int64 `json:"freedBytes"`
	// Lifted lists the members whose alarm was disarmed.
	Lifted []string `json:"lifted,omitempty"`
	// Stopped explains why members were left out.
	Stopped string `json:"stopped,omitempty"`
}

// left returns a finding if members were left out.
func (d defragmented) left() error {
	if d.Stopped == "" {
		return nil
	}
	return finding.New("OCA-4147", "Not all members of etcd were defragmented", d.Stopped+"; while one serves no requests, all others must",
		"ocadm etcd status; when it no longer shows this problem, run the same command again")
}

func defragment(ctx context.Context, h *host.Host) (out defragmented, err error) {
	c, err := kubernetes.OpenOwnEtcd(ctx, h, true)
	if err != nil {
		return out, kubernetes.EtcdUnwell(err)
	}
	defer c.Close()
	var lifted etcd.Lifted
	if lifted, err = c.LiftNoSpace(ctx); err != nil {
		return out, kubernetes.EtcdUnwell(err)
	}
	out.Lifted, out.Freed = lifted.Members, max(0, lifted.Before-lifted.After)
	freed, stopped, err := c.Defragment(ctx)
	if err != nil {
		return out, kubernetes.EtcdUnwell(err)
	}
	out.Freed += freed
	out.Stopped = stopped
	return out, butError{out.left()}
}
