// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/host"
)

// check reports whether the outputs of a phase are there.
type check func(context.Context, *host.Host) (bool, error)

// kubeadmPhase is one phase of kubeadm as a phase of ours: args are kubeadm's, without --config.
type kubeadmPhase struct {
	name, short string
	args        []string
	writes      []string // files, or objects, for the dry run
	check       check
	// clear removes what kubeadm would refuse to replace. changed says that it was made with another configuration.
	clear  func(h *host.Host, r workflow.Reporter, changed bool) error
	finish func(context.Context, *host.Host, workflow.Reporter) error // does what kubeadm leaves out
	after  []string
}

// key is the phase's name in the ledger.
func (k kubeadmPhase) key() string { return "kubeadm " + strings.Join(k.args, " ") }

func (k kubeadmPhase) role() Role {
	if k.args[0] == "init" {
		return ControlPlane
	}
	return Worker
}

func (k kubeadmPhase) phase() host.Phase {
	args := append(slices.Clone(k.args), "--config", ConfigFile)
	return host.Phase{
		Name: k.name, Short: k.short, After: k.after, Verify: k.verify,
		Check: func(ctx context.Context, h *host.Host) (bool, error) {
			now, _, err := finished(h, k.key(), k.role())
			if err != nil || !now {
				return false, err
			}
			return k.check(ctx, h)
		},
		Plan: func(context.Context, *host.Host) ([]string, error) {
			lines := []string{"run ocadm kubeadm " + strings.Join(args, " ")}
			for _, w := range k.writes {
				lines = append(lines, "write "+w)
			}
			return lines, nil
		},
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			_, changed, err := finished(h, k.key(), k.role())
			if err == nil && k.clear != nil {
				err = k.clear(h, r, changed)
			}
			if err != nil {
				return err
			}
			if err := kubeadm(ctx, h, r, args...); err != nil {
				return err
			}
			for _, w := range k.writes {
				r.Changed("wrote %s", w)
			}
			if k.finish != nil {
				if err := k.finish(ctx, h, r); err != nil {
					return err
				}
			}
			return noteFinished(h, k.key(), k.role())
		},
	}
}

func (k kubeadmPhase) verify(ctx context.Context, h *host.Host) error {
	there, err := k.check(ctx, h)
	if err != nil {
		return fmt.Errorf("verifying %s: %w", k.name, err)
	}
	if !there {
		return fmt.Errorf("verifying %s: kubeadm reported success and yet its work is not there", k.name)
	}
	return nil
}

// filesThere is the check of a phase that writes files.
func filesThere(names ...string) check {
	return func(_ context.Context, h *host.Host) (bool, error) {
		return !slices.ContainsFunc(names, func(n string) bool { return !h.Files.Exists(n) }), nil
	}
}

// kubeadm runs this program as kubeadm: in process it would write to the real standard output and could not be cancelled.
func kubeadm(ctx context.Context, h *host.Host, r workflow.Reporter, args ...string) error {
	_, err := h.Exec.Run(ctx, exec.Command{Path: h.Self, Args: append([]string{"kubeadm"}, args...), OnLine: r.Output})
	if err != nil {
		return kubeadmFailed(ctx, args, err)
	}
	return nil
}
