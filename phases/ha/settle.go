// SPDX-License-Identifier: Apache-2.0

package ha

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/internal/workflow"
)

// settleTimeout bounds the wait for pods between two faults: a pod that never starts must not hold up the test.
const settleTimeout = 2 * time.Minute

// settle waits before a fault until the pods that earlier faults disturbed are ready again. Otherwise the cluster would still be recovering, and the
// two outages would be measured as one.
func (t *Test) settle(ctx context.Context, r workflow.Reporter) error {
	limited, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	var missing []string
	err := wait.Until(limited, "the pods", interval, func(ctx context.Context) (bool, string, error) {
		var list corev1.PodList
		if err := t.K.List(ctx, &list); err != nil {
			return false, "", err
		}
		missing = notReady(list.Items)
		if t.unready == nil {
			t.unready = append([]string{}, missing...)
		}
		missing = slices.DeleteFunc(missing, func(p string) bool { return slices.Contains(t.unready, p) })
		return len(missing) == 0, lists.Counted(len(missing), "pod") + " not ready yet", nil
	}, func(why string) { r.Waiting("the pods", why) })
	if err == nil || !errors.Is(limited.Err(), context.DeadlineExceeded) || ctx.Err() != nil {
		return err
	}
	r.Info("the test continues, although pods are not ready after %s: %s", settleTimeout, strings.Join(missing, ", "))
	return nil
}

// notReady returns the pods that should be ready but are not, as NAMESPACE/NAME.
func notReady(pods []corev1.Pod) []string {
	return lists.Pick(pods, func(p corev1.Pod) (string, bool) {
		return p.Namespace + "/" + p.Name, !kube.PodEnded(&p) && p.DeletionTimestamp == nil && p.Name != name && !kube.PodReady(&p)
	})
}
