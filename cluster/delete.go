// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/wait"
)

// Delete deletes a cloud and reports whether it existed. The operator then removes its objects. Databases and volumes stay unless data is set, even
// if the spec says to delete them: an earlier Delete with data may have been interrupted.
func Delete(ctx context.Context, c client.Client, key client.ObjectKey, data bool) (bool, error) {
	u, err := get(ctx, c, key)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	was, _, _ := unstructured.NestedString(u.Object, "spec", "deletionPolicy")
	policy := v1alpha1.Retain
	if data {
		policy = v1alpha1.Delete
	}
	if data != (was == string(v1alpha1.Delete)) {
		if err := merge(ctx, c, u, map[string]any{"spec": map[string]any{"deletionPolicy": string(policy)}}); err != nil {
			return true, fmt.Errorf("setting spec.deletionPolicy of cloud %s to %s: %w", key, policy, err)
		}
	}
	if err := c.Delete(ctx, u); err != nil && !apierrors.IsNotFound(err) {
		return true, fmt.Errorf("deleting cloud %s: %w", key, err)
	}
	return true, nil
}

// WaitGone waits until the operator has removed everything.
func WaitGone(ctx context.Context, c client.WithWatch, key client.ObjectKey, report func(why string)) error {
	err := kube.WaitGone(ctx, c, empty(key), func(o client.Object) string {
		if f := o.GetFinalizers(); len(f) > 0 {
			return fmt.Sprintf("the operator releases what belongs to it (finalizer %s)", f[0])
		}
		return "it is being deleted"
	}, report)
	if !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return finding.New("OCA-7009", fmt.Sprintf("Cloud %s was not deleted in time", key), wait.Why(err),
		fmt.Sprintf("kubectl -n %s logs -l app=%s --prefix --tail=-1", DefaultNamespace, OperatorName)).Wrap(err)
}
