// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"yunion.io/x/ocadm/internal/etcd"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

const (
	turnLease = "ocadm-upgrade"
	// A single API server is down for a minute while it is replaced, and the lease cannot be renewed then.
	turnDuration = 4 * time.Minute
	turnRenewal  = 200 * time.Second
	turnRetry    = 3 * time.Second
	// turnPatience is how long a command waits for the upgrade of another control-plane node.
	turnPatience = 30 * time.Minute
)

// take waits until no other control-plane node is being upgraded and all are healthy. Other nodes then wait until release. A killed command leaves
// the lease behind; another node takes it over once it has not been renewed for turnDuration.
func (u *Upgrade) take(ctx context.Context, r workflow.Reporter) error {
	if u.release != nil {
		return nil
	}
	cfg, err := u.Host.REST(ctx)
	if err != nil {
		return err
	}
	c, err := v1.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("creating a client for the API server: %w", err)
	}
	lock := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: turnLease}, Client: c,
		LockConfig: resourcelock.ResourceLockConfig{Identity: u.Host.Config.Node.Name}}
	holder := make(chan string, 1)
	taken, release, err := hold(ctx, lock, holder)
	if err != nil {
		return err
	}
	u.release = func() {
		release()
		u.release = nil
	}
	if err := awaitTurn(ctx, u.Host.Config.Node.Name, taken, holder, r); err != nil {
		u.release()
		return err
	}
	err = u.othersWell(ctx, r)
	if err == nil {
		err = u.notOvertaken(ctx)
	}
	if err != nil {
		u.release()
	}
	return err
}

// hold takes the lease and keeps it until release. It closes taken once it has the lease, and sends the first holder. If the API server does not answer
// for longer than turnRenewal, it takes the lease again as soon as it can: the upgrade of this node goes on meanwhile.
func hold(ctx context.Context, lock resourcelock.Interface, holder chan<- string) (taken <-chan struct{}, release func(), err error) {
	got := make(chan struct{})
	first := sync.OnceFunc(func() { close(got) })
	e, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: turnDuration, RenewDeadline: turnRenewal, RetryPeriod: turnRetry, ReleaseOnCancel: true, Name: turnLease,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { first() },
			OnStoppedLeading: func() {},
			OnNewLeader: func(name string) {
				select {
				case holder <- name:
				default:
				}
			},
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("preparing to wait for other upgrades: %w", err)
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for background.Err() == nil {
			e.Run(klog.NewContext(background, klog.Logger{})) // errors are reported by steps, not by the library's log
		}
	}()
	return got, func() {
		stop()
		<-ended
	}, nil
}

// notOvertaken returns a finding if the cluster has got a newer version while this node waited for its turn: the versions were compared before.
func (u *Upgrade) notOvertaken(ctx context.Context) error {
	cluster, err := kubernetes.ClusterVersion(ctx, u.K)
	if err != nil {
		return err
	}
	return goesBack(cluster, u.Record.To)
}

func awaitTurn(ctx context.Context, own string, taken <-chan struct{}, holder <-chan string, r workflow.Reporter) error {
	who := "another control-plane node"
	for {
		select {
		case <-taken:
			return nil
		case who = <-holder:
			if who != own {
				r.Waiting("its turn", who+" is being upgraded")
			}
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.Canceled) {
				return context.Cause(ctx)
			}
			return finding.New("OCA-4505", "The upgrade of another control-plane node was not completed", who+" has had its turn for "+turnPatience.String(),
				"check its progress on that node; if its command was interrupted, run it again there: it continues")
		}
	}
}

// othersWell waits until all other control-plane nodes are Ready and all etcd members answer: two API servers must never be down together.
func (u *Upgrade) othersWell(ctx context.Context, r workflow.Reporter) error {
	err := wait.Until(ctx, "the other control-plane nodes", turnRetry, func(ctx context.Context) (bool, string, error) {
		nodes, err := kubernetes.ControlPlanes(ctx, u.K)
		if err != nil {
			return false, "", err
		}
		var why []string
		for _, n := range nodes {
			if is := nodeOf(n, nil, ""); !is.Ready && is.Name != u.Host.Config.Node.Name {
				why = append(why, "node "+is.Name+" is not Ready")
			}
		}
		if len(nodes) > 1 {
			all, err := members(ctx, u.Host)
			if err != nil {
				return false, "", err
			}
			why = append(why, lists.Pick(all, func(m etcd.Observed) (string, bool) {
				return "member " + m.Name + " of etcd does not answer", !m.Answers
			})...)
		}
		return len(why) == 0, strings.Join(why, ", "), nil
	}, func(why string) { r.Waiting("the other control-plane nodes", why) })
	return finding.Failed(ctx, err, "OCA-4502", "Other control-plane nodes are not healthy", "ocadm ha status; then run the same command again")
}

// members returns the members of etcd. After an interrupted exchange it returns the others, without asking this machine's member.
func members(ctx context.Context, h *host.Host) ([]etcd.Observed, error) {
	if !cutOff(h) {
		return kubernetes.ObserveOwnEtcd(ctx, h)
	}
	own, err := kubernetes.OwnEtcd(h)
	if err != nil {
		return nil, err
	}
	k, err := h.Kube(ctx)
	if err != nil {
		return nil, err
	}
	c, all, err := kubernetes.ObserveEtcd(ctx, func(ctx context.Context) (*etcd.Client, error) { return kubernetes.OpenEtcd(ctx, h, k) })
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return without(all, own.Name), nil
}

func without(all []etcd.Observed, own string) []etcd.Observed {
	return slices.DeleteFunc(all, func(m etcd.Observed) bool { return m.Name == own })
}

// Close gives other nodes their turn.
func (u *Upgrade) Close() {
	if u.release != nil {
		u.release()
	}
}
