// SPDX-License-Identifier: Apache-2.0

// Package release is what a cloud runs, kept: everything that was rendered for it at one time, what it was rendered from, and why. It is pure.
package release

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
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
	"yunion.io/x/ocadm/operatorctl/engine"
)

// Keep is how many releases of a cloud are kept, in addition to the last that served in full. MaxSize bounds one, compressed, in bytes: a Secret may
// hold 1 MiB.
const (
	Keep    = 10
	MaxSize = 1000 << 10
)

// Release is what a cloud runs from one time on.
type Release struct {
	Summary
	Contents
}

// Summary is what the history shows of a release.
type Summary struct {
	Revision int         `json:"revision"`
	Time     metav1.Time `json:"time"`
	// Version of the cloud, Operator the version of the operator that rendered it.
	Version  string `json:"version"`
	Operator string `json:"operator"`
	// By is the field manager that changed the spec last, "" where the spec did not change. Why says what changed, a line each.
	By  string   `json:"by,omitempty"`
	Why []string `json:"why"`
	// Of is the revision of the release that this one repeats, 0 if it was rendered.
	Of int `json:"of,omitempty"`
}

// Contents are the bulk of a release.
type Contents struct {
	// Catalog are the components that the operator knew, Names those in the certificate of the services.
	Catalog []string `json:"catalog"`
	Names   []string `json:"names"`
	From    From     `json:"from"`
	Objects []Object `json:"objects"`
	// Effects are the hashes of what is done outside Kubernetes, while nothing is amiss there.
	Effects map[string]string `json:"effects"`
}

// From is what a release was rendered from. Its secrets are hashes.
type From struct {
	Cloud   *v1alpha1.OnecloudCluster `json:"cloud"`
	Options []*corev1.ConfigMap       `json:"options,omitempty"`
	// Credentials are salted hashes of the passwords, CredentialNames the names that this cloud has for databases and accounts.
	Credentials        map[string]string `json:"credentials"`
	CredentialNames    map[string]string `json:"credentialNames"`
	CertHash, EtcdHash string
	Address, Instance  string
	PasswordTaken      bool
}

// Object is a rendered object.
type Object struct {
	// Component it belongs to; "" for the defaults in the spec of the cloud.
	Component string `json:"component,omitempty"`
	Role      int    `json:"role,omitempty"`
	// Hash under which it is applied.
	Hash       string `json:"hash"`
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	// Content is the object; nil in an index.
	Content map[string]any `json:"content,omitempty"`
}

// ObjectOf makes an Object of a rendered one that is applied under a hash.
func ObjectOf(component string, role int, hash string, o client.Object) (Object, error) {
	gvk := o.GetObjectKind().GroupVersionKind()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return Object{}, fmt.Errorf("keeping %s %q: %w", gvk.Kind, o.GetName(), err)
	}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "annotations", engine.HashAnnotation)
	return Object{Component: component, Role: role, Hash: hash, APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: o.GetName(), Content: content}, nil
}

// Key of an object in the namespace of the cloud.
func (o Object) Key(namespace string) engine.Key {
	return engine.Key{GVK: schema.FromAPIVersionAndKind(o.APIVersion, o.Kind), Namespace: namespace, Name: o.Name}
}

// Index is a release without its objects' contents.
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

// SecretName is the name of the Secret of a release.
func SecretName(cloud string, revision int) string {
	return fmt.Sprintf("%s-release-%d", cloud, revision)
}

// Secret holds the release. Nothing may change it.
func (r Release) Secret(meta metav1.ObjectMeta) (*corev1.Secret, error) {
	summary, err := json.Marshal(r.Summary)
	if err != nil {
		return nil, fmt.Errorf("keeping release %d: %w", r.Revision, err)
	}
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	if err := json.NewEncoder(zip).Encode(r.Contents); err != nil {
		return nil, fmt.Errorf("keeping release %d: %w", r.Revision, err)
	}
	if err := zip.Close(); err != nil {
		return nil, fmt.Errorf("keeping release %d: %w", r.Revision, err)
	}
	if packed.Len() > MaxSize {
		return nil, fmt.Errorf("keeping release %d: it has %d KiB, compressed, and a Secret holds %d KiB: shorten the options in the ConfigMaps",
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

// Revision that a Secret holds, 0 if it holds none.
func Revision(s metav1.Object) int {
	n, err := strconv.Atoi(s.GetLabels()[v1alpha1.LabelRelease])
	if err != nil {
		return 0
	}
	return n
}

// DecodeSummary reads what the history shows.
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
	if err := numbers.Decode(&r.Contents); err != nil {
		return nil, fmt.Errorf("reading Secret %q: %w", s.Name, err)
	}
	for i := range r.Objects {
		if err := utiljson.ConvertMapNumbers(r.Objects[i].Content, 0); err != nil {
			return nil, fmt.Errorf("reading Secret %q: %w", s.Name, err)
		}
	}
	return r, nil
}

// Summaries are those of the releases of a cloud among Secrets, the latest first. The error joins what could not be read; the others are returned.
func Summaries(secrets []corev1.Secret, cloud string) (out []Summary, err error) {
	for i := range secrets {
		if secrets[i].Name != SecretName(cloud, Revision(&secrets[i])) {
			continue
		}
		one, broken := DecodeSummary(&secrets[i])
		if err = errors.Join(err, broken); broken == nil {
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b Summary) int { return b.Revision - a.Revision })
	return out, err
}

// Twins are the revisions of the other releases with the contents of one, the latest first. Of names the release that a release repeats.
func Twins(all []Summary, revision int) (out []int) {
	root := map[int]int{}
	slices.SortFunc(all, func(a, b Summary) int { return a.Revision - b.Revision })
	for _, s := range all {
		root[s.Revision] = s.Revision
		if s.Of != 0 {
			root[s.Revision] = cmp.Or(root[s.Of], s.Of) // the one that it repeats may not be kept
		}
	}
	for _, s := range slices.Backward(all) {
		if s.Revision != revision && root[s.Revision] == root[revision] {
			out = append(out, s.Revision)
		}
	}
	return out
}

// Previous is the newest release before one that is worth going back to, 0 if there is none: its contents are others, and no operation made it that went
// back from it. Such an operation made a later release, which repeats one of before. failed says so of a release from what else is known of its operation.
// passed are the later ones that are passed over, the latest first.
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
