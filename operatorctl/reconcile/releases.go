// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/version"
	"yunion.io/x/ocadm/operatorctl/adopt"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/resolve"
	"yunion.io/x/ocadm/operatorctl/secrets"
)

// record stores what is about to be applied as the next release. It does nothing if that is the release in force.
func (a actor) record(ctx context.Context, m *cloud, s State, d *Desired) (State, error) {
	next, err := repeated(s)
	again := next != nil
	switch {
	case err != nil || s.Releases.rollout != nil && s.Releases.rollout.Hold:
		return s, err
	case again:
	case s.Releases.current != nil && d.release.recorded == s.Releases.current.Revision && !s.Releases.asked:
		return s, nil
	default:
		next, err = nextRelease(s, d)
	}
	if err != nil {
		return s, err
	}
	if next == nil {
		d.release.recorded = s.Releases.current.Revision
		return s, nil
	}
	secret, err := next.Secret(metav1.ObjectMeta{Name: s.Cloud.Name, Namespace: s.Cloud.Namespace, Labels: labels(s)})
	if err != nil {
		return s, err
	}
	changes, err := a.applier.Apply(ctx, []client.Object{own(s.Cloud, secret)})
	if err != nil {
		return s, fmt.Errorf("saving release %d: %w", next.Revision, err)
	}
	kept, ok := changes[0].Object.(*corev1.Secret)
	if !ok {
		return s, fmt.Errorf("saving release %d: Secret %q already exists", next.Revision, secret.Name)
	}
	s.Live.objects[engine.KeyOf(secret)] = kept
	s.Releases.kept[next.Revision], s.Releases.current, s.Releases.asked = kept, next.Index(), false
	m.memos.index.keep(string(kept.UID)+"/"+kept.ResourceVersion, s.Releases.current)
	if again { // its objects are rendered again
		s.Releases.rollout.repeated = true
		m.memos.desired.drop()
		return s, nil
	}
	if d.release.recorded = next.Revision; d.release.held == nil {
		m.own, s.Releases.free = next.Revision, true
	} else {
		d.release.held.secret = kept
		m.memos.desired.drop()
	}
	a.log(s).Info("release", "revision", next.Revision, "why", strings.Join(next.Why, "; "))
	return s, nil
}

// repeated returns the next release if it must repeat an earlier one, nil if not, or if that is done.
func repeated(s State) (*release.Release, error) {
	if s.Releases.rollout == nil || s.Releases.rollout.Hold || s.Releases.rollout.Of == 0 || s.Releases.rollout.repeated {
		return nil, nil //nolint:nilnil // documented
	}
	secret := s.Releases.kept[s.Releases.rollout.Of]
	if secret == nil {
		return nil, fmt.Errorf("operation %s: release %d no longer exists", s.Releases.rollout.operation, s.Releases.rollout.Of)
	}
	next, err := release.Decode(secret)
	if err != nil {
		return nil, err
	}
	next.Summary = release.Summary{
		Revision: nextRevision(s), Time: metav1.NewTime(s.Now), Version: next.Version, Operator: next.Operator, By: s.Releases.rollout.operation, Of: s.Releases.rollout.Of,
		Why: []string{"rollback to release " + strconv.Itoa(s.Releases.rollout.Of) + ", operation " + s.Releases.rollout.operation},
	}
	return next, nil
}

// nextRelease returns what is about to be applied if it differs from the release in force, otherwise nil. It is pure.
func nextRelease(s State, d *Desired) (*release.Release, error) {
	n := &release.Release{
		Summary:  release.Summary{Time: metav1.NewTime(s.Now), Version: d.Cluster.Version, Operator: version.Version},
		Contents: release.Contents{Catalog: s.Catalog.names, Names: certificateNames(s), From: rendered(s, d), Effects: d.release.calm},
	}
	if s.Releases.current != nil && !s.Releases.free {
		n.Catalog, n.Operator = s.Releases.current.Catalog, s.Releases.current.Operator
	}
	if err := keepObjects(s, d, n); err != nil {
		return nil, err
	}
	// An update always makes a release: moving to the next build must be requested again.
	if s.Releases.current != nil && !s.Releases.asked && !changed(s.Releases.current, n) {
		return nil, nil //nolint:nilnil // documented
	}
	n.Revision = nextRevision(s)
	if n.By, n.Why = reasons(s, n); s.Releases.rollout != nil {
		n.By, n.Why = s.Releases.rollout.operation, append(n.Why, "operation "+s.Releases.rollout.operation)
	}
	return n, nil
}

// nextRevision returns the revision after the one in force, which may be lost, and after those of a deleted cloud with this name.
func nextRevision(s State) int {
	next := s.Cloud.Status.Release.Revision + 1
	for _, o := range s.Live.objects {
		next = max(next, release.Revision(o)+1)
	}
	return next
}

// changed reports whether objects or effects of two releases differ.
func changed(a, b *release.Release) bool {
	return len(a.Objects) != len(b.Objects) || len(differing(a, b)) > 0
}

// differing returns the sorted names of the objects and effects of a release that are not as in an earlier one.
func differing(a, b *release.Release) (keys []string) {
	hashes := lists.Index(a.Objects, func(o release.Object) (string, string) { return o.Kind + "/" + o.Name, o.Hash })
	for _, o := range b.Objects {
		if key := o.Kind + "/" + o.Name; hashes[key] != o.Hash {
			keys = append(keys, key)
		}
	}
	for key, hash := range b.Effects {
		if was, there := a.Effects[key]; there && was != hash {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// rendersRelease reports whether this build, which has the components of a catalog, renders exactly the release in force. Without this check, a new
// operator would render each cloud twice.
func rendersRelease(s State, d *Desired, catalog []string) (bool, error) {
	current := s.Releases.current
	defaults, err := engine.Hash(d.Defaults.Object)
	if err != nil {
		return false, err
	}
	drawn := &release.Release{}
	drawn.Objects = append(drawn.Objects, release.Object{Hash: defaults, Kind: d.Defaults.GetKind(), Name: d.Defaults.GetName()})
	for _, c := range d.Components {
		if c.Enabled && c.err != nil {
			return false, nil //nolint:nilerr // the component reports it
		}
		for _, w := range c.wants {
			drawn.Objects = append(drawn.Objects, release.Object{Hash: w.hash, Kind: w.key.GVK.Kind, Name: w.key.Name})
		}
	}
	done := func(key, hash string) bool { return cmp.Or(current.Effects[key], s.Cloud.Status.Effects[key]) == hash }
	undone := maps.Clone(d.release.calm)
	maps.DeleteFunc(undone, done)
	return !changed(current, drawn) && len(undone) == 0 && !slices.ContainsFunc(d.Effects, func(e effects.Effect) bool { return !done(e.Key, e.Hash) }) &&
		!slices.ContainsFunc(catalog, func(name string) bool { return !slices.Contains(current.Catalog, name) }), nil
}

// keepObjects adds the objects to a release. A component that cannot be rendered keeps its previous ones.
func keepObjects(s State, d *Desired, n *release.Release) error {
	hash, err := engine.Hash(d.Defaults.Object)
	if err != nil {
		return err
	}
	n.Objects = append(n.Objects, release.Object{
		Hash: hash, APIVersion: d.Defaults.GetAPIVersion(), Kind: d.Defaults.GetKind(), Name: d.Defaults.GetName(), Content: d.Defaults.Object,
	})
	var full *release.Release
	for _, c := range d.Components {
		switch {
		case c.err != nil && s.Releases.current != nil:
			if full == nil {
				if full, err = release.Decode(s.Releases.kept[s.Releases.current.Revision]); err != nil {
					return err
				}
			}
			n.Objects = append(n.Objects, lists.Filter(full.Objects, func(o release.Object) bool { return o.Component == c.Name })...)
			continue
		case !c.Enabled || c.err != nil:
			continue
		}
		pieces, err := d.render(s, c)
		if err != nil {
			return err
		}
		for i, w := range c.wants {
			o, err := release.ObjectOf(c.Name, int(w.role), w.hash, pieces[i].Object)
			if err != nil {
				return err
			}
			n.Objects = append(n.Objects, o)
		}
	}
	return nil
}

func rendered(s State, d *Desired) release.From {
	f := release.From{
		Cloud:       &v1alpha1.OnecloudCluster{TypeMeta: s.Cloud.TypeMeta, ObjectMeta: *s.Cloud.ObjectMeta.DeepCopy(), Spec: *s.Cloud.Spec.DeepCopy()},
		Credentials: map[string]string{}, CertHash: d.Certificates.CertHash, EtcdHash: d.Certificates.EtcdHash,
		Address: s.Live.address, Instance: s.Live.instance, PasswordTaken: d.passwordTaken, CertSupplied: d.Certificates.Status.Supplied,
	}
	f.Cloud.Status.Components = lists.Map(s.Cloud.Status.Components, func(c v1alpha1.ComponentStatus) v1alpha1.ComponentStatus {
		return v1alpha1.ComponentStatus{Name: c.Name, Image: c.Image, Pinned: c.Pinned}
	})
	_, f.CredentialNames = secrets.Split(s.Secrets.credentials)
	for key, password := range d.Credentials {
		f.Credentials[key] = hashOf(s, password)
	}
	f.Options = lists.Pick(d.Components, func(c *target) (*corev1.ConfigMap, bool) {
		cm := d.configMap(s, c.Name)
		return cm, render.Chosen(cm) != nil
	})
	return f
}

// unrelated lists annotations of a cloud that are about its updates, or that the operator sets.
var unrelated = []string{v1alpha1.AnnotationUpdateFrom, v1alpha1.AnnotationAtOnce, v1alpha1.AnnotationDefaultImages}

// reasons returns who changed the spec, and the changes since the last release.
func reasons(s State, n *release.Release) (by string, why []string) {
	if gone := s.Cloud.Status.Release.Revision; s.Releases.current == nil && gone > 0 {
		return lastEditor(s.Cloud), []string{fmt.Sprintf("release %d is lost", gone)}
	} else if s.Releases.current == nil {
		return "", []string{"first release"}
	}
	then := s.Releases.current.From
	annotations := func(c *v1alpha1.OnecloudCluster) map[string]any {
		out := map[string]any{}
		for k, v := range c.Annotations {
			if strings.HasPrefix(k, v1alpha1.GroupVersion.Group+"/") && !slices.Contains(unrelated, k) {
				out[k] = v
			}
		}
		return out
	}
	options := func(list []*corev1.ConfigMap) map[string]any {
		return lists.Index(list, func(cm *corev1.ConfigMap) (string, any) {
			of := map[string]any{}
			for k, v := range render.Chosen(cm) {
				of[k] = v
				if k == adopt.ConfigKey { // a whole file: the earlier operator's has passwords
					of[k] = "file " + hashOf(s, v)
				}
			}
			return cm.Name, of
		})
	}
	differ := func(what string, before, after map[string]any) {
		why = append(why, lists.Map(release.Fields(before, after), func(f release.FieldDiff) string { return what + f.String() })...)
	}
	if differ("spec.", Chosen(then.Cloud), Chosen(s.Cloud)); len(why) > 0 {
		by = lastEditor(s.Cloud)
	}
	differ("annotation ", annotations(then.Cloud), annotations(s.Cloud))
	differ("ConfigMap ", options(then.Options), options(n.From.Options))
	for _, key := range slices.Sorted(maps.Keys(n.From.Credentials)) {
		if was, there := then.Credentials[key]; there && was != n.From.Credentials[key] {
			why = append(why, component.NewSecret(key))
		}
	}
	for _, one := range []struct {
		is   bool
		text string
	}{
		{then.CertHash != n.From.CertHash || then.EtcdHash != n.From.EtcdHash || then.CertSupplied != n.From.CertSupplied, "certificates"},
		{then.PasswordTaken != n.From.PasswordTaken, "the administrator's password is set"},
		{s.Releases.current.Operator != n.Operator, fmt.Sprintf("operator %s → %s", s.Releases.current.Operator, n.Operator)},
	} {
		if one.is {
			why = append(why, one.text)
		}
	}
	if len(why) == 0 {
		why = []string{"update to operator " + n.Operator}
		if keys := differing(s.Releases.current, n); !s.Releases.asked && n.Operator == s.Releases.current.Operator && len(keys) > 0 { // they depend on nodes, too
			why = []string{"changed inputs of " + strings.Join(keys, ", ")}
		}
	}
	return by, why
}

// Chosen returns the fields of the spec that are not defaults.
func Chosen(cloud *v1alpha1.OnecloudCluster) map[string]any {
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&cloud.Spec)
	owned, unknown := resolve.NewOwned(cloud)
	if err != nil || unknown != nil {
		return nil // cannot happen: it was resolved
	}
	return pick(spec, nil, owned)
}

func pick(m map[string]any, path []string, owned *resolve.Owned) map[string]any {
	out := map[string]any{}
	for k, v := range m {
		at := append(slices.Clone(path), k)
		if child, isMap := v.(map[string]any); isMap {
			if child = pick(child, at, owned); len(child) > 0 {
				out[k] = child
			}
		} else if owned.Has(at...) {
			out[k] = v
		}
	}
	return out
}

// lastEditor returns the field manager that last changed the spec.
func lastEditor(cloud *v1alpha1.OnecloudCluster) (name string) {
	var last metav1.Time
	for _, m := range cloud.ManagedFields {
		if m.Manager != v1alpha1.ManagerDefaults && m.Subresource == "" && m.Time != nil && !m.Time.Before(&last) {
			name, last = m.Manager, *m.Time
		}
	}
	return name
}

// wayBack returns the latest kept release of another version, 0 if there is none. The last update left it, and the copies of the databases are for it:
// changes of options since then must not push it out.
func wayBack(s State, revisions []int) int {
	for _, revision := range slices.Backward(revisions) {
		one, err := release.DecodeSummary(s.Releases.kept[revision])
		if err == nil && s.Releases.current != nil && one.Version != s.Releases.current.Version {
			return revision
		}
	}
	return 0
}
