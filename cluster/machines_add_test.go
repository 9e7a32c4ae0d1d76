// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/internal/kube"
)

// Credentials are stored only for a machine that is created: those of an existing one stay, and a refused one leaves none behind.
func TestCredentialsOfAddedMachines(t *testing.T) {
	there, added := Machine{}, Machine{}
	there.Namespace, there.Name = "onecloud", "w1"
	there.Spec.Infrastructure.SSH.Address = "10.0.0.1"
	added.Namespace, added.Name = "onecloud", "w2"
	added.Spec.Infrastructure.SSH.Address = "10.0.0.2"
	refused := errors.New("spec.roles: Unsupported value")
	for name, c := range map[string]struct {
		machine *Machine
		create  error
		login   error
		stored  bool
		fails   bool
	}{
		"existing":                         {&there, nil, nil, false, false},
		"new":                              {&added, nil, nil, true, false},
		"refused":                          {&added, refused, nil, false, true},
		"its credentials cannot be stored": {&added, nil, errors.New("forbidden"), true, true},
	} {
		k := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(there.DeepCopy()).WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, k client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if c.create != nil {
					return c.create
				}
				return k.Create(ctx, o, opts...)
			},
		}).Build()
		stored := false
		err := AddMachines(t.Context(), k, []Machine{*c.machine.DeepCopy()}, func() error { stored = true; return c.login }, func(string, string) {})
		is := k.Get(t.Context(), client.ObjectKeyFromObject(&added), &Machine{}) == nil
		if stored != c.stored || (err != nil) != c.fails || is != (c.machine == &added && !c.fails) {
			t.Errorf("%s: stored %t, created %t, %v", name, stored, is, err)
		}
	}
}
