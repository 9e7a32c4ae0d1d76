// SPDX-License-Identifier: Apache-2.0

package upgrade

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
	"yunion.io/x/ocadm/phases/node"
)

// Upgrade is the state shared by the steps on one machine.
type Upgrade struct {
	Host *host.Host
	// K has administrator permissions on a control-plane node, and the kubelet's on a worker.
	K      client.WithWatch
	Record Record
	// Target is the source of the software.
	Target       Target
	ControlPlane bool
	// Alone is set if there is no other control-plane node.
	Alone bool
	// Drain first moves the pods away from the node.
	Drain bool
	// Reconfigure applies the patches and settings to a node that has the version.
	Reconfigure bool

	release func()
}

// Step is a step of an upgrade.
type Step = workflow.Phase[*Upgrade]

// on converts a phase of the installer to a step. The step is not undone: the node runs with what that would remove.
func on(p host.Phase) Step {
	return inOrder(workflow.Over(p, func(u *Upgrade) *host.Host { return u.Host }))
}

// inOrder makes steps without children follow each other.
func inOrder(s Step) Step {
	s.After = nil
	for i := range s.Phases {
		s.Phases[i] = inOrder(s.Phases[i])
	}
	return s
}

var worker = workflow.SkipIf("this machine is a worker", func(u *Upgrade) bool { return !u.ControlPlane })

// committed returns why the steps before the point of no return are skipped.
func committed(u *Upgrade) string {
	if why := worker(u); why != "" {
		return why
	}
	if u.Record.Committed {
		return "the control plane of this node has the new version"
	}
	return ""
}

var begun = workflow.SkipIf("it was started before", func(u *Upgrade) bool { return u.Record.Committed })

// OnFailure returns what happens to the completed steps if one of ControlPlaneSteps fails. A run that resumes after they have all completed does not
// undo them: the record and the kept kubelet are needed until the end.
func (u *Upgrade) OnFailure() workflow.OnFailure {
	if u.Record.Committed {
		return workflow.Keep
	}
	return workflow.Rollback
}

var notFirst = workflow.SkipIf("only the first control-plane node does this", func(u *Upgrade) bool { return !u.Record.First })

// ControlPlaneSteps replace the static pods of this node, one by one. If one does not start, all are rolled back. A worker starts with the steps that apply to it.
func ControlPlaneSteps() []Step {
	steps := []Step{
		{Name: "turn", Short: "Wait until no other control-plane node is being upgraded and all are healthy", Timeout: turnPatience, Skip: worker,
			Plan: workflow.Says[*Upgrade](),
			Run:  func(ctx context.Context, u *Upgrade, r workflow.Reporter) error { return u.take(ctx, r) }},
		beginStep().Unless(begun),
		snapshotStep().Unless(notFirst).Unless(committed),
		stageStep().Unless(committed),
		on(node.Images(
			node.ImageGroup{Name: "control-plane", Short: "Import or pull the images of the new control plane", Need: controlPlaneImages},
			node.ImageGroup{Name: "worker", Short: "Import or pull the images that every node runs",
				Need: func(h *host.Host) ([]string, error) { return kubernetes.WorkerImages(h.Config) }},
		)),
	}
	pods := Step{Name: "static-pods", Short: "Replace the static pods of the control plane, one by one", Skip: committed,
		Phases: lists.Map(kubernetes.StaticPods(), podStep)}
	return append(steps, elsewhereStep().Unless(committed), pods, commitStep().Unless(begun))
}

// controlPlaneImages returns the images in kubeadm's list and in the new manifests, where patches may name others.
func controlPlaneImages(h *host.Host) ([]string, error) {
	if !kubernetes.IsControlPlane(h) {
		return nil, nil
	}
	all, err := kubernetes.Images(h.Config)
	if err != nil {
		return nil, err
	}
	staged, err := kubernetes.StagedImages(h)
	return lists.Unique(append(all, staged...)), err
}

// NodeSteps upgrade the rest of this node and, on the first node, the cluster's configuration. Only a kubelet that does not start is rolled back.
func NodeSteps() []Step {
	return []Step{
		configurationStep().Unless(notFirst),
		drainStep(),
		on(node.Software()),
		runtimeStep(),
		kubeletStep(),
		uncordonStep(),
		depotStep(),
		addonsStep().Unless(worker),
		finishStep(),
	}
}

func beginStep() Step {
	return Step{
		Name: "begin", Short: "Record the upgrade, and keep the current kubelet", Timeout: 5 * time.Minute,
		Plan: workflow.Says[*Upgrade](),
		Run: func(_ context.Context, u *Upgrade, _ workflow.Reporter) error {
			before, err := Unfinished(u.Host)
			if err != nil {
				return err
			}
			switch {
			case before == nil: // files of an upgrade that was interrupted during its cleanup have other versions
				err = forget(u.Host)
			case before.To != u.Record.To:
				err = before.clear(u.Host)
			}
			if err != nil {
				return err
			}
			if err := u.Record.save(u.Host); err != nil {
				return err
			}
			return keepKubelet(u.Host)
		},
		Undo: func(_ context.Context, u *Upgrade, _ workflow.Reporter) error {
			for _, name := range kubernetes.StaticPods() {
				if !kubernetes.IsBack(u.Host, name) {
					return nil // the kept files are still needed
				}
			}
			return u.Record.markUndone(u.Host)
		},
	}
}

func stageStep() Step {
	return Step{
		Name: "manifests", Short: "Let kubeadm write the new static pods next to the current ones", Timeout: 2 * time.Minute,
		Plan: workflow.Says[*Upgrade](),
		Run: func(ctx context.Context, u *Upgrade, r workflow.Reporter) error {
			return kubernetes.StageManifests(ctx, u.Host, r, u.K, u.Record.To)
		},
	}
}

// elsewhereStep keeps the node Ready while its own API server is down. The step "kubelet" switches back to it.
func elsewhereStep() Step {
	return Step{
		Name: "kubelet-elsewhere", Short: "Let the kubelet use the other API servers in the meantime", Timeout: 5 * time.Minute,
		Skip: workflow.SkipIf("this is the only control-plane node", func(u *Upgrade) bool { return u.Alone }),
		Check: func(_ context.Context, u *Upgrade) (bool, error) {
			return kubernetes.KubeletAsksAt(u.Host, u.Host.Config.Cluster.ControlPlaneEndpoint), nil
		},
		Plan: workflow.Says[*Upgrade]("let the kubelet use the other API servers in the meantime"),
		Run: func(ctx context.Context, u *Upgrade, r workflow.Reporter) error {
			if err := kubernetes.PointKubelet(ctx, u.Host, r, u.Host.Config.Cluster.ControlPlaneEndpoint); err != nil {
				return err
			}
			return kubernetes.AwaitVolumes(ctx, u.Host, r)
		},
		Undo: func(ctx context.Context, u *Upgrade, r workflow.Reporter) error {
			return kubernetes.PointKubelet(ctx, u.Host, r, kubernetes.LocalEndpoint(u.Host))
		},
	}
}

// staged returns the static pods with a new manifest of this upgrade. Before it begins, existing ones belong to another upgrade.
func (u *Upgrade) staged() []string {
	if before, err := Unfinished(u.Host); err != nil || before == nil || before.To != u.Record.To {
		return nil
	}
	return kubernetes.StagedPods(u.Host)
}

func podStep(name string) Step {
	return Step{
		Name: name, Short: "Replace " + name + " and wait until the control plane is healthy", Timeout: kubernetes.ExchangeTimeout,
		Check: func(ctx context.Context, u *Upgrade) (bool, error) {
			if len(u.staged()) == 0 { // in a dry run
				return false, nil
			}
			return kubernetes.Exchanged(ctx, u.Host, name)
		},
		Plan: func(_ context.Context, u *Upgrade) ([]string, error) {
			if slices.Contains(u.staged(), name) {
				line, err := kubernetes.ExchangePlan(u.Host, name)
				if line == "" {
					return nil, err
				}
				return []string{line}, err
			}
			if was := kubernetes.StaticVersions(u.Host)[name]; was != u.Record.To && name != kubernetes.StaticPods()[0] {
				return []string{fmt.Sprintf("replace %s %s with %s", name, was, u.Record.To)}, nil
			}
			return []string{"replace " + name + " if its image or its settings change"}, nil
		},
		Run: func(ctx context.Context, u *Upgrade, r workflow.Reporter) error {
			if !slices.Contains(kubernetes.StagedPods(u.Host), name) { // external etcd
				return nil
			}
			return kubernetes.Exchange(ctx, u.Host, r, name, u.Record.To)
		},
		Undo: func(ctx context.Context, u *Upgrade, r workflow.Reporter) error {
			return kubernetes.PutBack(ctx, u.Host, r, name)
		},
	}
}

func commitStep() Step {
	return Step{
		Name: "commit", Short: "Record that the upgrade can no longer be undone", Timeout: time.Minute,
		Plan: workflow.Says[*Upgrade](),
		Run: func(_ context.Context, u *Upgrade, _ workflow.Reporter) error {
			u.Record.Committed = true
			return u.Record.save(u.Host)
		},
	}
}

// configurationStep stores the version in the cluster through kubeadm. Other nodes and joins read it.
func configurationStep() Step {
	run := func(phase ...string) func(context.Context, *Upgrade, workflow.Reporter) error {
		return func(ctx context.Context, u *Upgrade, r workflow.Reporter) error {
			if err := kubernetes.WriteUpgradeConfig(u.Host, u.Record.To); err != nil {
				return err
			}
			return kubernetes.KubeadmUpgrade(ctx, u.Host, r, true, phase...)
		}
	}
	return Step{
		Name: "configuration", Short: "Store the new version in the configuration of the cluster",
		Phases: []Step{
			{Name: "upload-config", Short: "Store kubeadm's and the kubelets' configuration", Timeout: 3 * time.Minute,
				Check: func(ctx context.Context, u *Upgrade) (bool, error) {
					v, err := kubernetes.ClusterVersion(ctx, u.K)
					return v == u.Record.To, err
				},
				Plan: workflow.Line(func(u *Upgrade) string { return "store " + u.Record.To + " in ConfigMap kube-system/kubeadm-config" }),
				// The kubelet's comes first: the version in kubeadm's configuration shows that both are done.
				Run: func(ctx context.Context, u *Upgrade, r workflow.Reporter) error {
					if err := run("upload-config", "kubelet")(ctx, u, r); err != nil {
						return err
					}
					if err := run("upload-config", "kubeadm")(ctx, u, r); err != nil {
						return err
					}
					r.Changed("stored %s in ConfigMap kube-system/kubeadm-config", u.Record.To)
					return nil
				}},
			{Name: "bootstrap-token", Short: "Update the permissions that joining needs", Timeout: 2 * time.Minute,
				Plan: workflow.Says[*Upgrade](), Run: run("bootstrap-token")},
		},
	}
}

func finishStep() Step {
	return Step{
		Name: "finish", Short: "Record the end of this node's upgrade", Timeout: time.Minute,
		Plan: workflow.Says[*Upgrade](),
		Run: func(_ context.Context, u *Upgrade, _ workflow.Reporter) error {
			if err := kubernetes.NoteUpgrade(u.Host, u.Record.To); err != nil {
				return err
			}
			return forget(u.Host)
		},
	}
}

// Recover restores the previous static pods if the API server is down in the middle of an exchange, so that nothing can continue.
func Recover(ctx context.Context, h *host.Host, r workflow.Reporter) error {
	if err := kubernetes.PutAllBack(ctx, h, r, kubernetes.StaticPods()...); err != nil {
		return err
	}
	before, err := Unfinished(h)
	if err == nil && before != nil {
		err = before.markUndone(h)
	}
	if err != nil {
		return err
	}
	return finding.New("OCA-4507", "The API server did not start with the new version", "the upgrade was interrupted, and the previous static pods were restored",
		"ocadm upgrade plan; then run the same command again")
}
