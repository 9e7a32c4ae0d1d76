// SPDX-License-Identifier: Apache-2.0

package reconcile

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/operatorctl/secrets"
	"yunion.io/x/ocadm/operatorctl/status"
)

// soon is the shortest delay before the next reconcile, unless effects of this one made more possible. It also follows a write conflict: everything
// must be read again. If conflicts go on, because the cache is behind, the delay doubles up to lastConflict.
const (
	soon         = 50 * time.Millisecond
	lastConflict = 5 * time.Second
)

// stop reports an error that keeps the whole cloud from being reconciled.
func (r *Reconciler) stop(ctx context.Context, m *cloud, s State, err error) (ctrl.Result, error) {
	var invalid *invalidSpec
	var stale *staleCache
	switch {
	case errors.As(err, &stale):
		return ctrl.Result{RequeueAfter: max(stale.until.Sub(s.Now), soon)}, nil
	case errors.As(err, &invalid):
		// A retry changes nothing; the next edit of the spec triggers a reconcile.
		out := status.Of(s.Cloud, s.Now)
		out.Invalid(invalid.Error())
		return ctrl.Result{}, r.acts.publish(ctx, m, s, out, degraded(s.Cloud.Status, out.OnecloudClusterStatus, true))
	case apierrors.IsConflict(err):
		m.conflicts++
		return ctrl.Result{RequeueAfter: min(soon<<min(m.conflicts-1, 10), lastConflict)}, nil
	}
	return ctrl.Result{}, r.blocked(ctx, m, s, err)
}

// blocked reports that nothing can be done for a cloud now. It returns the error, so that the reconcile is retried.
func (r *Reconciler) blocked(ctx context.Context, m *cloud, s State, err error) error {
	if errors.Is(err, context.Canceled) {
		return err
	}
	passwords, _ := secrets.Split(s.Live.secret(secrets.CredentialsSecret(s.Cloud.Name)))
	passwords[component.AdminPassword] = s.Cloud.Spec.MySQL.Password
	out := status.Of(s.Cloud, s.Now)
	out.Blocked(redact(err.Error(), passwords))
	events := degraded(s.Cloud.Status, out.OnecloudClusterStatus, false) // the text of an error may differ each time
	return errors.Join(err, r.acts.publish(ctx, m, s, out, events))
}
