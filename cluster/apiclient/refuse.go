// SPDX-License-Identifier: Apache-2.0

package apiclient

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
)

// refused returns the finding for what the API does not serve.
func refused(why string) error {
	return finding.New("OCA-7632", "The REST API does not serve this command", why+", which the REST API does not support",
		"run it with a kubeconfig: leave out --api and unset OCADM_API")
}

// refusals refuses the requests of Kubernetes clients that the API does not serve.
type refusals struct{}

func (refusals) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	return refused("the command applies objects")
}

func (refusals) DeleteAllOf(context.Context, client.Object, ...client.DeleteAllOfOption) error {
	return refused("the command deletes several objects at once")
}

// Status is refused: the operator writes it.
func (refusals) Status() client.SubResourceWriter { return subresource{} }

func (refusals) SubResource(string) client.SubResourceClient { return subresource{} }

type subresource struct{}

const ofSubresources = "the command needs a subresource"

func (subresource) Get(context.Context, client.Object, client.Object, ...client.SubResourceGetOption) error {
	return refused(ofSubresources)
}

func (subresource) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return refused(ofSubresources)
}

func (subresource) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return refused(ofSubresources)
}

func (subresource) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return refused(ofSubresources)
}

func (subresource) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return refused(ofSubresources)
}
