// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/internal/kube"
)

// A request that fails in the moment of a takeover is repeated: the Service would send half of the connections to the lost primary. Without the pod, there
// is nothing to repeat.
func TestLabelIsRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		fails, missing string
		patches        int // in five reports
	}{
		"the other pod":                      {PodName(First), "", 4},
		"the own pod":                        {PodName(Second), "", 4},
		"the other pod is gone":              {"", PodName(First), 2},
		"the own one fails, no other exists": {PodName(Second), PodName(First), 4},
	} {
		var objs []client.Object
		for s, role := range map[string]string{First: RolePrimary, Second: RoleReplica} {
			objs = append(objs, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: MemberName(s)}})
			if PodName(s) != c.missing {
				objs = append(objs, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "onecloud", Name: PodName(s), Labels: map[string]string{RoleLabel: role}}})
			}
		}
		patches, failed := 0, false
		k := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(objs...).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, w client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				patches++
				if o.GetName() == c.fails && !failed {
					failed = true
					return errors.New("no answer")
				}
				return w.Patch(ctx, o, p, opts...)
			},
		}).Build()
		r := reporter{api: api{kube: k, namespace: "onecloud", log: slog.New(slog.DiscardHandler)}, me: Second, node: "b", labelled: RoleReplica}
		record := Record{Primary: Second, Term: 2}
		r.label(t.Context(), record) // as a takeover does
		for range 4 {
			r.report(t.Context(), Member{Mode: Primary}, record)
		}
		if patches != c.patches {
			t.Errorf("%s: %d patches, want %d", name, patches, c.patches)
		}
		for s, want := range map[string]string{First: RoleReplica, Second: RolePrimary} {
			p := &corev1.Pod{}
			if err := k.Get(t.Context(), client.ObjectKey{Namespace: "onecloud", Name: PodName(s)}, p); PodName(s) != c.missing && (err != nil || p.Labels[RoleLabel] != want) {
				t.Errorf("%s: %s is labelled %q, want %q; %v", name, PodName(s), p.Labels[RoleLabel], want, err)
			}
		}
	}
}
