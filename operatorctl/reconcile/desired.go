// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/operatorctl/secrets"
)

// Desired is the desired state of a cloud.
type Desired struct {
	Cluster      component.Cluster
	Credentials  component.Credentials
	Certificates secrets.Certificates
	// Defaults are those in the spec; defaultsDue is true if they must be written.
	Defaults    *unstructured.Unstructured
	defaultsDue bool
	// Notices lists the fields of the spec that have no effect.
	Notices []resolve.Notice
	// Components are in dependency order, enabled or not.
	Components []*target
	Effects    []effects.Effect

	catalog catalogue
	release toRelease
	// passwordTaken is true if the identity service had the administrator's password when this was resolved.
	passwordTaken bool
	// options holds what users put into the ConfigMaps; nil until something is rendered.
	options *userOptions
}

// toRelease relates the desired state to the kept releases.
type toRelease struct {
	// held keeps the cloud at its release, nil if what this build renders may be applied. pending lists the components that an update changes.
	held    *holding
	pending []string
	// calm holds the hashes of the effects while nothing is wrong; recorded is the revision of the release that equals the desired state.
	calm     map[string]string
	recorded int
}

// resolve computes the desired state from the State alone, and reuses its result for an equal State.
func (r *Reconciler) resolve(ctx context.Context, m *cloud, s State) (*Desired, error) {
	passwords, names := secrets.Split(s.Secrets.credentials)
	passwords[component.AdminPassword] = s.Cloud.Spec.MySQL.Password // the administrators' passwords are only here to be redacted from messages
	if pw := s.Cloud.Spec.Clickhouse.Password; pw != "" {
		passwords[component.ClickHouseAdminPassword] = pw
	}
	d, err := m.memos.desired.get(desiredFrom(s, passwords, names), func() (*Desired, error) {
		d, err := r.draft(ctx, m, s, passwords, names)
		if err == nil && s.Releases.current != nil && !s.Releases.free {
			err = r.hold(ctx, m, s, d)
		}
		if err != nil {
			return nil, err
		}
		hold, err := engine.AppliedBy(s.Cloud, v1alpha1.ManagerDefaults, d.Defaults)
		d.defaultsDue = !hold
		return d, err
	})
	if err != nil {
		return nil, err
	}
	d.Certificates = s.Secrets.current // their renewal time and status may change even if they do not
	if s.Done.Refused {
		m.memos.desired.drop() // something failed to be read
	}
	return d, nil
}

// hold replaces what this build renders by the content of the release, with the changes of the inputs since then.
func (r *Reconciler) hold(ctx context.Context, m *cloud, s State, d *Desired) error {
	switch equal, err := rendersRelease(s, d, r.acts.catalog.names); {
	case err != nil:
		return err
	case equal:
		m.own = s.Releases.current.Revision
		return nil
	}
	from, passwords, names := s.then(d.Credentials)
	base, err := r.draft(ctx, m, from, passwords, names)
	if err != nil {
		return fmt.Errorf("rendering release %d: %w", s.Releases.current.Revision, err)
	}
	h := &holding{base: base, from: from, secret: s.Releases.kept[s.Releases.current.Revision], scheme: r.reads.scheme}
	d.release.held = h
	if err := h.adoptUnknown(d); err != nil {
		return err
	}
	pending := lists.Index(r.acts.catalog.names, func(name string) (string, bool) { return name, !slices.Contains(s.Releases.current.Catalog, name) })
	for _, c := range d.Components {
		different, err := h.holdComponent(s, d, c)
		if err != nil {
			return err
		}
		pending[c.Name] = different
	}
	d.Effects = h.holdEffects(s, d, pending)
	if err := h.holdDefaults(d, pending); err != nil {
		return err
	}
	d.release.pending = lists.Filter(slices.Sorted(maps.Keys(pending)), func(name string) bool { return pending[name] })
	if len(d.release.pending) == 0 {
		d.release.held, m.own = nil, s.Releases.current.Revision
	}
	return nil
}

// draft returns what this build makes of a State.
func (r *Reconciler) draft(ctx context.Context, m *cloud, s State, passwords component.Credentials, names map[string]string) (*Desired, error) {
	d, err := r.resolveCloud(ctx, m, s, names)
	if err != nil {
		return nil, err
	}
	d.Credentials, d.Certificates, d.catalog, d.passwordTaken = passwords, s.Secrets.current, s.Catalog, s.passwordTaken()
	d.Components = lists.Map(d.catalog.order, func(name string) *target {
		return &target{Resolved: d.Cluster.Components[name], paused: s.Paused.components[name], err: s.outcome(name).err}
	})
	renderAll(s, d)
	s.Releases.past = cmp.Or(s.Releases.past, &release.From{})
	d.release.calm = lists.Index(planEffects(s, d), keyAndHash)
	return d, nil
}

// dropObjects drops the rendered objects, which would double the memory. They are rendered again for the next write or comparison.
func (d *Desired) dropObjects() {
	d.options = nil
	for _, c := range d.Components {
		c.objects = nil
	}
	if d.release.held != nil {
		d.release.held.released = nil
		d.release.held.base.dropObjects()
	}
}

// desiredFrom returns a hash of all inputs of the desired state: the spec and the owners of its fields, earlier choices, secrets, certificates, the
// options of users in ConfigMaps, the files of the pods.
func desiredFrom(s State, passwords component.Credentials, names map[string]string) string {
	h := sha256.New()
	if s.Releases.current != nil && !s.Releases.free {
		fmt.Fprintln(h, "held", s.Releases.current.Revision)
	}
	fmt.Fprintln(h, s.Cloud.UID, s.Cloud.Generation, s.Cloud.Spec.Version, s.address(), resolve.LastImages(&s.Cloud.Status), names, s.Live.instance,
		s.Secrets.current.CertHash, s.Secrets.current.EtcdHash, s.Secrets.current.Status.Supplied, s.passwordTaken())
	for _, key := range slices.Sorted(maps.Keys(s.Cloud.Annotations)) {
		if strings.HasPrefix(key, v1alpha1.GroupVersion.Group+"/") {
			fmt.Fprintf(h, "%s=%q\n", key, s.Cloud.Annotations[key])
		}
	}
	for _, m := range s.Cloud.ManagedFields {
		if m.Subresource == "" && m.FieldsV1 != nil && strings.Contains(m.FieldsV1.GetRawString(), `"f:spec"`) {
			fmt.Fprintln(h, m.Manager, m.Operation)
			_, _ = io.Copy(h, m.FieldsV1.GetRawReader()) // neither side can fail
		}
	}
	for _, key := range slices.Sorted(maps.Keys(passwords)) {
		fmt.Fprintf(h, "%s=%q\n", key, passwords[key])
	}
	recorded := onRecord(s.Cloud)
	d := &Desired{Cluster: component.Cluster{Namespace: s.Cloud.Namespace, Name: s.Cloud.Name}}
	for _, one := range s.Catalog.components {
		c := &target{Resolved: component.Resolved{Component: one}}
		fmt.Fprint(h, one.Name, " ")
		for _, o := range []client.Object{d.configMap(s, one.Name), d.composedSecret(s, c)} {
			fmt.Fprint(h, o.GetUID(), o.GetResourceVersion(), " ")
		}
		// The records that the plan of effects reads: whether the service was registered, whether its options were stored.
		fmt.Fprintln(h, lastWords(s, c), leftState(s, d, c), one.Workload.ReadReplicas && !replicasAnswer(s, d, one.Name), absent(s, d, c),
			recorded["endpoints/"+one.Name] != "", recorded["options/"+one.Name] != "", recorded["clickhouse/"+one.Name] != "")
	}
	return string(h.Sum(nil))
}

func (r *Reconciler) resolveCloud(ctx context.Context, m *cloud, s State, names map[string]string) (*Desired, error) {
	owned, err := resolve.NewOwned(s.Cloud)
	if err != nil {
		return nil, fmt.Errorf("reading the owners of the spec fields: %w", err)
	}
	facts := resolve.Facts{
		Components: s.Catalog.components, Owned: owned, LastImages: resolve.LastImages(&s.Cloud.Status), Images: s.Catalog.images,
		Names: names, Instance: s.Live.instance, Address: s.address(),
	}
	judged := &judgement{}
	if s.Releases.past == nil {
		judged, err = m.memos.judged.get(judgedSpec{s.Cloud.UID, s.Cloud.Generation}, func() (*judgement, error) {
			checked := r.options.SpecsChecked && (m.valid || s.Cloud.CreationTimestamp.After(r.started))
			return judge(ctx, s.Cloud, facts, checked)
		})
		if err != nil {
			return nil, fmt.Errorf("checking the spec: %w", err)
		}
		m.valid = judged.whole == nil && len(judged.blocks) == 0
	}
	if judged.whole != nil {
		return nil, &invalidSpec{judged.whole}
	}
	d := &Desired{Notices: judged.ignored}
	// Effects that continue after a reconcile must not share the cloud with it.
	if d.Cluster, err = resolve.Cluster(s.Cloud.DeepCopy(), facts); err != nil {
		return nil, &invalidSpec{err}
	}
	judged.blame(d.Cluster.Components)
	if d.Defaults, err = resolve.Defaults(s.Cloud, d.Cluster, owned); err != nil {
		return nil, fmt.Errorf("determining the defaults: %w", err)
	}
	return d, nil
}

// renderAll renders every enabled component and plans the effects. A component that cannot be rendered does not fail the cloud.
func renderAll(s State, d *Desired) {
	d.options = readOptions(s, d)
	for _, c := range d.Components {
		if c.Enabled && c.err == nil && c.Problem != "" {
			c.err = errors.New(c.Problem)
		}
		if c.Enabled && c.err == nil {
			if c.objects, c.err = d.draw(s, c); c.err == nil {
				c.wants, c.err = wantsOf(c.objects, absent(s, d, c))
			}
		}
		c.invalid = d.options.invalid[c.Name]
	}
	d.Effects = planEffects(s, d)
}
