// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"time"

	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// startAgain starts a control plane that may be partly stopped, after stopping the rest: a kubelet that starts beside an API server without etcd,
// which accepts requests but answers none, starts no static pod for two minutes (measured with 1.36.3).
func startAgain(ctx context.Context, h *host.Host, rep workflow.Reporter) error {
	ended := kubernetes.StopStaticPods(ctx, h, rep, kubernetes.StaticPods()...)
	if err := kubernetes.StartStaticPods(h, rep, kubernetes.StoppedPods(h)...); err != nil {
		return errors.Join(ended, err)
	}
	return errors.Join(ended, forgetEnded(ctx, h, rep))
}

// startEtcd starts this machine's member and waits until it answers.
func startEtcd(ctx context.Context, h *host.Host, rep workflow.Reporter) error {
	if err := kubernetes.StartStaticPods(h, rep, kubernetes.StaticPods()[0]); err != nil {
		return err
	}
	if err := forgetEnded(ctx, h, rep); err != nil {
		return err
	}
	return awaitEtcd(ctx, h, rep)
}

// forgetEnded restarts the kubelet: it starts no static pod while it still cleans up the former one of that name, and some of those never end.
func forgetEnded(ctx context.Context, h *host.Host, rep workflow.Reporter) error {
	return h.Start(ctx, rep, "kubelet", true)
}

func awaitEtcd(ctx context.Context, h *host.Host, rep workflow.Reporter) error {
	m, err := kubernetes.OwnEtcd(h)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, etcdPatience)
	defer cancel()
	err = wait.Until(ctx, "etcd", 500*time.Millisecond, func(ctx context.Context) (bool, string, error) {
		c, err := kubernetes.OpenOwnEtcd(ctx, h, false)
		if err != nil {
			return false, "", err
		}
		defer c.Close()
		all, err := c.Observe(ctx)
		for _, o := range all {
			if o.Peer == m.PeerURL && o.Answers {
				return true, "", nil
			}
		}
		return false, "it has no leader yet", err
	}, func(why string) { rep.Waiting("etcd", why) })
	if err != nil && !errors.Is(context.Cause(ctx), context.Canceled) {
		return Diagnose(h, m, err)
	}
	return err
}

// startRest starts the static pods that need etcd, and restarts the kubelet, which drops its state of pods.
func startRest(ctx context.Context, h *host.Host, rep workflow.Reporter) error {
	rest := kubernetes.StaticPods()[1:]
	if err := kubernetes.StartStaticPods(h, rep, rest...); err != nil {
		return err
	}
	for _, name := range rest {
		if err := kubernetes.AwaitStaticPod(ctx, h, rep, name, nil); err != nil {
			return err
		}
	}
	return h.Start(ctx, rep, "kubelet", true)
}
