// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/depot"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// Node is a machine that applies a stage.
type Node struct {
	Host  *host.Host
	Stage Stage
	trust kubernetes.Trust
	going []byte
}

// ReadNode reads this machine's share of the record from the files of a mounted Secret. The keys are decrypted later, with the files of the machine.
func ReadNode(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the record of the rotation: %w", err)
	}
	out := map[string][]byte{}
	for _, e := range entries {
		if raw, err := os.ReadFile(filepath.Join(dir, e.Name())); err == nil { // the rest are directories of the kubelet
			out[e.Name()] = raw
		}
	}
	return out, nil
}

// NewNode returns this machine in a stage.
func NewNode(h *host.Host, data map[string][]byte, stage Stage) (*Node, error) {
	_, m, err := fromData(data)
	if err != nil {
		return nil, err
	}
	return newNode(h, m, stage)
}

func newNode(h *host.Host, m material, stage Stage) (*Node, error) {
	t, err := m.trust(h, stage)
	return &Node{Host: h, Stage: stage, trust: t, going: m.certs[oldPrefix+kubernetes.ClusterAuthority]}, err
}

// Left returns the administrators' kubeconfigs on this machine that stop working when the old CA is dropped.
func (n *Node) Left() ([]string, error) {
	if n.Stage == Trust {
		return nil, nil
	}
	return kubernetes.Left(n.Host, n.going)
}

// NodeStep is a step on one machine.
type NodeStep = workflow.Phase[*Node]

// NodeSteps apply a stage on this machine. A step is done when its files and processes match the stage.
func NodeSteps() []NodeStep {
	return []NodeStep{
		NodeStep{Name: "authorities", Short: "Write the certificate authorities", Run: func(_ context.Context, n *Node, r workflow.Reporter) error {
			return kubernetes.WriteAuthorities(n.Host, r, n.trust)
		}}.Todo(func(_ context.Context, n *Node) ([]string, error) { return kubernetes.AuthoritiesTodo(n.Host, n.trust) }),
		NodeStep{Name: "kubeconfigs", Short: "Make the kubeconfigs trust the authorities", Run: func(_ context.Context, n *Node, r workflow.Reporter) error {
			return kubernetes.WriteKubeconfigs(n.Host, r, n.trust)
		}}.Todo(func(_ context.Context, n *Node) ([]string, error) {
			return kubernetes.KubeconfigsTodo(n.Host, n.trust), nil
		}),
		NodeStep{Name: "certificates", Short: "Sign the certificates that another authority has signed", Timeout: signTimeout,
			Run: func(ctx context.Context, n *Node, r workflow.Reporter) error {
				return kubernetes.SignAgain(ctx, n.Host, r, n.trust)
			},
		}.Todo(func(_ context.Context, n *Node) ([]string, error) { return kubernetes.SignTodo(n.Host, n.trust) }),
		withEtcd(takeUp("etcd", kubernetes.EtcdFiles()), kubernetes.TakeUpEtcd),
		withEtcd(takeUp("kube-apiserver", kubernetes.EtcdFiles()), nil),
		{Name: "api-server", Short: "Wait until the API server uses the authorities", Timeout: signTimeout, Skip: onWorker,
			Plan: workflow.Says[*Node](),
			Check: func(ctx context.Context, n *Node) (bool, error) {
				return kubernetes.APIServerTakes(ctx, n.Host, n.trust) == "", nil
			},
			Run: func(ctx context.Context, n *Node, r workflow.Reporter) error {
				return kubernetes.AwaitAPIServer(ctx, n.Host, r, n.trust)
			}},
		NodeStep{Name: "signer", Short: "Let the controller manager sign with the right authority", Skip: onWorker,
			Run: func(_ context.Context, n *Node, r workflow.Reporter) error {
				return kubernetes.WriteSigner(n.Host, r, n.trust)
			},
		}.Todo(func(_ context.Context, n *Node) ([]string, error) {
			if why := kubernetes.SignerTodo(n.Host, n.trust); why != "" {
				return []string{why}, nil
			}
			return nil, nil
		}),
		takeUp("kube-controller-manager", kubernetes.ManagerFiles()),
		takeUp("kube-scheduler", kubernetes.SchedulerFiles()),
		{Name: "depot", Short: "Let the depot use the authorities", Timeout: podTimeout, Skip: withoutDepot,
			Plan:  workflow.Says[*Node](),
			Check: func(ctx context.Context, n *Node) (bool, error) { return depot.Trusts(ctx, n.Host) },
			Run:   func(ctx context.Context, n *Node, r workflow.Reporter) error { return depot.Trust(ctx, n.Host, r) }},
		{Name: "kubelet", Short: "Restart the kubelet", Timeout: podTimeout,
			Plan: workflow.Says[*Node](),
			Check: func(ctx context.Context, n *Node) (bool, error) {
				stale, err := kubernetes.KubeletStale(ctx, n.Host)
				return !stale && err == nil, err
			},
			Run: func(ctx context.Context, n *Node, r workflow.Reporter) error {
				return kubernetes.RestartKubelet(ctx, n.Host, r)
			}},
		{Name: "tidy", Short: "Remove the file that only the rotation needed", Skip: onWorker,
			Plan:  workflow.Says[*Node](),
			Check: func(_ context.Context, n *Node) (bool, error) { return !kubernetes.SignerLeft(n.Host, n.trust), nil },
			Run: func(_ context.Context, n *Node, r workflow.Reporter) error {
				return kubernetes.RemoveSigner(n.Host, r, n.trust)
			}},
	}
}

const (
	signTimeout = 5 * time.Minute
	podTimeout  = 8 * time.Minute
)

var onWorker = workflow.SkipIf("it is a worker", func(n *Node) bool { return !kubernetes.IsControlPlane(n.Host) })

var withoutDepot = workflow.SkipIf("it has no depot", func(n *Node) bool { return !depot.Has(n.Host) })

// takeUp restarts a static pod that started before its files were written.
func takeUp(pod string, files []string) NodeStep {
	return NodeStep{Name: pod, Short: "Restart " + pod + " and wait until it is healthy", Timeout: podTimeout, Skip: onWorker,
		Plan: workflow.Says[*Node](),
		Check: func(ctx context.Context, n *Node) (bool, error) {
			return kubernetes.TakenUp(ctx, n.Host, pod, files...)
		},
		Run: func(ctx context.Context, n *Node, r workflow.Reporter) error {
			return kubernetes.TakeUp(ctx, n.Host, r, pod)
		}}
}

// withEtcd adapts a step to a static pod that reads the CA of etcd. When the new CA starts to sign, both have been trusted since the previous stage.
func withEtcd(s NodeStep, run func(context.Context, *host.Host, workflow.Reporter) error) NodeStep {
	s.Skip = func(n *Node) string {
		switch {
		case n.trust.Certs[kubernetes.EtcdAuthority] == nil:
			return "the authority of etcd does not change"
		case n.Stage == Sign:
			return "it trusts both authorities"
		}
		return ""
	}
	if run != nil {
		s.Run = func(ctx context.Context, n *Node, r workflow.Reporter) error { return run(ctx, n.Host, r) }
	}
	return s
}
