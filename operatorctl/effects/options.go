// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"maps"
	"slices"

	"yunion.io/x/ocadm/internal/options"
	"yunion.io/x/ocadm/operatorctl/component"
)

// commonService is the record under which the identity service keeps what all services share. It wins over a service's own record,
// and a service's own record does not take these options.
const commonService = "common"

// options brings a component's options into the identity service's store, before its pods roll: what a service finds in its file at its
// first start is stored there, and from then on the stored value wins, so a changed file alone changes nothing.
// Of a new component there is nothing stored yet, and nothing is asked. It is not repeated by the audit: what people set in the console
// stays until the ConfigMap changes.
func (in Input) options(c component.Resolved) []Effect {
	service := storedIn(c.Component)
	if service == "" {
		return nil
	}
	own, shared := in.stored(c)
	if len(own)+len(shared) == 0 {
		return nil
	}
	key := "options/" + c.Name
	e := Effect{
		Key: key, Component: c.Name, Target: Identity, Stage: Before, Once: true, Hash: in.hash("options", service, own, shared),
		Do: func(ctx context.Context, cl Clients) (bool, error) { return store(ctx, cl, service, own, shared) },
	}
	if _, was := in.Recorded[key]; !was && len(in.Chosen[c.Name]) == 0 {
		// The service stores them itself when it starts: only what they are is remembered.
		e.Note, e.Do = true, func(context.Context, Clients) (bool, error) { return false, nil }
	} else {
		e.Needs, e.Follows = []string{identityName}, []string{"endpoints/" + c.Name}
		if owner := in.owner(c.Component); owner != "" {
			e.Follows = append(e.Follows, "endpoints/"+owner)
		}
	}
	if c.Name == identityName {
		e.Stage = After
	}
	return []Effect{e}
}

func store(ctx context.Context, cl Clients, service string, own, shared map[string]any) (bool, error) {
	id, err := cl.Identity(ctx)
	if err != nil {
		return false, err
	}
	changed := false
	for _, part := range []struct {
		service string
		values  map[string]any
	}{{service, own}, {commonService, shared}} {
		if len(part.values) == 0 {
			continue
		}
		did, err := id.EnsureServiceConfig(ctx, part.service, "default", part.values, true)
		if changed = changed || did; err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// storedIn is the record of the catalogue under which a component's options are stored, "" where they are not.
func storedIn(c component.Component) string {
	switch {
	case c.Config == nil || c.Config.NotStored || c.Account == nil && c.Name != identityName && c.Config.AccountOf == "":
		return ""
	case c.Config.StoredIn != "":
		return c.Config.StoredIn
	case len(c.Endpoints) > 0:
		return c.Endpoints[0].Service
	}
	return ""
}

// stored are the options of a component that the identity service keeps, by the name they have there: the component's own, and of those
// that all services share the ones that people set. Who stores under another component's record leaves that one's options alone.
func (in Input) stored(c component.Resolved) (own, shared map[string]any) {
	own, shared = map[string]any{}, map[string]any{}
	table, _ := options.Of(c.Name)
	owners := in.Options[in.owner(c.Component)]
	for _, key := range slices.Sorted(maps.Keys(in.Options[c.Name])) {
		value := in.Options[c.Name][key]
		_, chosen := in.Chosen[c.Name][key]
		name := key
		if s := table[key].Stored; s != "" {
			name = s
		}
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

// owner is the component whose record another one stores its options under, "" if it has its own.
func (in Input) owner(c component.Component) string {
	if c.Config.StoredIn == "" {
		return ""
	}
	for _, name := range in.Order {
		o := in.Cluster.Components[name].Component
		if name != c.Name && o.Config != nil && o.Config.StoredIn == "" && storedIn(o) == c.Config.StoredIn {
			return name
		}
	}
	return ""
}
