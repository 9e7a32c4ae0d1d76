// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/vip"
)

// Rejoin is the state shared by the steps that make this machine's member a new one of its cluster.
type Rejoin struct {
	Host   *host.Host
	Member kubernetes.EtcdMember
	// After is the address of the control-plane node whose restore to wait for; "" joins the cluster as it is.
	After string
	// others are the members to reach the cluster through.
	others []etcd.Member

	earlier
}

func (r *Rejoin) record() (record, error) { return r.load(r.Host, rejoinName, r.source()) }

// RejoinStep is a step of a rejoin.
type RejoinStep = workflow.Phase[*Rejoin]

const (
	rejoinName = "rejoin"
	// restorePatience is how long a restore on another machine may take to start and finish.
	restorePatience = time.Hour
)

// ofTwo is the advice for a cluster whose only other member is healthy but has no majority.
const ofTwo = "if the only other control-plane node is healthy: on this machine ocadm etcd rejoin --after-restore with its address, which waits; " +
	"then on that node ocadm etcd restore --from-data"

// PlanRejoin refuses a member that works, and one without which the cluster has no majority.
func PlanRejoin(ctx context.Context, h *host.Host, after string) (*Rejoin, error) {
	m, err := kubernetes.OwnEtcd(h)
	if err != nil {
		return nil, err
	}
	r := &Rejoin{Host: h, Member: m, After: after}
	if err := r.look(h, rejoinName, r.source()); err != nil {
		return nil, err
	}
	if after != "" {
		if err := r.restorable(ctx); err != nil {
			return nil, err
		}
		r.others = []etcd.Member{{ClientURL: "https://" + net.JoinHostPort(after, "2379")}}
		return r, nil
	}
	all, err := cluster(ctx, r.Host)
	if err != nil {
		return nil, finding.Errorf("OCA-4152", "No other member of etcd answers", "if this is the only one: ocadm etcd restore; "+ofTwo, "%w", err)
	}
	r.others = lists.Pick(all, func(o etcd.Observed) (etcd.Member, bool) {
		return etcd.Member{Name: o.Name, ClientURL: o.Client, PeerURL: o.Peer}, o.Peer != m.PeerURL && o.Answers
	})
	if slices.ContainsFunc(all, func(o etcd.Observed) bool { return o.Peer == m.PeerURL && !o.Learner && !o.Answers }) {
		if err := r.replaceable(all); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// restorable returns a finding if no other control-plane node has the address to wait for: no restore could end that wait. It accepts any name, and
// any address if the data here is already given up or the list of the others is incomplete.
func (r *Rejoin) restorable(ctx context.Context) error {
	rec, err := r.record()
	if err != nil || rec.Swapped {
		return err
	}
	at, err := netip.ParseAddr(r.After)
	if err != nil {
		return nil //nolint:nilerr // a name
	}
	others, sure := known(ctx, r.Host, r.Member)
	if !sure || slices.ContainsFunc(others, func(a string) bool { o, err := netip.ParseAddr(a); return err != nil || o == at }) {
		return nil
	}
	cause, remedy := "this is the only control-plane node", "on this machine: ocadm etcd restore"
	if len(others) > 0 {
		cause = "the others have " + strings.Join(others, ", ")
		remedy = "ocadm etcd rejoin --after-restore " + others[0] + "   # or another of them: the one on which you run ocadm etcd restore"
	}
	return finding.New("OCA-4159", "No other control-plane node has the address "+r.After, cause, remedy)
}

// Works reports whether the member votes and answers, so that there is nothing to replace.
func (r *Rejoin) Works(ctx context.Context) bool {
	if r.After != "" || len(kubernetes.StoppedPods(r.Host)) > 0 {
		return false
	}
	all, err := cluster(ctx, r.Host)
	return err == nil && slices.ContainsFunc(all, func(o etcd.Observed) bool { return o.Peer == r.Member.PeerURL && o.Answers && !o.Learner })
}

func (r *Rejoin) source() string { return "after " + r.After }

func (r *Rejoin) open(ctx context.Context) (*etcd.Client, error) {
	t, err := kubernetes.EtcdTLS(r.Host.Files)
	if err != nil {
		return nil, err
	}
	return etcd.Open(ctx, etcd.Config{Members: r.others, TLS: t})
}

// cleared reports whether the former member's data was moved aside and not put back: a person may have done that to restore it.
func cleared(_ context.Context, r *Rejoin) (bool, error) {
	rec, err := r.record()
	return rec.Swapped && (rec.Added || !exists(r.path("member"))), err
}

// path returns a path in the data directory of the member.
func (r *Rejoin) path(name string) string {
	return r.Host.Files.Path(filepath.Join(r.Member.DataDir, name))
}

// RejoinSteps stop the control plane, move the member's data aside, and start again as a learner.
func RejoinSteps() []RejoinStep {
	return []RejoinStep{
		{
			Name: "stop", Short: "Stop the control plane on this machine", Timeout: 5 * time.Minute, Plan: workflow.Says[*Rejoin]("stop " + strings.Join(kubernetes.StaticPods(), ", ")),
			Check: did[*Rejoin](func(r record) bool { return r.Added }),
			Run: func(ctx context.Context, r *Rejoin, rep workflow.Reporter) error {
				return r.stop(ctx, r.Host, rejoinName, rep)
			},
		},
		{
			Name: "cluster", Short: "Wait for the cluster to join", Timeout: restorePatience,
			Plan:  workflow.Says[*Rejoin]("wait for an etcd that has a majority without this member"),
			Check: cleared, Run: awaitCluster,
		},
		{
			Name: "clear", Short: "Move the data of the former member aside", Timeout: time.Minute, Plan: workflow.Says[*Rejoin]("keep the current data in " + beforeDir + "TIME"),
			Check: cleared, Run: clearData,
		},
		{
			Name: "member", Short: "Add this machine to etcd as a learner", Timeout: 5 * time.Minute, Plan: workflow.Says[*Rejoin]("remove the former member of etcd", "add a learner"),
			Check: did[*Rejoin](func(r record) bool { return r.Added }), Run: addMember,
		},
		{
			Name: "etcd", Short: "Start etcd as a new member", Timeout: etcdPatience + time.Minute, Plan: workflow.Says[*Rejoin]("start etcd"), Run: startMember,
		},
		{
			Name: "promote", Short: "Let the member vote after it has caught up", Timeout: 5 * time.Minute, Plan: workflow.Says[*Rejoin]("promote the learner"), Run: promote,
		},
		{
			Name: "control-plane", Short: "Start the rest of the control plane", Timeout: restPatience,
			Plan: workflow.Says[*Rejoin]("start "+strings.Join(kubernetes.StaticPods()[1:], ", "), "restart the kubelet"),
			Run:  func(ctx context.Context, r *Rejoin, rep workflow.Reporter) error { return startRest(ctx, r.Host, rep) },
		},
		{
			Name: "node", Short: "Make the node one of the control plane", Timeout: 5 * time.Minute,
			Plan: workflow.Says[*Rejoin]("label the node as a control-plane node", "if the cluster has a virtual address: allow this node to hold it"), Run: asControlPlane,
		},
		{
			Name: "finish", Short: "Record the end of the rejoin", Timeout: time.Minute, Plan: workflow.Says[*Rejoin](),
			Run: func(_ context.Context, r *Rejoin, _ workflow.Reporter) error { return forget(r.Host, rejoinName) },
		},
	}
}

// awaitCluster waits for the restored etcd, which does not know this member. An etcd that lists it is the former one. Without a restore, the others
// must have a majority before the data here is given up: they may have lost it since the command started.
func awaitCluster(ctx context.Context, r *Rejoin, rep workflow.Reporter) error {
	if r.After == "" {
		c, all, err := kubernetes.ObserveEtcd(ctx, r.open)
		if err != nil {
			return err
		}
		c.Close()
		return r.replaceable(all)
	}
	err := wait.Until(ctx, "the restored etcd", 2*time.Second, func(ctx context.Context) (bool, string, error) {
		c, err := r.open(ctx)
		if err != nil {
			return false, "run ocadm etcd restore at " + r.After, nil // it does not run yet
		}
		defer c.Close()
		list, err := c.List(ctx)
		if err != nil {
			return false, "run ocadm etcd restore at " + r.After, nil // the former etcd has lost its majority
		}
		if slices.ContainsFunc(list, func(m etcd.Listed) bool { return m.At(r.Member.PeerURL) && m.Started() }) {
			return false, "the etcd at " + r.After + " is not restored yet", nil
		}
		return true, "", nil
	}, func(why string) { rep.Waiting("the restored etcd", why) })
	return finding.Failed(ctx, err, "OCA-4153", "The restore on another control-plane node was not completed",
		"run ocadm etcd restore at "+r.After+", then run the same command on this machine again")
}

func clearData(_ context.Context, r *Rejoin, rep workflow.Reporter) error {
	rec, err := r.record()
	if err != nil {
		return err
	}
	if rec.Before == "" || exists(r.path("member")) && exists(r.path(rec.Before+"/member")) { // the data was copied back and may have changed since
		rec.Before = beforeDir + time.Now().UTC().Format(beforeTime)
		if err := rec.save(r.Host, rejoinName); err != nil {
			return err
		}
	}
	if err := moveMember(r.path("member"), r.path(rec.Before)); err != nil {
		return err
	}
	if err := lasting(r.path(rec.Before), r.path(".")); err != nil {
		return err
	}
	rec.Swapped = true
	rep.Changed("kept the former data of etcd in %s", filepath.Join(r.Member.DataDir, rec.Before))
	return rec.save(r.Host, rejoinName)
}

// replaceable returns a finding if the others have no majority without this machine's stopped member.
func (r *Rejoin) replaceable(all []etcd.Observed) error {
	at := slices.IndexFunc(all, func(o etcd.Observed) bool { return o.Peer == r.Member.PeerURL })
	if at < 0 {
		return nil
	}
	if why := etcd.MustStay(all, all[at].ID); why != "" {
		return finding.New("OCA-4141", "The member "+r.Member.Name+" of etcd cannot be replaced", why,
			"repair the other control-plane nodes first (ocadm ha status names them), then run the same command again; "+ofTwo)
	}
	return nil
}

func addMember(ctx context.Context, r *Rejoin, rep workflow.Reporter) error {
	c, all, err := kubernetes.ObserveEtcd(ctx, r.open)
	if err != nil {
		return err
	}
	defer c.Close()
	at := slices.IndexFunc(all, func(o etcd.Observed) bool { return o.Peer == r.Member.PeerURL })
	if at >= 0 && all[at].Listed().Started() {
		if err := r.replaceable(all); err != nil {
			return err
		}
		if err := c.Remove(ctx, all[at].Listed()); err != nil {
			return err
		}
		rep.Changed("removed the former member %s of etcd", r.Member.Name)
		at = -1
	}
	if at < 0 {
		if err := addLearner(ctx, c, etcd.Member{Name: r.Member.Name, PeerURL: r.Member.PeerURL}, rep); err != nil {
			return err
		}
	}
	rec, err := r.record()
	if err != nil {
		return err
	}
	rec.Added = true
	rep.Changed("added member %s to etcd as a learner", r.Member.Name)
	return rec.save(r.Host, rejoinName)
}

func startMember(ctx context.Context, r *Rejoin, rep workflow.Reporter) error {
	c, all, err := kubernetes.ObserveEtcd(ctx, r.open)
	if err != nil {
		return err
	}
	defer c.Close()
	if slices.Contains(kubernetes.StoppedPods(r.Host), kubernetes.StaticPods()[0]) {
		if err := kubernetes.StartEtcdAs(r.Host, r.Member, all); err != nil {
			return err
		}
		rep.Changed("started etcd")
		if err := forgetEnded(ctx, r.Host, rep); err != nil {
			return err
		}
	}
	return wait.Until(ctx, "etcd", 500*time.Millisecond, func(ctx context.Context) (bool, string, error) {
		list, err := c.List(ctx)
		return slices.ContainsFunc(list, func(m etcd.Listed) bool { return m.At(r.Member.PeerURL) && m.Started() }), "it has not started yet", err
	}, func(why string) { rep.Waiting("etcd", why) })
}

func promote(ctx context.Context, r *Rejoin, rep workflow.Reporter) error {
	c, err := r.open(ctx)
	if err != nil {
		return kubernetes.EtcdUnwell(err)
	}
	defer c.Close()
	list, err := c.List(ctx)
	if err != nil {
		return kubernetes.EtcdUnwell(err)
	}
	at := slices.IndexFunc(list, func(m etcd.Listed) bool { return m.At(r.Member.PeerURL) })
	if at < 0 {
		return fmt.Errorf("promoting member %s of etcd: it is not listed", r.Member.Name)
	}
	if list[at].Learner {
		if err := c.Promote(ctx, list[at]); err != nil {
			return err
		}
		rep.Changed("promoted member %s of etcd to a voting member", r.Member.Name)
	}
	return awaitEtcd(ctx, r.Host, rep)
}

// addLearner adds the member when no other machine is joining. If two have waited for the same restore, the second one waits again.
func addLearner(ctx context.Context, c *etcd.Client, own etcd.Member, rep workflow.Reporter) error {
	for {
		if err := kubernetes.AwaitLearners(ctx, etcd.Member{PeerURL: own.PeerURL}, c, rep); err != nil {
			return err
		}
		if err := c.AddLearner(ctx, own.Name, own.PeerURL); !errors.Is(err, etcd.ErrOtherLearner) {
			return err
		}
	}
}

// asControlPlane makes the Node a control-plane node, and lets the machine hold the virtual address: a snapshot from before its join has neither. A
// machine that the others do not know, and that hears none of them, would claim an address that is in use.
func asControlPlane(ctx context.Context, r *Rejoin, rep workflow.Reporter) error {
	k, err := kubernetes.AdminClient(r.Host)
	if err != nil {
		return err
	}
	return r.known(ctx, k, rep)
}

func (r *Rejoin) known(ctx context.Context, k client.Client, rep workflow.Reporter) error {
	return wait.Until(ctx, "the Node", time.Second, func(ctx context.Context) (bool, string, error) {
		if err := vip.AddPeer(ctx, k, r.Host.Config.Node.AdvertiseAddress); err != nil {
			return false, "", err
		}
		err := kubernetes.LabelControlPlane(ctx, k, r.Member.Name)
		if apierrors.IsNotFound(err) { // the kubelet was restarted and registers it
			return false, "the kubelet has not registered Node " + r.Member.Name + " yet", nil
		}
		return err == nil, "", err
	}, func(why string) { rep.Waiting("the Node", why) })
}
