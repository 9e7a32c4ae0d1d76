// SPDX-License-Identifier: Apache-2.0

// Package release keeps what a cloud runs: everything that was rendered for it at one time, from which inputs, and why. It is pure.
package release

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/engine"
)

// Keep is the number of releases kept per cloud, in addition to the last one that served in full, and the last one of another version. MaxSize limits the
// compressed size in bytes: a Secret may hold 1 MiB.
const (
	Keep    = 10
	MaxSize = 1000 << 10
)

// Release is what a cloud runs from a point in time on.
type Release struct {
	Summary
	Contents
}

// Summary is the entry of a release in the history.
type Summary struct {
	Revision int         `json:"revision"`
	Time     metav1.Time `json:"time"`
	// Version is that of the cloud, Operator that of the operator that rendered it.
	Version  string `json:"version"`
	Operator string `json:"operator"`
	// By is the field manager that last changed the spec, "" if the spec did not change. Why describes the changes, one line each.
	By  string   `json:"by,omitempty"`
	Why []string `json:"why"`
	// Of is the revision of the release that this one repeats, 0 if it was rendered.
	Of int `json:"of,omitempty"`
}

// Contents is the bulk of a release.
type Contents struct {
	// Catalog lists the components that the operator knew, Names the names in the service certificate.
	Catalog []string `json:"catalog"`
	Names   []string `json:"names"`
	From    From     `json:"from"`
	Objects []Object `json:"objects"`
	// Effects holds the hashes of everything done outside Kubernetes, as long as nothing is wrong there.
	Effects map[string]string `json:"effects"`
}

// From holds the inputs of a release. Secrets are hashed.
type From struct {
	Cloud   *v1alpha1.OnecloudCluster `json:"cloud"`
	Options []*corev1.ConfigMap       `json:"options,omitempty"`
	// Credentials holds salted hashes of the passwords, CredentialNames the names of this cloud's databases and accounts.
	Credentials        map[string]string `json:"credentials"`
	CredentialNames    map[string]string `json:"credentialNames"`
	CertHash, EtcdHash string
	Address, Instance  string
	PasswordTaken      bool
	CertSupplied       bool
}

// Object is a rendered object.
type Object struct {
	// Component is the component that it belongs to; "" for the defaults in the spec of the cloud.
	Component string `json:"component,omitempty"`
	Role      int    `json:"role,omitempty"`
	// Hash is the hash under which it is applied.
	Hash       string `json:"hash"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	// Content is the object; nil in an index.
	Content map[string]any `json:"content,omitempty"`
}

// ObjectOf converts a rendered object that is applied under a hash.
func ObjectOf(component string, role int, hash string, o client.Object) (Object, error) {
	gvk := o.GetObjectKind().GroupVersionKind()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return Object{}, fmt.Errorf("saving %s %q: %w", gvk.Kind, o.GetName(), err)
	}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "annotations", engine.HashAnnotation)
	return Object{Component: component, Role: role, Hash: hash, APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: o.GetName(), Content: content}, nil
}

func (o Object) Key(namespace string) engine.Key {
	return engine.Key{GVK: schema.FromAPIVersionAndKind(o.APIVersion, o.Kind), Namespace: namespace, Name: o.Name}
}

// Index returns the release without the contents of its objects.
func (r Release) Index() *Release {
	out := make([]Object, len(r.Objects))
	for i, o := range r.Objects {
		o.Content = nil
		out[i] = o
	}
	r.Objects = out
	return &r
}

// The keys of a Secret that holds a release.
const (
	keySummary  = "release"
	keyContents = "contents"
)

// SecretName returns the name of the Secret of a release.
func SecretName(cloud string, revision int) string {
	return fmt.Sprintf("%s-release-%d", cloud, revision)
}

// Secret returns an immutable Secret that holds the release.
func (r Release) Secret(meta metav1.ObjectMeta) (*corev1.Secret, error) {
	summary, err := json.Marshal(r.Summary)
	if err != nil {
		return nil, fmt.Errorf("saving release %d: %w", r.Revision, err)
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if err := cmp.Or(json.NewEncoder(zip).Encode(r.Contents), zip.Close()); err != nil {
		return nil, fmt.Errorf("saving release %d: %w", r.Revision, err)
	}
	if packed.Len() > MaxSize {
		return nil, fmt.Errorf("saving release %d: its compressed size is %d KiB, but a Secret can hold only %d KiB: shorten the options in the ConfigMaps",
			r.Revision, packed.Len()>>10, MaxSize>>10)
	}
	meta.Name = SecretName(meta.Name, r.Revision)
	meta.Labels[v1alpha1.LabelRelease] = strconv.Itoa(r.Revision)
	immutable := true
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: meta, Immutable: &immutable,
		Data: map[string][]byte{keySummary: summary, keyContents: packed.Bytes()},
	}, nil
}

// Revision returns the revision that a Secret holds, 0 if it holds none.
func Revision(s metav1.Object) int {
	n, err := strconv.Atoi(s.GetLabels()[v1alpha1.LabelRelease])
	if err != nil {
		return 0
	}
	return n
}

// DecodeSummary reads the summary of a release.
func DecodeSummary(s *corev1.Secret) (out Summary, err error) {
	if err = json.Unmarshal(s.Data[keySummary], &out); err != nil {
		err = fmt.Errorf("reading Secret %q: %w", s.Name, err)
	}
	return out, err
}

// Decode reads a release.
func Decode(s *corev1.Secret) (*Release, error) {
	r := &Release{}
	var err error
	if r.Summary, err = DecodeSummary(s); err != nil {
		return nil, err
	}
	zip, err := gzip.NewReader(bytes.NewReader(s.Data[keyContents]))
	if err != nil {
		return nil, fmt.Errorf("reading Secret %q: %w", s.Name, err)
	}
	numbers := json.NewDecoder(zip)
	numbers.UseNumber()
	err = numbers.Decode(&r.Contents)
	if err == nil {
		err = r.check(s, numbers)
	}
	if err != nil {
		return nil, fmt.Errorf("reading Secret %q: %w", s.Name, err)
	}
	for i := range r.Objects {
		if err := utiljson.ConvertMapNumbers(r.Objects[i].Content, 0); err != nil {
			return nil, fmt.Errorf("reading Secret %q: %w", s.Name, err)
		}
	}
	return r, nil
}

// check returns an error if a release is not what was saved: it was read without an error, but its checksum or its revision is wrong.
func (r *Release) check(s *corev1.Secret, rest *json.Decoder) error {
	if _, err := rest.Token(); !errors.Is(err, io.EOF) { // the checksum comes last
		return fmt.Errorf("its contents are damaged: %w", cmp.Or(err, errors.New("they do not end where they should")))
	}
	if n := Revision(s); n != 0 && n != r.Revision {
		return fmt.Errorf("its label says release %d, and it holds release %d", n, r.Revision)
	}
	return nil
}

// Inputs returns an error if a release that was read lacks what it was rendered from, so that no cloud can be kept at it.
func (r *Release) Inputs() error {
	if r.From.Cloud == nil || slices.Contains(r.From.Options, nil) {
		return fmt.Errorf("reading release %d: it lacks what it was rendered from", r.Revision)
	}
	return nil
}

// Summaries returns the summaries of a cloud's releases among Secrets, in any order, and apart from them those that cannot be read, with the reason.
func Summaries(secrets []corev1.Secret, cloud string) (out, damaged []Summary) {
	for i := range secrets {
		s := &secrets[i]
		if s.Name != SecretName(cloud, Revision(s)) {
			continue
		}
		if one, err := DecodeSummary(s); err == nil {
			out = append(out, one)
		} else {
			damaged = append(damaged, Summary{Revision: Revision(s), Time: s.CreationTimestamp, Why: []string{"damaged: " + err.Error()}})
		}
	}
	return out, damaged
}

// Twins returns the revisions of the other releases with the same contents, latest first. It sorts all by revision.
func Twins(all []Summary, revision int) (out []int) {
	root := map[int]int{}
	slices.SortFunc(all, func(a, b Summary) int { return a.Revision - b.Revision })
	for _, s := range all {
		root[s.Revision] = s.Revision
		if s.Of != 0 {
			root[s.Revision] = cmp.Or(root[s.Of], s.Of) // the one that it repeats may have been deleted
		}
	}
	out = lists.Pick(all, func(s Summary) (int, bool) {
		return s.Revision, s.Revision != revision && root[s.Revision] == root[revision]
	})
	slices.Reverse(out)
	return out
}

// Previous returns the newest earlier release to roll back to, 0 if there is none. Its contents differ, it does not belong to an operation that
// rolled back later (which made a later release that repeats an earlier one), and failed returns false for it. passed lists the skipped ones, latest
// first.
func Previous(all []Summary, revision int, failed func(Summary) bool) (previous int, passed []int) {
	same := Twins(all, revision) // which sorts them
	for _, s := range slices.Backward(all) {
		undone := slices.ContainsFunc(all, func(later Summary) bool {
			return s.By != "" && later.By == s.By && later.Revision > s.Revision && later.Of != 0 && later.Of < s.Revision
		})
		switch {
		case s.Revision >= revision:
		case undone, slices.Contains(same, s.Revision), failed(s):
			passed = append(passed, s.Revision)
		default:
			return s.Revision, passed
		}
	}
	return 0, passed
}
