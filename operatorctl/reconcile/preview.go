// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/effects"
	"yunion.io/x/ocadm/operatorctl/release"
	"yunion.io/x/ocadm/operatorctl/render"
	"yunion.io/x/ocadm/operatorctl/secrets"
)

// Preview is what an operator of this build would make of a cloud.
type Preview struct {
	// Now is the release in force, empty if there is none. Next is the one that would follow it.
	Now, Next *release.Release
	// Redact removes the secrets of the cloud from a text.
	Redact func(string) string
}

// PreviewOf reads everything but the resource of the cloud itself from c, and from direct what must bypass a cache. It only uses the options that
// affect the result: the operator's image, and whether there are nodes and operations. It writes nothing.
func PreviewOf(ctx context.Context, c client.Client, direct client.Reader, o Options, cr *v1alpha1.OnecloudCluster) (Preview, error) {
	r, err := New(c, direct, nil, Options{Audit: -1, Components: o.Components, Image: o.Image, WithoutNodes: o.WithoutNodes, Operations: o.Operations,
		AtOnce: true})
	if err != nil {
		return Preview{}, err
	}
	return r.preview(ctx, &cloud{effects: effects.NewMemory()}, cr)
}

func (r *Reconciler) preview(ctx context.Context, m *cloud, cr *v1alpha1.OnecloudCluster) (Preview, error) {
	cr = cr.DeepCopy()
	if all, _ := v1alpha1.Paused(cr.Annotations[v1alpha1.AnnotationPaused]); all {
		delete(cr.Annotations, v1alpha1.AnnotationPaused) // it shows what follows the pause
	}
	s, err := r.reads.gatherOf(ctx, m, cr)
	if err != nil {
		return Preview{}, err
	}
	out := Preview{Now: &release.Release{}}
	if s.Releases.current != nil {
		if out.Now, err = release.Decode(s.Releases.kept[s.Releases.current.Revision]); err != nil {
			return Preview{}, err
		}
	}
	before, after, err := s.imagine(planPreparation(s))
	if err != nil {
		return Preview{}, err
	}
	d, err := r.resolve(ctx, m, s)
	if err != nil {
		return Preview{}, err
	}
	out.Redact = func(text string) string { return redact(text, d.Credentials) }
	out.Next, err = nextRelease(s, d)
	out.Next = cmp.Or(out.Next, out.Now)
	now, next := *out.Now, *out.Next
	if !d.defaultsDue { // a default that a user owns is not written
		now.Objects, next.Objects = withoutDefaults(now.Objects), withoutDefaults(next.Objects)
	}
	now.Objects, next.Objects = append(before, s.withoutOptions(now.Objects)...), append(after, s.withoutOptions(next.Objects)...)
	now.Effects = s.Cloud.Status.Effects // effects of a disabled component count, too
	out.Now, out.Next = &now, &next
	return out, err
}

// withoutDefaults removes the defaults in the resource of the cloud.
func withoutDefaults(objects []release.Object) []release.Object {
	return slices.DeleteFunc(slices.Clone(objects), func(o release.Object) bool { return o.Kind == v1alpha1.Kind })
}

// withoutOptions removes the options that users own from ConfigMaps: they stay as they are.
func (s State) withoutOptions(objects []release.Object) (out []release.Object) {
	for _, o := range objects {
		cm := s.Live.configMap(o.Name)
		if data, found, err := unstructured.NestedMap(o.Content, "data"); o.Kind == "ConfigMap" && cm != nil && found && err == nil {
			for key := range render.Chosen(cm) {
				delete(data, key)
			}
			o.Content = maps.Clone(o.Content)
			o.Content["data"] = data
		}
		out = append(out, o)
	}
	return out
}

// imagine updates the State as if a preparation had been performed. It returns the Secrets of credentials and certificates before and after.
func (s *State) imagine(p preparation) (before, after []release.Object, err error) {
	if p.err != nil {
		return nil, nil, p.err
	}
	note := func(name string, old, now map[string][]byte) {
		object := func(data map[string][]byte) release.Object {
			content := map[string]any{}
			for k, v := range data {
				content[k] = base64.StdEncoding.EncodeToString(v)
			}
			return release.Object{APIVersion: "v1", Kind: "Secret", Name: name, Content: map[string]any{
				"kind": "Secret", "metadata": map[string]any{"name": name}, "data": content}}
		}
		if old != nil {
			before = append(before, object(old))
		}
		after = append(after, object(now))
	}
	if p.generate {
		name := secrets.CredentialsSecret(s.Cloud.Name)
		filled := &corev1.Secret{Data: map[string][]byte{}}
		var old map[string][]byte
		if s.Secrets.credentials != nil {
			old = s.Secrets.credentials.Data
			filled = s.Secrets.credentials.DeepCopy()
		}
		for _, key := range p.credentials.Missing(s.Secrets.credentials) {
			if filled.Data[key] = []byte(p.credentials.Chosen[key]); len(filled.Data[key]) == 0 {
				filled.Data[key] = []byte("(generated " + key + ")")
			}
		}
		note(name, old, filled.Data)
		s.Secrets.credentials = filled
	}
	if p.certificates == nil {
		return before, after, nil
	}
	if s.Secrets.current, err = p.certificates.Apply(); err != nil {
		return nil, nil, fmt.Errorf("issuing certificates in a dry run: %w", err)
	}
	s.Secrets.issued = true
	for _, made := range s.Secrets.current.Secrets {
		var old map[string][]byte
		if found := s.Secrets.certificates[made.Name]; found != nil {
			old = found.Data
		}
		note(made.Name, old, made.Data)
	}
	return before, after, nil
}
