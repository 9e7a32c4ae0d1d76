// SPDX-License-Identifier: Apache-2.0

package operatorctl

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
)

// known is what a pass worked out, kept for the next one. Each part holds as long as what it was made of is the same, which the hash beside
// it tells. Losing it costs a few milliseconds: it is dropped when the operator rests.
type known struct {
	// read is what cluster was resolved from.
	read    string
	owned   *resolve.Owned
	cluster component.Cluster
	// from is what the components were rendered and the effects planned from.
	from     string
	rendered map[string]rendered
	plan     []effects.Effect
	// secrets are what certs were read from.
	secrets string
	certs   certificates
}

// rendered is what is to be remembered of the objects of a component: which ones there are, under which hash they are applied. The objects
// themselves are made again when one has to be written or compared.
type rendered struct {
	wants   []want
	err     error
	invalid string
}

// want is an object that a component is to have.
type want struct {
	key  engine.Key
	hash string
	role role
}

// role tells when an object is applied.
type role int

const (
	// roleBase are configuration, secrets, claims, Services, Ingresses.
	roleBase role = iota
	// roleWorkload is the workload, roleTwin a copy of it.
	roleWorkload
	roleTwin
)

// wantsOf lists what was rendered.
func wantsOf(o component.Objects) ([]want, error) {
	var out []want
	add := func(r role, list ...client.Object) error {
		for _, obj := range list {
			hash, err := engine.HashOf(obj)
			if err != nil {
				return err
			}
			out = append(out, want{key: engine.KeyOf(obj), hash: hash, role: r})
		}
		return nil
	}
	if err := add(roleBase, base(o)...); err != nil {
		return nil, err
	}
	if o.Workload != nil {
		if err := add(roleWorkload, o.Workload); err != nil {
			return nil, err
		}
	}
	return out, add(roleTwin, o.Twins...)
}

// object finds what was rendered for a want.
func object(o component.Objects, w want) client.Object {
	for _, obj := range render.List(o) {
		if engine.KeyOf(obj) == w.key {
			return obj
		}
	}
	return nil
}

// workloadWant is the workload a component is to have; ok is false if it has none.
func (c *part) workloadWant() (w want, ok bool) {
	for _, w := range c.wants {
		if w.role == roleWorkload {
			return w, true
		}
	}
	return want{}, false
}

// resolvedFrom is a hash of everything that the resolved cloud, and its defaults, depend on: the spec, who owns which of its fields, and what
// was chosen before. Annotations of others change nothing.
func (p *pass) resolvedFrom() string {
	h := sha256.New()
	fmt.Fprintln(h, p.cr.UID, p.cr.Generation, p.address, resolve.LastImages(&p.cr.Status), p.names, p.live.instance)
	for _, key := range slices.Sorted(maps.Keys(p.cr.Annotations)) {
		if strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") {
			fmt.Fprintf(h, "%s=%q\n", key, p.cr.Annotations[key])
		}
	}
	for _, m := range p.cr.ManagedFields {
		if m.Subresource == "" && m.FieldsV1 != nil && strings.Contains(m.FieldsV1.GetRawString(), `"f:spec"`) {
			fmt.Fprintln(h, m.Manager, m.Operation)
			_, _ = io.Copy(h, m.FieldsV1.GetRawReader()) // neither end can fail
		}
	}
	return string(h.Sum(nil))
}

// renderedFrom is a hash of everything that objects and effects are made of besides the resolved cloud: secrets, certificates, what people put
// into the ConfigMaps, what the pods have; "" if something of it could not be read in this pass.
func (p *pass) renderedFrom() string {
	h := sha256.New()
	fmt.Fprintf(h, "%x %s %s %v\n", p.known.read, p.certs.certHash, p.certs.etcdHash, p.passwordTaken())
	for _, key := range slices.Sorted(maps.Keys(p.creds)) {
		fmt.Fprintf(h, "%s=%q\n", key, p.creds[key])
	}
	for _, c := range p.parts {
		if c.err != nil {
			return ""
		}
		fmt.Fprint(h, c.Name, " ")
		if cm := p.configMap(c.Name); cm != nil {
			fmt.Fprint(h, cm.UID, cm.ResourceVersion)
		}
		if s := p.composedSecret(c); s != nil {
			fmt.Fprint(h, " ", s.UID, s.ResourceVersion)
		}
		if p.replicaDown(c) {
			fmt.Fprint(h, " replica down")
		}
		if n := p.absent(c); n > 0 {
			fmt.Fprint(h, " absent ", n)
		}
		// What the plan looks up in the record: whether it was registered, whether its options were stored.
		fmt.Fprintln(h, " ", p.cr.Status.Effects["endpoints/"+c.Name] != "", p.cr.Status.Effects["options/"+c.Name] != "", p.cr.Status.Effects["clickhouse/"+c.Name] != "")
	}
	return string(h.Sum(nil))
}

// recall takes over what the pass before has rendered and planned, if it was made of the same.
func (p *pass) recall(from string) bool {
	if from == "" || p.known.from != from {
		return false
	}
	for _, c := range p.parts {
		r := p.known.rendered[c.Name]
		c.wants, c.err, c.invalid = r.wants, r.err, r.invalid
	}
	p.plan = p.known.plan
	return true
}

// remember keeps what was rendered and planned.
func (p *pass) remember(from string) {
	p.known.from, p.known.plan, p.known.rendered = from, p.plan, map[string]rendered{}
	for _, c := range p.parts {
		p.known.rendered[c.Name] = rendered{wants: c.wants, err: c.err, invalid: c.invalid}
	}
}

// secretsFrom is a hash of the versions of the Secrets that certificates are read from, and of what they have to hold; "" where one is missing.
func (p *pass) secretsFrom() string {
	h := sha256.New()
	fmt.Fprintln(h, p.cr.UID, p.cr.Generation, p.address, p.m.served)
	names := []string{p.cr.Name + "-" + v1alpha1.SecretCerts}
	for _, role := range []string{"server", "peer", "client"} {
		names = append(names, p.etcdSecret(role))
	}
	for _, name := range names {
		s := p.live.secret(name)
		if s == nil || isSupplied(s) {
			return ""
		}
		fmt.Fprintln(h, s.UID, s.ResourceVersion)
	}
	return string(h.Sum(nil))
}
