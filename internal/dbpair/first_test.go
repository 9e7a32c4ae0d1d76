// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// The first start of a pair is repeated until both the record and the volume say so, whichever of the two is lost. Otherwise the only copy of the database
// would never start again.
func TestFirstStartCutOff(t *testing.T) {
	answer := errors.New("no answer")
	for name, update := range map[string]func(do func() error) error{
		"the answer is lost": func(do func() error) error { return errors.Join(do(), answer) },
		"the write is lost":  func(func() error) error { return answer },
	} {
		a, l := agentOn(t, Record{Primary: First}, func() error { return nil })
		kept := a.keeper.kube
		a.keeper.kube = interceptor.NewClient(kept.(client.WithWatch), interceptor.Funcs{
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
				return update(func() error { return c.Update(ctx, o, opts...) })
			},
		})
		v := a.look(t.Context())
		if d := Decide(v); d.Act != Confirm || !errors.Is(a.follow(t.Context(), v.Server, d), answer) {
			t.Fatalf("%s: %+v", name, d)
		}
		a.keeper.kube = kept
		for range 2 {
			v = a.look(t.Context())
			if d := Decide(v); d.Act == Confirm {
				if err := a.follow(t.Context(), v.Server, d); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
			}
		}
		if d := Decide(v); d.Act != StartPrimary || v.Record.Term != 1 {
			t.Errorf("%s: %+v with %+v in %s", name, d, v.Record, l.Name)
		}
	}
}
