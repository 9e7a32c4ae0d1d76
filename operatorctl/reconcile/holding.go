// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/engine"
	"yunion.io/x/ocadm/operatorctl/release"
)

// holding keeps a cloud at a release that this build would render differently: docs/decisions/0024-kept-releases.md.
type holding struct {
	// base is what this build renders from the inputs of the release, and from is those inputs.
	base *Desired
	from State
	// secret holds the release, released its objects by component; nil until needed.
	secret   *corev1.Secret
	released map[string][]release.Object
	scheme   *runtime.Scheme
}

// then returns the State that the release was rendered from, with the passwords of that time, or a placeholder for one that changed since.
func (s State) then(now component.Credentials) (past State, passwords component.Credentials, names map[string]string) {
	from := s.Releases.current.From
	past = State{
		Cloud: from.Cloud.DeepCopy(), Now: s.Now, Catalog: s.Catalog, Secrets: s.Secrets, Releases: releases{past: &from}, Done: nothingDone(),
		Live: Live{namespace: s.Live.namespace, instance: from.Instance, address: from.Address, objects: map[engine.Key]client.Object{}},
	}
	past.Cloud.Status.Effects = s.Cloud.Status.Effects
	for _, cm := range from.Options {
		past.Live.objects[coreKey("ConfigMap", s.Live.namespace, cm.Name)] = cm
	}
	for key, o := range s.Live.objects { // the files of the pods
		if key.GVK.Kind == "Secret" {
			past.Live.objects[key] = o
		}
	}
	past.Secrets.current.CertHash, past.Secrets.current.EtcdHash = from.CertHash, from.EtcdHash
	past.Secrets.current.Status.Supplied = from.CertSupplied
	if from.EtcdHash != s.Secrets.current.EtcdHash {
		past.Secrets.current.EtcdClient = identity.Certificate{}
	}
	passwords = component.Credentials{}
	for key, hash := range from.Credentials {
		if passwords[key] = now[key]; hashOf(s, now[key]) != hash {
			passwords[key] = "(changed since)"
		}
	}
	return past, passwords, from.CredentialNames
}

// adoptUnknown adds the components that only the release has.
func (h *holding) adoptUnknown(d *Desired) error {
	if err := h.read(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(h.released)) {
		if name != "" && d.component(name) == nil {
			c := component.Component{Name: name}
			d.Components = append(d.Components, &target{Resolved: component.Resolved{Component: c, Enabled: true}, foreign: true})
		}
	}
	return nil
}

func (h *holding) read() (err error) {
	if h.released == nil {
		h.released, err = objectsOf(h.secret)
	}
	return err
}

// holdComponent keeps a component as in its release. different is true if an update changes it.
func (h *holding) holdComponent(s State, d *Desired, c *target) (different bool, err error) {
	bare := c.wants // as this build renders it
	had := h.released[c.Name]
	if !c.Enabled {
		was := h.base.component(c.Name)
		if len(had) == 0 || was != nil && was.Enabled {
			return false, nil
		}
		c.Enabled, c.foreign = true, true
	}
	if c.err != nil {
		return false, nil //nolint:nilerr // the component reports it
	}
	c.objects = slices.Clip(c.objects)
	if c.objects, err = h.merge(s, c, c.objects); err != nil {
		return false, err
	}
	if c.wants, err = wantsOf(c.objects, absent(s, d, c)); err != nil {
		return false, err
	}
	c.showImage()
	if len(c.wants) == 0 && len(bare) > 0 {
		c.Enabled, c.DisabledReason = false, "will be enabled by the update of the cloud"
	}
	return !sameWants(bare, c.wants), nil
}

func (c *target) showImage() {
	for _, p := range c.objects {
		pod, _ := component.PodOf(p.Object)
		if job, is := p.Object.(*batchv1.CronJob); is {
			pod = &job.Spec.JobTemplate.Spec.Template.Spec
		}
		if p.role == roleWorkload && pod != nil && len(pod.Containers) > 0 {
			c.FullImage = cmp.Or(pod.Containers[0].Image, c.FullImage)
		}
	}
}

func sameWants(a, b []want) bool {
	hashes := lists.Index(a, func(w want) (engine.Key, string) { return w.key, w.hash })
	return len(a) == len(b) && !slices.ContainsFunc(b, func(w want) bool { return hashes[w.key] != w.hash })
}

func (d *Desired) render(s State, c *target) ([]piece, error) {
	if c.objects != nil {
		return c.objects, nil
	}
	var err error
	if !c.foreign && (c.Enabled || d.release.held == nil) {
		if c.objects, err = d.draw(s, c); err != nil {
			return nil, err
		}
	}
	if d.release.held != nil {
		c.objects, err = d.release.held.merge(s, c, c.objects)
	}
	return c.objects, err
}

// merge decides object by object: what no input changed stays as in the release.
func (h *holding) merge(s State, c *target, now []piece) ([]piece, error) {
	if err := h.read(); err != nil {
		return nil, err
	}
	var base []piece
	if was := h.base.component(c.Name); was != nil && was.Enabled {
		err := was.err
		if err == nil {
			base, err = h.base.render(h.from, was)
		}
		if err != nil { // the changes cannot be determined
			base = now
		}
	}
	had, order := map[engine.Key]release.Object{}, []engine.Key(nil)
	for _, o := range h.released[c.Name] {
		key := o.Key(s.Cloud.Namespace)
		had[key], order = o, append(order, key)
	}
	for _, p := range now {
		if key := engine.KeyOf(p); !slices.Contains(order, key) {
			order = append(order, key)
		}
	}
	var out []piece
	for _, key := range order {
		old, there := had[key]
		p, err := h.mergeOne(old, there, find(base, key), find(now, key))
		if err != nil {
			return nil, err
		}
		if p != nil {
			out = append(out, *p)
		}
	}
	return out, nil
}

func find(list []piece, key engine.Key) *piece {
	for i := range list {
		if engine.KeyOf(list[i]) == key {
			return &list[i]
		}
	}
	return nil
}

// mergeOne returns the desired object, nil if there is none.
func (h *holding) mergeOne(old release.Object, there bool, base, now *piece) (*piece, error) {
	switch {
	case now == nil && base != nil: // an input removed it
		return nil, nil //nolint:nilnil // documented
	case !there && base != nil: // this build adds it
		return nil, nil //nolint:nilnil // documented
	case !there || now != nil && base == nil: // an input adds it
		return now, nil
	}
	same := true
	if now != nil {
		b, err := engine.HashOf(base.Object)
		if err != nil {
			return nil, err
		}
		n, err := engine.HashOf(now.Object)
		if err != nil {
			return nil, err
		}
		if same = b == n; !same && b == old.Hash {
			return now, nil
		}
	}
	if !same {
		b, err := release.ObjectOf(old.Component, old.Role, "", base.Object)
		if err != nil {
			return nil, err
		}
		n, err := release.ObjectOf(old.Component, old.Role, "", now.Object)
		if err != nil {
			return nil, err
		}
		old.Content, old.Hash = release.Merge(old.Content, b.Content, n.Content), ""
	}
	return h.piece(old)
}

// piece returns an object of the release, to be applied under its hash there, if it still has one.
func (h *holding) piece(o release.Object) (*piece, error) {
	typed, err := engine.Typed(h.scheme, o.Key("").GVK, o.Content)
	if err != nil {
		return nil, fmt.Errorf("reading %s %q of a release: %w", o.Kind, o.Name, err)
	}
	if o.Hash != "" {
		engine.ApplyAs(typed, o.Hash)
	}
	return &piece{Object: typed, role: role(o.Role)}, nil
}

func keyAndHash(e effects.Effect) (key, hash string) { return e.Key, e.Hash }

// holdEffects keeps effects as in the release: differences of this build alone come with the update. This build completes what the release has not
// finished.
func (h *holding) holdEffects(s State, d *Desired, pending map[string]bool) []effects.Effect {
	base := lists.Index(h.base.Effects, keyAndHash)
	had := func(key string) string { return cmp.Or(s.Releases.current.Effects[key], s.Cloud.Status.Effects[key]) }
	for key, hash := range d.release.calm {
		if before, there := h.base.release.calm[key]; there && before == hash {
			d.release.calm[key] = had(key)
		}
	}
	maps.DeleteFunc(d.release.calm, func(_, hash string) bool { return hash == "" })
	off := lists.Index(d.Components, func(c *target) (string, bool) { return c.Name, !c.Enabled })
	var out []effects.Effect
	dropped := map[string]bool{}
	for _, e := range d.Effects {
		// What retires a component that is off is never left to an update: the cloud may have been rolled back to a release without it.
		if before, there := base[e.Key]; there && before == e.Hash && !off[e.Component] {
			hash := had(e.Key)
			if hash == "" {
				dropped[e.Key], pending[e.Component] = true, true
				continue
			}
			if hash != e.Hash { // an audit would apply this build's version
				e.Hash, e.Once, pending[e.Component] = hash, true, true
			}
		}
		out = append(out, e)
	}
	unfollow(out, dropped)
	return out
}

// unfollow removes dropped effects from what others wait for.
func unfollow(list []effects.Effect, dropped map[string]bool) {
	for i := range list {
		list[i].Follows = slices.DeleteFunc(slices.Clone(list[i].Follows), func(key string) bool { return dropped[key] })
	}
}

// holdDefaults keeps the defaults in the spec.
func (h *holding) holdDefaults(d *Desired, pending map[string]bool) error {
	for _, o := range h.released[""] {
		merged := release.Merge(o.Content, h.base.Defaults.Object, d.Defaults.Object)
		before, err := engine.Hash(d.Defaults.Object)
		if err != nil {
			return err
		}
		after, err := engine.Hash(merged)
		if err != nil {
			return err
		}
		pending["defaults"] = before != after
		d.Defaults = d.Defaults.DeepCopy()
		d.Defaults.Object = merged
	}
	return nil
}

// hashOf returns a salted hash of a secret, which reveals nothing about it.
func hashOf(s State, secret string) string {
	return engine.Salted(string(s.Cloud.UID), []byte(secret))
}

// objectsOf returns the objects of the release in a Secret, by component.
func objectsOf(secret *corev1.Secret) (map[string][]release.Object, error) {
	full, err := release.Decode(secret)
	if err != nil {
		return nil, err
	}
	out := map[string][]release.Object{}
	for _, o := range full.Objects {
		out[o.Component] = append(out[o.Component], o)
	}
	return out, nil
}
