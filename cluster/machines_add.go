// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/machine"
)

// AddMachines creates the machines that do not exist yet. It creates none if the API server refuses one or two share an address. An existing machine
// that differs is an error. login, which may be nil, stores credentials before the first machine is created. report receives the name and outcome of each.
func AddMachines(ctx context.Context, c client.Client, all []Machine, login func() error, report func(name, action string)) error {
	if login == nil {
		login = func() error { return nil }
	}
	if v, ok := c.(Views); ok {
		if err := login(); err != nil {
			return err
		}
		return v.AddMachines(ctx, all, report)
	}
	there, err := machinesBeside(ctx, c, all)
	if err != nil {
		return err
	}
	var missing []*Machine
	wrong := map[string]string{}
	for i := range all {
		m := &all[i]
		live, found := there[client.ObjectKeyFromObject(m)]
		switch other := sameAddress(m, there); {
		case found && !sameMachine(&live, m):
			wrong[m.Name] = "a machine with this name and other settings exists"
		case found:
			report(m.Name, "unchanged")
		case other != "":
			wrong[m.Name] = "machine " + other + " has the same address"
		default:
			missing = append(missing, m)
		}
	}
	refused := func(m *Machine, err error) { wrong[m.Name] = err.Error() }
	if err := eachMachine(missing, refused, func(m *Machine) error {
		return c.Create(ctx, m.DeepCopy(), client.DryRunAll, client.FieldOwner(kube.FieldManager))
	}); err != nil {
		return err
	}
	if len(wrong) > 0 {
		lines := lists.Map(slices.Sorted(maps.Keys(wrong)), func(name string) string { return name + ": " + wrong[name] })
		return finding.New("OCA-7611", "The machines are not valid", strings.Join(lines, "; "), "correct them; no machine was added")
	}
	if len(missing) == 0 {
		return nil
	}
	if err := login(); err != nil {
		return err
	}
	var failed error
	err = eachMachine(missing, func(m *Machine, err error) {
		failed = errors.Join(failed, fmt.Errorf("adding machine %s: %w", m.Name, err))
	},
		func(m *Machine) error { return c.Create(ctx, m, client.FieldOwner(kube.FieldManager)) })
	for _, m := range missing {
		if m.UID != "" {
			report(m.Name, "created")
		}
	}
	return errors.Join(err, failed)
}

// machinesBeside returns the existing machines in the namespaces of the given ones.
func machinesBeside(ctx context.Context, c client.Client, of []Machine) (map[client.ObjectKey]Machine, error) {
	out, seen := map[client.ObjectKey]Machine{}, map[string]bool{}
	for i := range of {
		if seen[of[i].Namespace] {
			continue
		}
		seen[of[i].Namespace] = true
		var list v1alpha1.OnecloudMachineList
		if err := c.List(ctx, &list, client.InNamespace(of[i].Namespace)); err != nil {
			return nil, noMachines(fmt.Errorf("listing the machines in namespace %s: %w", of[i].Namespace, err))
		}
		for i := range list.Items {
			out[client.ObjectKeyFromObject(&list.Items[i])] = list.Items[i]
		}
	}
	return out, nil
}

// sameAddress returns the name of a machine with the same address, "" if there is none.
func sameAddress(m *Machine, there map[client.ObjectKey]Machine) string {
	for key, other := range there {
		if machine.SameAddress(m, &other) {
			return key.Name
		}
	}
	return ""
}

// writers is the number of machines written concurrently.
const writers = 8

// eachMachine calls do for each machine, several concurrently. It calls bad, one call at a time, for those that fail. It returns an error if the
// cluster does not define machines, or forbids access.
func eachMachine(all []*Machine, bad func(*Machine, error), do func(*Machine) error) error {
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(writers)
	for _, m := range all {
		g.Go(func() error {
			err := do(m)
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				return noMachines(err)
			}
			if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
				return fmt.Errorf("adding machine %s: %w", m.Name, err)
			}
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				bad(m, err)
			}
			return nil
		})
	}
	return g.Wait()
}

// sameMachine compares an existing machine with the user's. The operator sets an ID if the user did not.
func sameMachine(live, wrote *Machine) bool {
	spec := wrote.Spec
	spec.ProviderID = cmp.Or(spec.ProviderID, live.Spec.ProviderID)
	x, err1 := yaml.Marshal(live.Spec)
	y, err2 := yaml.Marshal(spec)
	return err1 == nil && err2 == nil && string(x) == string(y)
}
