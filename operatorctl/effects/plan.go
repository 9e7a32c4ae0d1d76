// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// Input is the input of Plan.
type Input struct {
	Cluster component.Cluster
	// Order lists the component names, dependencies first.
	Order       []string
	Credentials component.Credentials
	// Salt keeps the hashes in status from revealing anything about the secrets in them.
	Salt string
	// Options are all values in the components' ConfigMaps, Values those users' values that take effect.
	Options, Values map[string]map[string]any
	// Emptied are the keys that users have left empty, so the service uses its own default.
	Emptied map[string][]string
	// ClientCertificate is for clients of the cloud's etcd. The identity service provides it along with the address.
	ClientCertificate identity.Certificate
	// ReplicaDown marks components whose read-only replicas do not answer: their endpoint is disabled.
	ReplicaDown map[string]bool
	// Recorded are the hashes in status: what was registered must be undone when a component is disabled.
	Recorded map[string]string
	// LastWords are the last log lines of StatefulSet pods that keep terminating, by component and pod.
	LastWords map[string]map[string]string
	// State is what tasks have stored for the pods of a component, see Clients.SetState.
	State map[string]map[string]string
	// Adopt is what a user allows the cloud to adopt.
	Adopt mysql.Adoption
}

// identityName is the component on which all identity effects depend.
const identityName = component.IdentityService

// Plan returns the effects of a cloud. It is pure: the same input gives the same keys and hashes.
func Plan(in Input) []Effect {
	var out []Effect
	for _, name := range in.Order {
		c := in.Cluster.Components[name]
		if !c.Enabled {
			out = append(out, in.retired(c)...)
			continue
		}
		if c.Database != nil {
			out = append(out, in.database(c))
		}
		if in.Cluster.ClickHouse() && c.UsesClickHouse() {
			out = append(out, in.clickHouse(c))
		}
		if name == identityName {
			out = append(out, in.bootstrap()...)
		}
		if c.Account != nil {
			out = append(out, in.account(c))
		}
		if owner := in.Cluster.Components[c.LogsInAs()]; owner.Enabled && owner.Account != nil {
			out = append(out, Effect{
				Key: "login/" + c.Name, Component: c.Name, Target: Identity, Stage: Before, Follows: []string{"account/" + owner.Name},
				Note: true, Hash: in.hash("login", owner.Name), Do: nothing,
			})
		}
		if len(c.Endpoints)+len(c.Register) > 0 {
			out = append(out, in.endpoints(c))
		}
		out = append(out, in.options(c)...)
		out = append(out, lists.Map(c.Setup, func(task string) Effect { return in.setup(c, task) })...)
	}
	for i := range out {
		out[i].Key = strings.ToLower(out[i].Key)
	}
	return out
}

func (in Input) hash(parts ...any) string {
	b, err := json.Marshal(parts)
	if err != nil {
		panic(fmt.Sprintf("hashing an effect: %v", err)) // the values are all plain
	}
	return engine.Salted(in.Salt, b)
}

func (in Input) database(c component.Resolved) Effect {
	acc := databaseAccount(c.Component, in.Credentials)
	return Effect{
		Key: DatabaseKey(c.Name), Component: c.Name, Target: MySQL, Stage: Before,
		Hash: in.hash("marked database", acc, c.Database.More, in.Cluster.Spec.MySQL.Host, in.Cluster.MysqlPort),
		Do: func(ctx context.Context, cl Clients) (bool, error) {
			admin, err := cl.MySQL(ctx)
			if err != nil {
				return false, err
			}
			snap, err := cl.Databases(ctx)
			if err != nil {
				return false, err
			}
			changed := false
			for _, name := range databaseNames(c.Component) {
				acc.Database = name
				made, err := admin.EnsureDatabase(ctx, snap, name)
				changed = changed || made
				if err != nil {
					return changed, in.foreign(err, c.Component)
				}
				granted, err := admin.EnsureAccount(ctx, snap, acc)
				changed = changed || granted
				if err != nil {
					return changed, in.foreign(err, c.Component)
				}
			}
			return changed, nil
		},
	}
}

// bootstrap returns the effects that make a fresh identity service usable, in the only order that it accepts: first policy and role, which are all that
// it permits at first, then the region. Its own endpoints and the common options follow.
func (in Input) bootstrap() []Effect {
	var out []Effect
	if in.Cluster.LoadBalancer != "" {
		out = append(out, Effect{
			Key: addressKnown, Component: identityName, Target: Identity, Stage: After, Once: true, Note: true, Hash: in.hash("address"), Do: nothing,
		})
	}
	return append(out, []Effect{{
		Key: v1alpha1.EffectServed, Component: identityName, Target: Identity, Stage: After, Needs: []string{identityName},
		Hash: in.hash("policy"), Do: in.bind(asAdmin(ensureAdminPolicy)),
	}, {
		Key: passwordTaken, Component: identityName, Target: Identity, Stage: After, Needs: []string{identityName}, Once: true,
		Hash: in.passwordHash(), Do: in.bind(asAdmin(checkAdminPassword)),
	}, {
		Key: "identity/region", Component: identityName, Target: Identity, Stage: After, Needs: []string{identityName}, Follows: []string{v1alpha1.EffectServed},
		Hash: in.hash("region", in.Cluster.Region), Do: in.bind(withCatalog(ensureRegion)),
	}}...)
}

// addressKnown is the key that records that the cloud has a public address.
const addressKnown = "identity/address"

// MayChooseAddress reports whether a cloud without an address in its spec may get one: a new cloud, or one that had an address. Any other has registered
// its public endpoints without, and a new address would restart its pods.
func MayChooseAddress(recorded map[string]string) bool {
	return recorded["endpoints/"+identityName] == "" || recorded[addressKnown] != ""
}

func (in Input) account(c component.Resolved) Effect {
	user, password := c.Account.User, in.Credentials[component.AccountPassword(c.Name)]
	return Effect{
		Key: "account/" + c.Name, Component: c.Name, Target: Identity, Stage: Before, Needs: []string{identityName},
		Hash: in.hash("account", user, password), Do: in.bind(withCatalog(ensureAccount(user, password))),
	}
}

// endpoints registers a component before its workload is created: a service reads the catalog when it starts. keystone's own endpoints follow once it
// serves: before, there is no catalog.
func (in Input) endpoints(c component.Resolved) Effect {
	records := in.records(c)
	e := Effect{
		Key: "endpoints/" + c.Name, Component: c.Name, Target: Identity, Stage: Before, Needs: []string{identityName},
		Hash: in.hash("endpoints", in.Cluster.Region, records, c.Register), Do: in.bind(withCatalog(ensureRecords(records, c.Register))),
	}
	if c.Name == identityName {
		e.Stage, e.Follows = After, []string{"identity/region"}
	}
	if slices.ContainsFunc(records, func(r Record) bool { return r.Certificate != "" }) {
		// Other services use such a service as soon as they find it, so it is registered once it serves. They read its certificate only when they start, so a
		// new one is stored before the identity service counts as available, for which their pods wait.
		if e.Stage = After; in.Recorded[e.Key] == "" || in.Recorded[e.Key] == in.retirement(c) {
			e.Needs = append(e.Needs, c.Name)
		} else {
			e.Component = identityName
		}
		e.Hash = in.hash("endpoints", in.Cluster.Region, records, c.Register, in.ClientCertificate)
	}
	return e
}

// retired disables the endpoints of a component that was registered and is now off. Its database and account stay.
func (in Input) retired(c component.Resolved) []Effect {
	key := "endpoints/" + c.Name
	if _, was := in.Recorded[key]; !was || len(c.Endpoints) == 0 {
		return nil
	}
	services := lists.Set(c.Endpoints, func(e component.Endpoint) string { return e.Service })
	return []Effect{{
		Key: key, Component: c.Name, Target: Identity, Stage: After, Needs: []string{identityName}, Hash: in.retirement(c),
		Do: in.bind(withCatalog(disableRecords(slices.Sorted(maps.Keys(services))))),
	}}
}

// retirement returns the hash that is recorded while a component is off.
func (in Input) retirement(c component.Resolved) string { return in.hash("retired", c.Name) }

func (in Input) setup(c component.Resolved, name string) Effect {
	t, ok := tasks[name]
	if !ok {
		t.do = func(context.Context, Clients, Input) (bool, error) {
			return false, fmt.Errorf("setup task %q of component %q does not exist", name, c.Name)
		}
	}
	e := t.Effect
	e.Key, e.Component, e.Stage, e.Do = "setup/"+name, c.Name, After, in.bind(t.do)
	e.Target, e.Needs = Target(c.Name), append([]string{identityName, c.Name}, t.asks...)
	if t.needs != nil {
		e.Needs = t.needs(in)
	}
	if len(t.asks) > 0 {
		e.Target = Target(t.asks[0])
	}
	switch k := in.Cluster; {
	case t.Once:
		e.Hash = in.setupHash(name, t.version)
	case t.wants != nil:
		e.Hash = in.setupHash(name, t.version, t.wants(in))
	default:
		e.Hash = in.setupHash(name, t.version, k.Region, k.Zone, k.Product, k.Edition, k.LoadBalancer, k.Spec.CustomZones)
	}
	if c.Name == identityName {
		e.Target, e.Follows = Identity, []string{"endpoints/" + identityName}
	}
	return e
}

// setupHash returns the hash of a setup task that depends on values.
func (in Input) setupHash(name string, version int, values ...any) string {
	return in.hash(append([]any{"setup", name, version}, values...)...)
}

func (in Input) bind(do doing) func(context.Context, Clients) (bool, error) {
	return func(ctx context.Context, cl Clients) (bool, error) { return do(ctx, cl, in) }
}

// Record is one catalog entry: a service and its addresses by interface.
type Record struct {
	Service, Type string
	URLs          map[string]string
	// Certificate is the name of the client certificate for the addresses, "" for none.
	Certificate string
}

// records computes the addresses of a component's catalog entries: the public one at the load balancer, the internal one at the Service. The admin
// interface of keystone is also public, as in the earlier operator.
func (in Input) records(c component.Resolved) []Record {
	var out []Record
	for _, e := range c.Endpoints {
		r := Record{Service: e.Service, Type: e.Type, URLs: map[string]string{}, Certificate: e.Certificate}
		interfaces := e.Interfaces
		if interfaces == nil {
			interfaces = []string{"public", "internal"}
			if c.Workload.ReadReplicas && c.ReadReplicas > 0 && !in.ReplicaDown[c.Name] {
				interfaces = append(interfaces, replicaInterface)
			}
		}
		for _, i := range interfaces {
			r.URLs[i] = in.url(c, e, i)
		}
		if at := slices.IndexFunc(out, func(o Record) bool { return o.Service == e.Service }); at >= 0 {
			for i, u := range r.URLs {
				out[at].URLs[i] = u
			}
			continue
		}
		out = append(out, r)
	}
	return out
}

func (in Input) url(c component.Resolved, e component.Endpoint, iface string) string {
	if e.URL != "" {
		return e.URL
	}
	host, port := in.Cluster.Object(c.Name)+e.ServiceSuffix, c.Port(e.Port)
	if e.ServiceSuffix != "" {
		port = furtherPort(c, e, iface)
	}
	switch iface {
	case "public", "admin":
		if in.Cluster.LoadBalancer != "" {
			host = in.Cluster.LoadBalancer
		}
	case replicaInterface:
		host += "-slave"
	}
	return cmp.Or(e.Scheme, "https") + "://" + net.JoinHostPort(host, strconv.Itoa(int(port))) + e.Path
}

// furtherPort returns a port of one of the component's further Services: the Service's port within the cluster, the node port outside.
func furtherPort(c component.Resolved, e component.Endpoint, iface string) int32 {
	for _, s := range c.Service.More {
		for _, p := range s.Ports {
			if s.NameSuffix == e.ServiceSuffix && p.Name == e.Port && iface != "public" {
				return p.Port
			}
		}
	}
	return c.NodePorts[e.ServiceSuffix+e.Port]
}
