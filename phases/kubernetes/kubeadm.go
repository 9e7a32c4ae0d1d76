// SPDX-License-Identifier: Apache-2.0

package kubernetes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/exec"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/workflow"
)

// check tells whether a phase's work is done.
type check func(context.Context, *host.Host) (bool, error)

// kubeadmPhase is one phase of kubeadm as a phase of ours: args are kubeadm's, without --config.
type kubeadmPhase struct {
	name, short string
	args        []string
	writes      []string // files, or objects, for the dry run
	check       check
	prepare     func(context.Context, *host.Host, workflow.Reporter) error // clears what kubeadm would refuse to replace
	finish      func(context.Context, *host.Host, workflow.Reporter) error // does what kubeadm leaves out
	skip        func(*host.Host) string
	after       []string
}

func (k kubeadmPhase) phase() host.Phase {
	args := append(slices.Clone(k.args), "--config", ConfigFile)
	return host.Phase{
		Name: k.name, Short: k.short, After: k.after, Skip: k.skip, Check: k.check,
		Plan: func(context.Context, *host.Host) ([]string, error) {
			lines := []string{"run ocadm kubeadm " + strings.Join(args, " ")}
			for _, w := range k.writes {
				lines = append(lines, "write "+w)
			}
			return lines, nil
		},
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			if k.prepare != nil {
				if err := k.prepare(ctx, h, r); err != nil {
					return err
				}
			}
			if err := kubeadm(ctx, h, r, args...); err != nil {
				return err
			}
			for _, w := range k.writes {
				r.Changed("wrote %s", w)
			}
			if k.finish != nil {
				return k.finish(ctx, h, r)
			}
			return nil
		},
		Verify: verified(k.name, k.check),
	}
}

func verified(name string, c check) func(context.Context, *host.Host) error {
	if c == nil {
		return nil
	}
	return func(ctx context.Context, h *host.Host) error {
		done, err := c(ctx, h)
		if err != nil {
			return fmt.Errorf("verifying %s: %w", name, err)
		}
		if !done {
			return fmt.Errorf("verifying %s: kubeadm reported success and yet its work is not there", name)
		}
		return nil
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
