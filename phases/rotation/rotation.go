// SPDX-License-Identifier: Apache-2.0

package rotation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

// Rotation is the state shared by the steps.
type Rotation struct {
	Host *host.Host
	// Etcd makes a new rotation include the CA of etcd.
	Etcd bool
	// Record is nil before the first step and after the last.
	Record *Record

	mu       sync.Mutex
	secret   *corev1.Secret
	material material
}

// Step is a step of a rotation.
type Step = workflow.Phase[*Rotation]

// Begin reads the progress of a rotation. It changes nothing.
func Begin(ctx context.Context, h *host.Host) (*Rotation, error) {
	if !kubernetes.IsControlPlane(h) {
		return nil, kubernetes.NoCertificates()
	}
	n := &Rotation{Host: h}
	return n, n.load(ctx)
}

// client returns a client with administrator permissions. It reads the kubeconfig again, because a step may have changed the CAs in it.
func (n *Rotation) client() (client.WithWatch, error) { return kubernetes.AdminClient(n.Host) }

// connected passes a client to the run function of a step.
func connected(run func(context.Context, client.WithWatch, *Rotation, workflow.Reporter) error) func(context.Context, *Rotation, workflow.Reporter) error {
	return func(ctx context.Context, n *Rotation, r workflow.Reporter) error {
		c, err := n.client()
		if err != nil {
			return err
		}
		return run(ctx, c, n, r)
	}
}

// underway passes a client to the check of a step. Before a rotation has begun, no step is done.
func underway(check func(context.Context, client.WithWatch, *Rotation) (bool, error)) func(context.Context, *Rotation) (bool, error) {
	return func(ctx context.Context, n *Rotation) (bool, error) {
		c, err := n.client()
		if err != nil || n.Record == nil {
			return false, err
		}
		return check(ctx, c, n)
	}
}

func (n *Rotation) load(ctx context.Context) error {
	c, err := n.client()
	if err != nil {
		return err
	}
	n.secret, n.Record, n.material, err = load(ctx, c)
	return err
}

func (n *Rotation) change(ctx context.Context, c client.Client, change func(*Record)) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	change(n.Record)
	return save(ctx, c, n.secret, *n.Record, n.material)
}

// stage returns the stage of the rotation, "" before it begins.
func (n *Rotation) stage() Stage {
	if n.Record == nil {
		return ""
	}
	return n.Record.Stage
}

// TrustSteps make everything trust the new CAs and then sign with them. Afterwards, the rotation can be finished or reverted.
func TrustSteps() []Step {
	trust := Step{Name: "trust", Short: "Trust the new authorities in addition to the old ones", Phases: []Step{
		{Name: "begin", Short: "Create the new certificate authorities", Timeout: time.Minute, Run: connected(begin),
			Check: func(_ context.Context, n *Rotation) (bool, error) { return n.Record != nil, nil },
			Plan: workflow.Line(func(n *Rotation) string {
				return "create new certificate authorities: " + strings.Join(n.authorities(), ", ")
			})},
		infoStep(Trust), nodesStep(Trust), accountsStep(Trust), podsStep(Trust),
	}}
	return []Step{trust, signPhase()}
}

// signPhase makes the new CAs sign.
func signPhase() Step {
	return Step{Name: "sign", Short: "Sign with the new authorities", Phases: []Step{
		stageStep(Sign, "let the new certificate authorities sign"), infoStep(Sign), nodesStep(Sign),
	}}
}

// FinishSteps drop the old CAs. The first of them that changes anything makes this irreversible.
func FinishSteps() []Step {
	return []Step{{Name: "drop", Short: "Trust only the new authorities", Phases: []Step{
		{Name: "check", Short: "Check that nothing depends on the old authorities", Patience: nodePatience, Skip: noCheck,
			Plan: workflow.Says[*Rotation]("check every node for certificates that the old authorities have signed"),
			Run:  check},
		stageStep(Drop, "trust only the new certificate authorities"), infoStep(Drop), nodesStep(Drop), accountsStep(Drop), podsStep(Drop), proxyStep(), endStep(),
	}}}
}

// RevertSteps go back: the old CAs become the new ones of a rotation that continues to its end.
func RevertSteps() []Step {
	revert := Step{Name: "revert", Short: "Return to the old authorities", Timeout: time.Minute, Run: connected(revert),
		Check: func(_ context.Context, n *Rotation) (bool, error) { return n.Record.Reverting, nil },
		Plan:  workflow.Says[*Rotation]("let the old certificate authorities sign again")}
	return slices.Concat([]Step{revert, signPhase()}, FinishSteps())
}

// authorities returns the CAs that this rotation replaces.
func (n *Rotation) authorities() []string {
	if n.Record != nil {
		return n.Record.Authorities
	}
	return slices.DeleteFunc(slices.Clone(authorities), func(name string) bool { return name == kubernetes.EtcdAuthority && !n.Etcd })
}

// WithEtcd makes a rotation that has not begun include the CA of etcd. It returns a finding if one is underway without it.
func (n *Rotation) WithEtcd() error {
	n.Etcd = true
	if n.Record != nil {
		if slices.Contains(n.Record.Authorities, kubernetes.EtcdAuthority) {
			return nil
		}
		return finding.New("OCA-4421", "A rotation without the authority of etcd is underway", "it replaces "+strings.Join(n.Record.Authorities, ", "),
			"complete it with ocadm certs rotate-ca --finish, or undo it with --revert; then run this command again")
	}
	_, err := kubernetes.OwnEtcd(n.Host)
	return err
}

// beyond skips a step when the rotation has reached a stage.
func beyond(stage Stage) func(*Rotation) string {
	return func(n *Rotation) string {
		if n.Record != nil && reached(n.Record.Stage, stage) {
			return "that is over"
		}
		return ""
	}
}

// noCheck returns why there is nothing to check. During a revert, every node has just applied the old CAs.
func noCheck(n *Rotation) string {
	if n.Record != nil && n.Record.Reverting {
		return "the old authorities are kept"
	}
	return beyond(Drop)(n)
}

// Reversible returns a finding if there is no rotation to revert, or if it can no longer be reverted.
func (n *Rotation) Reversible() error {
	switch {
	case n.Record == nil:
		return NotUnderway(n.Host)
	case n.Record.Reverting:
		return nil
	case n.Record.Stage == Drop:
		return finding.New("OCA-4413", "The rotation can no longer be reverted", "nodes no longer trust the old authorities", "complete it: ocadm certs rotate-ca --finish")
	}
	return nil
}

// Finishable returns a finding if the new CAs do not sign everywhere yet.
func (n *Rotation) Finishable() error {
	if n.Record == nil {
		return NotUnderway(n.Host)
	}
	if n.Record.Reverting || reached(n.Record.Stage, Drop) {
		return nil
	}
	if n.Record.Stage != Sign {
		return finding.New("OCA-4414", "The new certificate authorities do not sign yet", "the rotation is in stage "+string(n.Record.Stage),
			"ocadm certs rotate-ca, and when it is complete: ocadm certs rotate-ca --finish")
	}
	return nil
}

func begin(ctx context.Context, c client.WithWatch, n *Rotation, r workflow.Reporter) (err error) {
	now := time.Now()
	rec := Record{ID: now.UTC().Format("20060102T150405Z"), Stage: Trust, Began: now.UTC().Truncate(time.Second), Authorities: n.authorities(), Nodes: map[string]Stage{}}
	m := material{certs: map[string][]byte{}}
	keys := map[string][]byte{}
	for _, name := range rec.Authorities {
		if m.certs[oldPrefix+name], keys[oldPrefix+name], err = kubernetes.Authority(n.Host, name); err != nil {
			return err
		}
		if m.certs[newPrefix+name], keys[newPrefix+name], err = kubernetes.NewAuthority(n.Host, name, rec.ID, now); err != nil {
			return err
		}
	}
	if m.sealed, m.wrapped, err = seal(keys); err != nil {
		return err
	}
	s := &corev1.Secret{}
	if err := save(ctx, c, s, rec, m); err != nil {
		return err
	}
	n.secret, n.Record, n.material = s, &rec, m
	r.Changed("created new certificate authorities %s; Secret kube-system/%s contains them", strings.Join(rec.Authorities, ", "), secretName)
	return kubernetes.ForgetUpload(ctx, c)
}

func revert(ctx context.Context, c client.WithWatch, n *Rotation, r workflow.Reporter) error {
	keys, err := n.material.keys(n.Host)
	if err != nil {
		return err
	}
	certs, keys := n.material.swapped(keys)
	sealed, wraps, err := seal(keys)
	if err != nil {
		return err
	}
	n.material = material{certs: certs, sealed: sealed, wrapped: wraps}
	err = n.change(ctx, c, func(rec *Record) {
		rec.Reverting, rec.Stage, rec.Nodes, rec.Left, rec.Published = true, Sign, map[string]Stage{}, nil, nil
	})
	if err == nil {
		r.Changed("the old certificate authorities will sign again")
	}
	return err
}

// stageStep advances to a stage when all nodes have applied the previous one.
func stageStep(stage Stage, what string) Step {
	return Step{Name: "next", Short: "Continue to the next stage", Timeout: time.Minute,
		Check: func(_ context.Context, n *Rotation) (bool, error) {
			return n.Record != nil && reached(n.Record.Stage, stage), nil
		},
		Plan: workflow.Says[*Rotation](what),
		Run: connected(func(ctx context.Context, c client.WithWatch, n *Rotation, r workflow.Reporter) error {
			if missing, err := n.missing(ctx, c, n.stage()); err != nil || len(missing) > 0 {
				return errors.Join(err, notReached(n.stage(), missing))
			}
			if err := n.change(ctx, c, func(rec *Record) { rec.Stage = stage }); err != nil {
				return err
			}
			r.Changed("the rotation is in stage %s", stage)
			return nil
		})}
}

func notReached(stage Stage, missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	return finding.New("OCA-4416", "Nodes have not applied the certificate authorities", fmt.Sprintf("stage %s is missing on %s", stage, strings.Join(missing, ", ")),
		"start the nodes, or remove those that are lost: ocadm node remove NAME; then run the same command again").With(missing...)
}

// infoStep publishes the CAs of a stage for joining machines.
func infoStep(stage Stage) Step {
	return Step{Name: "join-info", Short: "Publish the authorities for machines that join", Timeout: time.Minute, Skip: beyond(following(stage)),
		Run: connected(func(ctx context.Context, c client.WithWatch, n *Rotation, r workflow.Reporter) error {
			return kubernetes.WriteClusterInfo(ctx, c, r, n.material.bundle(stage, kubernetes.ClusterAuthority))
		}),
		Plan: workflow.Says[*Rotation]("change ConfigMap kube-public/cluster-info"),
		Check: underway(func(ctx context.Context, c client.WithWatch, n *Rotation) (bool, error) {
			return kubernetes.ClusterInfoHas(ctx, c, n.material.bundle(stage, kubernetes.ClusterAuthority))
		})}
}

// following returns the stage after another; after the last, it returns "", which is never reached.
func following(stage Stage) Stage {
	if i := slices.Index(order, stage); i+1 < len(order) {
		return order[i+1]
	}
	return ""
}

// proxyStep removes the old CAs from those that the API server publishes for aggregated API servers: it only ever adds.
func proxyStep() Step {
	return Step{Name: "aggregation", Short: "Publish only the new authorities to aggregated API servers", Timeout: 3 * time.Minute,
		Plan: workflow.Says[*Rotation]("let the API server write ConfigMap kube-system/extension-apiserver-authentication again"),
		Check: underway(func(ctx context.Context, c client.WithWatch, n *Rotation) (bool, error) {
			return kubernetes.PublishesOnly(ctx, c, n.material.bundle(Drop, kubernetes.ClusterAuthority), n.material.bundle(Drop, kubernetes.FrontProxyAuthority))
		}),
		Run: connected(func(ctx context.Context, c client.WithWatch, n *Rotation, r workflow.Reporter) error {
			return kubernetes.Republish(ctx, c, r, n.material.bundle(Drop, kubernetes.ClusterAuthority), n.material.bundle(Drop, kubernetes.FrontProxyAuthority))
		})}
}

// endStep deletes the record of the rotation, and with it the old keys.
func endStep() Step {
	return Step{Name: "end", Short: "Delete the record of the rotation", Timeout: time.Minute,
		Plan: workflow.Says[*Rotation]("delete Secret kube-system/" + secretName),
		Run:  connected(end)}
}

func end(ctx context.Context, c client.WithWatch, n *Rotation, r workflow.Reporter) error {
	if missing, err := n.missing(ctx, c, Drop); err != nil || len(missing) > 0 {
		return errors.Join(err, notReached(Drop, missing))
	}
	if err := kubernetes.ForgetUpload(ctx, c); err != nil {
		return err
	}
	err := answered(ctx, func(ctx context.Context) error { return client.IgnoreNotFound(c.Delete(ctx, n.secret)) })
	if err != nil {
		return fmt.Errorf("deleting the record of the rotation: %w", err)
	}
	n.Record = nil
	r.Changed("deleted Secret kube-system/%s", secretName)
	return nil
}
