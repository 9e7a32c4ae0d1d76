// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
)

// kind is a resource that can be listed, read, created, replaced and deleted.
type kind struct {
	path, one, what string
	gvk             schema.GroupVersionKind
	// fixed resources cannot be replaced.
	fixed bool
}

var kinds = []kind{
	{path: "clouds", one: "cloud", what: "Its fields are those of OnecloudCluster (docs/reference/onecloudcluster.md).", gvk: v1alpha1.GroupVersion.WithKind(v1alpha1.Kind)},
	{path: "operations", one: "operation", what: "Its fields are those of OnecloudOperation (docs/reference/onecloudoperation.md).",
		gvk: v1alpha1.GroupVersion.WithKind(v1alpha1.OperationKind), fixed: true},
	{path: "machines", one: "machine", what: "Its fields are those of OnecloudMachine (docs/reference/onecloudmachine.md).",
		gvk: v1alpha1.GroupVersion.WithKind(v1alpha1.MachineKind)},
}

func kindAt(path string) kind {
	return kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.path == path })]
}

// PathOf returns the path of the resources of a kind, "" if the API has none.
func PathOf(kind string) string {
	for _, k := range kinds {
		if k.gvk.Kind == kind {
			return k.path
		}
	}
	return ""
}

// Resource is a Kubernetes object. Its secrets are hidden.
type Resource struct {
	APIVersion string         `json:"apiVersion,omitempty"`
	Kind       string         `json:"kind,omitempty"`
	Metadata   map[string]any `json:"metadata,omitempty"`
	Spec       map[string]any `json:"spec,omitempty"`
	Status     map[string]any `json:"status,omitempty"`
}

// Place is the namespace of resources. Clients of the API server refuse a name with a slash, with an error of their own.
type Place struct {
	Namespace string `path:"namespace" maxLength:"63" pattern:"^[^/%]+$" doc:"namespace of the cloud" example:"onecloud"`
}

// Named identifies a resource.
type Named struct {
	Place
	Name string `path:"name" maxLength:"253" pattern:"^[^/%]+$" example:"default"`
}

func (n Named) key() client.ObjectKey { return client.ObjectKey{Namespace: n.Namespace, Name: n.Name} }

// Match is the expected version of a resource.
type Match struct {
	IfMatch string `header:"If-Match" doc:"ETag of the version that was read"`
}

// version returns the resource version in an ETag, "" for none.
func (m Match) version() string { return strings.Trim(strings.TrimPrefix(m.IfMatch, "W/"), `"`) }

// Once makes a request idempotent.
type Once struct {
	Key string `header:"Idempotency-Key" maxLength:"128" doc:"unique text for each request: a request that is repeated with it creates nothing more"`
}

type object struct {
	Status int
	ETag   string `header:"ETag"`
	Body   Resource
}

func (s *server) resource(api huma.API, k kind) {
	base, item, tag := "/namespaces/{namespace}/"+k.path, "/namespaces/{namespace}/"+k.path+"/{name}", k.path
	huma.Register(api, describe("list-"+k.path, http.MethodGet, base, tag, "List "+k.path), k.list)
	huma.Register(api, describe("get-"+k.one, http.MethodGet, item, tag, "Read one "+k.one), k.get)
	create := describe("create-"+k.one, http.MethodPost, base, tag, "Create one "+k.one)
	create.DefaultStatus, create.Description = http.StatusCreated, k.what
	huma.Register(api, create, k.create)
	if !k.fixed {
		replace := describe("replace-"+k.one, http.MethodPut, item, tag, "Replace spec, labels and annotations of one "+k.one)
		replace.Description = k.what + " If-Match is required. A hidden secret that is sent back does not change."
		huma.Register(api, replace, k.replace)
	}
	patch := describe("patch-"+k.one, http.MethodPatch, item, tag, "Change fields of one "+k.one)
	patch.Description = "A merge patch (RFC 7396) of spec, labels and annotations: null removes a field. With If-Match it applies only to that version."
	huma.Register(api, patch, k.patch)
	remove := describe("delete-"+k.one, http.MethodDelete, item, tag, "Delete one "+k.one)
	remove.DefaultStatus, remove.Description = http.StatusAccepted, "The response means that the deletion was requested: the operator has work to do before the resource is gone."
	huma.Register(api, remove, k.remove)
}

type listInput struct {
	Place
	Limit    int64  `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"maximum number of items in the response"`
	Continue string `query:"continue" maxLength:"4096" doc:"continue of the previous response"`
	Selector string `query:"selector" maxLength:"1024" doc:"labels, as in kubectl -l"`
	Name     string `query:"name" maxLength:"253" doc:"only the one with this name"`
}

type listOutput struct {
	Body struct {
		Items    []Resource `json:"items"`
		Continue string     `json:"continue,omitempty" doc:"for the next page; absent on the last one"`
		Version  string     `json:"version,omitempty" doc:"version of the list, for since of events"`
	}
}

// named selects the resource with a name, or all for "".
func named(name string) client.ListOption {
	if name == "" {
		return client.MatchingFields{}
	}
	return client.MatchingFields{metav1.ObjectNameField: name}
}

func (k kind) list(ctx context.Context, in *listInput) (*listOutput, error) {
	selector, err := labels.Parse(in.Selector)
	if err != nil {
		return nil, problem(http.StatusUnprocessableEntity, "selector: "+err.Error())
	}
	var all unstructured.UnstructuredList
	all.SetGroupVersionKind(k.gvk)
	err = of(ctx).List(ctx, &all, client.InNamespace(in.Namespace), client.Limit(in.Limit), client.Continue(in.Continue), client.MatchingLabelsSelector{Selector: selector},
		named(in.Name))
	if err != nil {
		return nil, failed(err)
	}
	out := &listOutput{}
	out.Body.Items, out.Body.Continue, out.Body.Version = []Resource{}, all.GetContinue(), all.GetResourceVersion()
	for i := range all.Items {
		out.Body.Items = append(out.Body.Items, shown(&all.Items[i]))
	}
	return out, nil
}

func (k kind) empty(key client.ObjectKey) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(k.gvk)
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	return u
}

func (k kind) live(ctx context.Context, key client.ObjectKey) (*unstructured.Unstructured, error) {
	u := k.empty(key)
	return u, of(ctx).Get(ctx, key, u)
}

func (k kind) get(ctx context.Context, in *struct {
	Named
	IfNoneMatch string `header:"If-None-Match" doc:"ETag of the version that you have"`
}) (*object, error) {
	u, err := k.live(ctx, in.key())
	if err != nil {
		return nil, failed(err)
	}
	if in.IfNoneMatch != "" && in.IfNoneMatch == tag(u) {
		return nil, huma.Status304NotModified()
	}
	return answer(http.StatusOK, u), nil
}

func tag(u client.Object) string { return `"` + u.GetResourceVersion() + `"` }

func answer(status int, u *unstructured.Unstructured) *object {
	return &object{Status: status, ETag: tag(u), Body: shown(u)}
}

func (k kind) create(ctx context.Context, in *struct {
	Place
	Once
	Body Resource
}) (*object, error) {
	u, err := k.wanted(in.Body, in.Namespace)
	if err != nil {
		return nil, err
	}
	if in.Body.hides() {
		return nil, problem(http.StatusUnprocessableEntity, "a value is "+hidden+", which stands for a secret: send the secret itself")
	}
	who, operates := "", k.path == "operations"
	if in.Key != "" || operates {
		if who, err = sender(ctx); err != nil {
			return nil, failed(err)
		}
	}
	if operates { // whatever the client calls itself
		if err := unstructured.SetNestedField(u.Object, who, "spec", "requester"); err != nil {
			return nil, problem(http.StatusUnprocessableEntity, err.Error())
		}
	}
	digest, err := in.digest(who, k.path, in.Body)
	if err != nil {
		return nil, err
	}
	return k.createOnce(ctx, u, digest)
}

// createOnce creates an object. A repeated request, with the same digest, gets the existing object.
func (k kind) createOnce(ctx context.Context, u *unstructured.Unstructured, digest string) (*object, error) {
	if digest != "" {
		if u.GetName() == "" {
			u.SetName(strings.TrimSuffix(u.GetGenerateName(), "-") + "-" + digest[:idLength])
		}
		u.SetAnnotations(labels.Merge(u.GetAnnotations(), labels.Set{annotationOnce: digest}))
	}
	err := of(ctx).Create(ctx, u, client.FieldOwner(kube.FieldManager), strict)
	if apierrors.IsAlreadyExists(err) && digest != "" {
		live, reading := k.live(ctx, client.ObjectKeyFromObject(u))
		if reading != nil {
			return nil, failed(reading)
		}
		if live.GetAnnotations()[annotationOnce] == digest {
			return answer(http.StatusOK, live), nil
		}
		if live.GetAnnotations()[annotationOnce] != "" {
			return nil, problem(http.StatusConflict, "this Idempotency-Key was used for another request")
		}
	}
	if err != nil {
		return nil, failed(err)
	}
	return answer(http.StatusCreated, u), nil
}

// strict makes the API server refuse unknown fields: otherwise it would silently drop a misspelt one.
const strict = client.FieldValidation(metav1.FieldValidationStrict)

func (k kind) wanted(r Resource, namespace string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{}, "spec": r.Spec}}
	for key, v := range r.Metadata {
		switch key {
		case "name", "generateName", "labels", "annotations", "namespace":
			u.Object["metadata"].(map[string]any)[key] = v
		}
	}
	given := schema.FromAPIVersionAndKind(r.APIVersion, r.Kind)
	if r.APIVersion != "" && given.GroupVersion() != k.gvk.GroupVersion() || r.Kind != "" && r.Kind != k.gvk.Kind {
		return nil, problem(http.StatusUnprocessableEntity, fmt.Sprintf("%s are %s, %s", k.path, k.gvk.GroupVersion(), k.gvk.Kind))
	}
	if ns := u.GetNamespace(); ns != "" && ns != namespace {
		return nil, problem(http.StatusUnprocessableEntity, "the namespace differs from the one in the path")
	}
	u.SetGroupVersionKind(k.gvk)
	u.SetNamespace(namespace)
	return u, nil
}

func (k kind) replace(ctx context.Context, in *struct {
	Named
	Match
	Body Resource
}) (*object, error) {
	if in.version() == "" {
		return nil, problem(http.StatusPreconditionRequired, "the request has no If-Match")
	}
	u, err := k.wanted(in.Body, in.Namespace)
	if err != nil {
		return nil, err
	}
	live, err := k.live(ctx, in.key())
	if err != nil {
		return nil, failed(err)
	}
	if live.GetResourceVersion() != in.version() {
		return nil, problem(http.StatusPreconditionFailed, "its ETag is "+tag(live))
	}
	if err := replaceMetadata(u.Object, live.Object); err != nil {
		return nil, err
	}
	spec, err := kept(u.Object["spec"], live.Object["spec"])
	if err != nil {
		return nil, err
	}
	live.Object["spec"] = spec
	if err := of(ctx).Update(ctx, live, client.FieldOwner(kube.FieldManager), strict); err != nil {
		return nil, stale(err)
	}
	return answer(http.StatusOK, live), nil
}

// patch changes only the fields that the sender names, so that concurrent writers keep theirs.
func (k kind) patch(ctx context.Context, in *struct {
	Named
	Match
	Body Resource `contentType:"application/merge-patch+json"`
}) (*object, error) {
	if in.Body.hides() {
		return nil, problem(http.StatusUnprocessableEntity, "a value is "+hidden+", which stands for a secret: leave out fields that are not to change")
	}
	metadata := map[string]any{}
	for _, field := range []string{"labels", "annotations"} {
		if v, there := in.Body.Metadata[field]; there {
			metadata[field] = v
		}
	}
	if v := in.version(); v != "" {
		if n, err := strconv.ParseUint(v, 10, 64); err != nil || n == 0 { // Kubernetes reports that as an internal error
			return nil, problem(http.StatusPreconditionFailed, "If-Match is not the ETag of a version")
		}
		metadata["resourceVersion"] = v
	}
	change := map[string]any{"metadata": metadata}
	if in.Body.Spec != nil {
		change["spec"] = in.Body.Spec
	}
	text, err := json.Marshal(change)
	if err != nil {
		return nil, err
	}
	u := k.empty(in.key())
	if err := of(ctx).Patch(ctx, u, client.RawPatch(types.MergePatchType, text), client.FieldOwner(kube.FieldManager), strict); err != nil {
		return nil, stale(err)
	}
	return answer(http.StatusOK, u), nil
}

func (k kind) remove(ctx context.Context, in *struct {
	Named
	Match
}) (*struct{}, error) {
	var options []client.DeleteOption
	if v := in.version(); v != "" {
		options = append(options, client.Preconditions(metav1.Preconditions{ResourceVersion: &v}))
	}
	return nil, stale(of(ctx).Delete(ctx, k.empty(in.key()), options...))
}
