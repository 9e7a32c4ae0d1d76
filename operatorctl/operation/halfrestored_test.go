// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/require"
)

func TestHalfRestored(t *testing.T) {
	status := func(phase v1alpha1.OperationPhase, reverts bool, restoring ...string) *v1alpha1.OnecloudOperationStatus {
		return &v1alpha1.OnecloudOperationStatus{
			Phase: phase, Steps: []v1alpha1.OperationStep{{Name: "databases-back", Revert: reverts}},
			Rollout: &v1alpha1.Rollout{From: 3, Moved: 1, Waves: []v1alpha1.Wave{{Components: []string{"keystone", "region"}}}},
			Databases: &v1alpha1.OperationDatabases{
				Saved:     &v1alpha1.DatabaseCopies{Set: "b3", Prefix: "ocadm_saved_x_b3_", Databases: databasesOf([]string{"keystone", "region"})},
				Replaced:  []v1alpha1.DatabaseCopies{{Set: "f3", Prefix: "ocadm_saved_x_f3_", Databases: databasesOf([]string{"region"})}},
				Restoring: restoring,
			},
		}
	}
	keystone, region := databasesOf([]string{"keystone"})[0], databasesOf([]string{"region"})[0]
	for _, c := range []struct {
		name   string
		status *v1alpha1.OnecloudOperationStatus
		want   []string
	}{
		{"nothing is being replaced", status(v1alpha1.OperationPaused, true), nil},
		{"on the way there", status(v1alpha1.OperationPaused, false, keystone), nil},
		{"it goes on", status(v1alpha1.OperationReverting, true, keystone), nil},
		{"by what was saved", status(v1alpha1.OperationPaused, true, keystone), []string{"databases " + keystone + " are", "ocadm_saved_x_b3_…"}},
		{"by what a rollback replaced", status(v1alpha1.OperationPaused, true, region), []string{"databases " + region + " are", "ocadm_saved_x_f3_…"}},
	} {
		got := HalfRestored(c.status)
		if (got != "") != (c.want != nil) {
			t.Errorf("%s: %q", c.name, got)
		}
		for _, part := range c.want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q lacks %q", c.name, got, part)
			}
		}
	}
}

// An operation cannot be given up while databases are half restored, neither by cancelling nor by deleting it; it continues when resumed.
func TestHalfRestoredIsNotAbandoned(t *testing.T) {
	for name, giveUp := range map[string]func(*fixture){
		"cancelled": func(fx *fixture) { fx.control("a", v1alpha1.OperationCancel) },
		"deleted": func(fx *fixture) {
			require.NoError(fx, fx.client.Delete(fx.Context(), fx.get("a")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var corrected atomic.Bool
			fx := newFixture(t, func(fx *fixture) []Action {
				return []Action{{Name: v1alpha1.ActionCheck, Steps: []Step{fx.does("one", fails)}, Revert: []Step{
					fx.does("back", func(ctx context.Context, r *Run, _ workflow.Reporter) error {
						var half []string
						if !corrected.Load() {
							half = []string{"keystone"}
						}
						err := r.Update(ctx, func(s *v1alpha1.OnecloudOperationStatus) { s.Databases = &v1alpha1.OperationDatabases{Restoring: half} })
						if err == nil && half != nil {
							err = errors.New("the server is gone")
						}
						return err
					}),
				}}}
			})
			fx.create("a", func(o *v1alpha1.OnecloudOperation) { o.Finalizers = []string{"test/kept"} })
			fx.until("a", v1alpha1.OperationPaused)
			giveUp(fx)
			for range 20 {
				time.Sleep(10 * time.Millisecond)
				o := fx.get("a")
				if o.Status.Phase != v1alpha1.OperationPaused {
					t.Fatalf("%s: %s", o.Status.Phase, o.Status.Message)
				}
			}
			refused := func(o *v1alpha1.OnecloudOperation) bool {
				return strings.Contains(o.Status.Message, "databases keystone are only partly replaced") && o.Annotations[v1alpha1.AnnotationControl] == v1alpha1.OperationPause
			}
			for end := time.Now().Add(patience); name == "cancelled" && !refused(fx.get("a")); time.Sleep(10 * time.Millisecond) {
				if o := fx.get("a"); time.Now().After(end) {
					t.Fatalf("%q, %v", o.Status.Message, o.Annotations)
				}
			}
			corrected.Store(true)
			fx.control("a", "")
			fx.until("a", v1alpha1.OperationReverted)
		})
	}
}
