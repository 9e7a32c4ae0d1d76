// SPDX-License-Identifier: Apache-2.0

// Package preflight checks a machine before anything on it is changed, and reports together everything that would make init or join fail, each with a
// remedy. It changes nothing, except for a temporary schema that verifies a database account's permissions, which a dry run does not create.
package preflight

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// Kind is the command that the machine is checked for.
type Kind string

// The kinds.
const (
	Init Kind = "init"
	Join Kind = "join"
	// Install checks a cluster instead of a machine.
	Install Kind = "operator install"
)

// Check is one check of the machine. Each of its findings has its name, by which it can be ignored, and one of its codes.
type Check struct {
	Name  string
	Short string // for the documentation
	Codes []string
	// Applies reports whether the check matters to a run; nil means that it always does.
	Applies func(Kind, *config.Config) bool
	// Timeout bounds it; 0 means checkTimeout.
	Timeout time.Duration
	run     func(context.Context, *machine) []finding.Finding
}

const checkTimeout = 3 * time.Second

// Checks returns all checks, in the order in which their findings are shown. Add new checks here.
func Checks() []Check {
	machine := MachineChecks()
	return append(machine, lists.Filter(ClusterChecks(), func(c Check) bool {
		return !slices.ContainsFunc(machine, func(other Check) bool { return other.Name == c.Name })
	})...)
}

// MachineChecks check the machine that init or join runs on.
func MachineChecks() []Check {
	return slices.Concat(hostChecks(), systemChecks(), mountChecks(), networkChecks(), linkChecks(), virtualAddressChecks(), podNetworkChecks(), softwareChecks(), databaseChecks(),
		settingsChecks(), computeChecks(), joinChecks())
}

// Phase is the preflight phase of a command.
func Phase(kind Kind) host.Phase {
	return host.Phase{
		Name: "preflight", Short: map[bool]string{false: "Check the machine before anything is changed", true: "Check the cluster before anything is changed"}[kind == Install],
		Long: "Runs all checks at the same time and reports every problem with its remedy. --ignore-preflight-errors NAME downgrades a\n" +
			"check's errors to warnings; \"all\" names every check.",
		Example: "  ocadm " + string(kind) + " phase preflight\n  ocadm " + string(kind) + " phase preflight --ignore-preflight-errors=CPU,Memory",
		Timeout: bundleTimeout + time.Minute, ReadOnly: true,
		Run: func(ctx context.Context, h *host.Host, r workflow.Reporter) error {
			return report(Gather(ctx, h, kind, DefaultLimits()), h.Config.Run.IgnorePreflightErrors, r)
		},
		Plan: func(ctx context.Context, h *host.Host) ([]string, error) {
			found := Gather(ctx, h, kind, DefaultLimits()).Ignore(h.Config.Run.IgnorePreflightErrors)
			return lists.Map(found.Warnings(), func(f finding.Finding) string { return "warning: " + f.Error() }), found.Err()
		},
	}
}

func report(found finding.List, ignore []string, r workflow.Reporter) error {
	for _, name := range ignore {
		if !strings.EqualFold(name, "all") && !slices.ContainsFunc(Checks(), func(c Check) bool { return strings.EqualFold(c.Name, name) }) {
			r.Info("warning: --ignore-preflight-errors names %q, which is not a check", name)
		}
	}
	found = found.Ignore(ignore)
	for _, f := range found.Warnings() {
		line := fmt.Sprintf("warning %s: %s", f.Code, f.Error())
		if f.Remedy != "" {
			line += " — " + f.Remedy
		}
		r.Info("%s", line)
	}
	return found.Err()
}

// Gather runs the applicable checks concurrently and returns their findings in the order of the checks.
func Gather(ctx context.Context, h *host.Host, kind Kind, limits Limits) finding.List {
	found, _ := Timed(ctx, h, kind, limits)
	return found
}

// Timed is Gather that also returns how many seconds each check took, by name.
func Timed(ctx context.Context, h *host.Host, kind Kind, limits Limits) (finding.List, map[string]float64) {
	checks := MachineChecks()
	if kind == Install {
		checks = ClusterChecks()
	}
	took := map[string]float64{}
	return gather(ctx, newMachine(h, kind, limits), checks, took), took
}

func gather(ctx context.Context, m *machine, checks []Check, took map[string]float64) finding.List {
	found := make([][]finding.Finding, len(checks))
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i, c := range checks {
		if c.Applies != nil && !c.Applies(m.kind, m.h.Config) {
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.Timeout, checkTimeout))
			defer cancel()
			began := time.Now()
			found[i] = c.run(ctx, m)
			mu.Lock()
			took[c.Name] = time.Since(began).Seconds()
			mu.Unlock()
			for j := range found[i] {
				found[i][j].Check = c.Name
			}
		})
	}
	wg.Wait()
	return slices.Concat(found...)
}

func onControlPlane(k Kind, c *config.Config) bool {
	return k == Init || k == Join && c.Join.ControlPlane
}
