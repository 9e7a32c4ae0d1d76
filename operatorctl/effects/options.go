// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/options"
	"yunion.io/x/ocadm/operatorctl/component"
)

// commonService is the record in which the identity service keeps the options that all services share. It overrides a service's own record, which does
// not take these options.
const commonService = "common"

// options updates a component's options in the identity service before its pods roll. At its first start, a service stores the options of its file. From
// then on the stored value wins, so a changed file alone changes nothing.
// A new component has nothing stored yet, so it needs no request. The audit does not repeat this: what users set in the console lasts until the
// ConfigMap changes.
func (in Input) options(c component.Resolved) []Effect {
	service := c.OptionsRecord()
	if service == "" {
		return nil
	}
	own, shared := in.stored(c)
	choices := in.choices(c, service)
	if len(own)+len(shared) == 0 {
		return choices
	}
	key := "options/" + c.Name
	e := in.stores(c, key)
	e.Hash, e.Do = in.hash("options", service, own, shared), in.bind(asAdmin(store(service, own, shared)))
	if _, was := in.Recorded[key]; !was && len(in.Values[c.Name]) == 0 {
		// The service stores them itself when it starts, so only their hash is recorded.
		e.Note, e.Do, e.Needs = true, nothing, nil
	} else {
		e.Follows = []string{"endpoints/" + c.Name}
		if owner := in.owner(c.Component); owner != "" {
			e.Follows = append(e.Follows, "endpoints/"+owner)
		}
	}
	return append([]Effect{e}, choices...)
}

// stores returns an effect that changes the options stored for a component. The identity service reads its own options when it starts: they are changed
// before its pods are replaced, and afterwards if the pods do not answer. Before its first start, it cannot be reached.
func (in Input) stores(c component.Resolved, key string) Effect {
	e := Effect{Key: key, Component: c.Name, Target: Identity, Stage: Before, Once: true, Needs: []string{identityName}}
	if c.Name == identityName {
		if e.Stage = After; in.Recorded["endpoints/"+identityName] != "" {
			e.Needs, e.TryFirst = nil, true
		}
	}
	return e
}

func nothing(context.Context, Clients) (bool, error) { return false, nil }

// choiceKey returns the key that records an option set by users. Without it, the operator could not undo the option once users remove it.
func choiceKey(component, option string) string {
	return strings.ToLower("option/" + component + "/" + option)
}

// choices records the options that users have set, and removes the stored value of those that they have since removed or emptied.
func (in Input) choices(c component.Resolved, service string) []Effect {
	if c.Problem != "" {
		return nil // the users' options cannot be read
	}
	var out []Effect
	seen := map[string]bool{}
	add := func(name string, removed bool) {
		e := in.stores(c, choiceKey(c.Name, name))
		e.Hash = in.hash("option", removed)
		if removed {
			record := service
			if options.Shared(name) {
				record = commonService
			}
			e.Do = in.bind(asAdmin(unstore(record, name)))
		} else {
			e.Note, e.Do, e.Needs = true, nothing, nil
		}
		seen[e.Key] = true
		out = append(out, e)
	}
	own, shared := in.stored(c)
	table, _ := options.Of(c.Name)
	for _, key := range slices.Sorted(maps.Keys(in.Values[c.Name])) {
		if name := storedName(table, key); options.Stored(name) {
			add(name, false)
		}
	}
	for _, key := range in.Emptied[c.Name] {
		if name := storedName(table, key); options.Stored(name) && !seen[choiceKey(c.Name, name)] {
			add(name, true)
		}
	}
	prefix := choiceKey(c.Name, "")
	for _, key := range slices.Sorted(maps.Keys(in.Recorded)) {
		name, mine := strings.CutPrefix(key, prefix)
		_, ours := own[name]
		_, theirs := shared[name]
		if mine && !ours && !theirs && !seen[key] && !in.elsewhere(c, name) {
			add(name, true)
		}
	}
	return out
}

// elsewhere reports whether another component sets an option stored in the same record.
func (in Input) elsewhere(c component.Resolved, name string) bool {
	owner := in.owner(c.Component)
	for _, other := range in.Order {
		table, _ := options.Of(other)
		values := in.Values[other]
		if other == owner {
			values = in.Options[other]
		}
		if other == c.Name || other != owner && !options.Shared(name) {
			continue
		}
		for key := range values {
			if storedName(table, key) == name {
				return true
			}
		}
	}
	return false
}

// chosen reports whether users have set an option that all services share.
func (in Input) chosen(option string) bool {
	return slices.ContainsFunc(in.Order, func(name string) bool {
		c := in.Cluster.Components[name]
		if !c.Enabled || c.OptionsRecord() == "" {
			return false
		}
		_, shared := in.stored(c)
		return shared[option] != nil
	})
}

func storedName(table options.Table, key string) string { return cmp.Or(table[key].Stored, key) }

func unstore(service, name string) work {
	return func(ctx context.Context, s session, _ Input) (bool, error) {
		changed, err := s.id.RemoveServiceConfig(ctx, service, name)
		if identity.IsNotFound(err) {
			return false, nil
		}
		return changed, err
	}
}

func store(service string, own, shared map[string]any) work {
	return func(ctx context.Context, s session, _ Input) (bool, error) {
		to := func(record string, values map[string]any) write {
			return func() (bool, error) {
				if len(values) == 0 {
					return false, nil
				}
				return s.id.EnsureServiceConfig(ctx, record, values)
			}
		}
		return each(to(service, own), to(commonService, shared))
	}
}

// stored returns the options of a component that the identity service keeps, by their names there: the component's own, and those shared options that
// users set. A component that uses another's record leaves the other's options alone.
func (in Input) stored(c component.Resolved) (own, shared map[string]any) {
	own, shared = map[string]any{}, map[string]any{}
	table, _ := options.Of(c.Name)
	owners := in.Options[in.owner(c.Component)]
	for _, key := range slices.Sorted(maps.Keys(in.Options[c.Name])) {
		value := in.Options[c.Name][key]
		_, chosen := in.Values[c.Name][key]
		name := storedName(table, key)
		switch _, theirs := owners[key]; {
		case !options.Stored(name):
		case options.Shared(name):
			if chosen {
				shared[name] = value
			}
		case chosen || !theirs:
			own[name] = value
		}
	}
	return own, shared
}

// owner returns the component in whose record another one stores its options, "" if it has its own record.
func (in Input) owner(c component.Component) string {
	if c.Config.StoredIn == "" {
		return ""
	}
	for _, name := range in.Order {
		o := in.Cluster.Components[name].Component
		if name != c.Name && o.Config != nil && o.Config.StoredIn == "" && o.OptionsRecord() == c.Config.StoredIn {
			return name
		}
	}
	return ""
}
