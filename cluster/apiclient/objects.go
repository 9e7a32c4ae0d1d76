// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"yunion.io/x/ocadm/cluster/restapi"
)

// into replaces the content of an object with what the server sent.
func into(o runtime.Object, sent any) error {
	text, err := json.Marshal(sent)
	if err != nil {
		return err
	}
	v := reflect.ValueOf(o).Elem()
	fresh := reflect.New(v.Type())
	if err := json.Unmarshal(text, fresh.Interface()); err != nil {
		return fmt.Errorf("reading the response of the REST API: %w", err)
	}
	v.Set(fresh.Elem())
	return nil
}

// on sends a request about one object, and updates it from the answer.
func (c *Client) on(ctx context.Context, r request, o client.Object) error {
	var got restapi.Resource
	if err := c.ask(ctx, r, &got); err != nil {
		return err
	}
	return into(o, got)
}

func (c *Client) Get(ctx context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	path, err := c.path(o, key.Namespace)
	if err != nil {
		return err
	}
	return c.on(ctx, request{method: http.MethodGet, path: path + "/" + url.PathEscape(key.Name)}, o)
}

// pageSize is the maximum number of items in an answer.
const pageSize = "500"

// List reads all pages of a list.
func (c *Client) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	o := (&client.ListOptions{}).ApplyOptions(opts)
	path, err := c.path(list, o.Namespace)
	if err != nil {
		return err
	}
	query, err := selection(o)
	if err != nil {
		return err
	}
	query.Set("limit", pageSize)
	gvk, err := apiutil.GVKForObject(list, c.scheme)
	if err != nil {
		return err
	}
	all := []restapi.Resource{}
	for {
		var page struct {
			Items             []restapi.Resource
			Continue, Version string
		}
		if err := c.ask(ctx, request{method: http.MethodGet, path: path, query: query}, &page); err != nil {
			return err
		}
		all = append(all, page.Items...)
		if page.Continue == "" {
			return into(list, map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind, "items": all,
				"metadata": map[string]any{"resourceVersion": page.Version}})
		}
		query.Set("continue", page.Continue)
	}
}

// selection returns the query for the selectors of a list.
func selection(o *client.ListOptions) (url.Values, error) {
	query := url.Values{}
	if o.LabelSelector != nil && !o.LabelSelector.Empty() {
		query.Set("selector", o.LabelSelector.String())
	}
	if o.FieldSelector != nil && !o.FieldSelector.Empty() {
		name, ok := o.FieldSelector.RequiresExactMatch(metav1.ObjectNameField)
		if !ok || o.FieldSelector.String() != fields.OneTermEqualSelector(metav1.ObjectNameField, name).String() {
			return nil, refused("the command selects by " + o.FieldSelector.String())
		}
		query.Set("name", name)
	}
	return query, nil
}

// Create creates an object, and updates it from the answer.
func (c *Client) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if len((&client.CreateOptions{}).ApplyOptions(opts).DryRun) > 0 {
		return refused("the command creates an object in a dry run")
	}
	return c.write(ctx, http.MethodPost, o, "")
}

// Update replaces an object if its version is still the one that was read.
func (c *Client) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if len((&client.UpdateOptions{}).ApplyOptions(opts).DryRun) > 0 {
		return refused("the command changes an object in a dry run")
	}
	return c.write(ctx, http.MethodPut, o, o.GetResourceVersion())
}

func (c *Client) write(ctx context.Context, method string, o client.Object, version string) error {
	path, err := c.path(o, o.GetNamespace())
	if err != nil {
		return err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return fmt.Errorf("writing a %T: %w", o, err)
	}
	gvk, err := apiutil.GVKForObject(o, c.scheme)
	if err != nil {
		return err
	}
	body := map[string]any{"apiVersion": gvk.GroupVersion().String(), "kind": gvk.Kind, "metadata": content["metadata"], "spec": content["spec"]}
	if method == http.MethodPut {
		path += "/" + url.PathEscape(o.GetName())
	}
	return c.on(ctx, request{method: method, path: path, body: body, version: version}, o)
}

// Patch sends a merge patch of spec, labels or annotations.
func (c *Client) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	path, err := c.path(o, o.GetNamespace())
	if err != nil {
		return err
	}
	if len((&client.PatchOptions{}).ApplyOptions(opts).DryRun) > 0 {
		return refused("the command changes an object in a dry run")
	}
	if patch.Type() != types.MergePatchType {
		return refused("the command sends a " + string(patch.Type()))
	}
	data, err := patch.Data(o)
	if err != nil {
		return fmt.Errorf("writing a patch: %w", err)
	}
	var body struct {
		Metadata map[string]any `json:"metadata,omitempty"`
		Spec     map[string]any `json:"spec,omitempty"`
	}
	if err := json.Unmarshal(data, &body); err != nil {
		return fmt.Errorf("reading a patch: %w", err)
	}
	version, _ := body.Metadata["resourceVersion"].(string)
	return c.on(ctx, request{method: http.MethodPatch, path: path + "/" + url.PathEscape(o.GetName()), body: body, version: version}, o)
}

func (c *Client) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	path, err := c.path(o, o.GetNamespace())
	if err != nil {
		return err
	}
	given := (&client.DeleteOptions{}).ApplyOptions(opts)
	if len(given.DryRun) > 0 {
		return refused("the command deletes an object in a dry run")
	}
	version := ""
	if p := given.Preconditions; p != nil && p.ResourceVersion != nil {
		version = *p.ResourceVersion
	}
	return c.ask(ctx, request{method: http.MethodDelete, path: path + "/" + url.PathEscape(o.GetName()), version: version}, nil)
}
