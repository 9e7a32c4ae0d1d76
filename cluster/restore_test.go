// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/workflow"
)

// TestNotWhatWasConfirmed: a restore or a move that waited behind another move touches no database.
func TestNotWhatWasConfirmed(t *testing.T) {
	key := client.ObjectKeyFromObject(theCloud(""))
	c := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(theCloud("new.invalid")).Build()
	for name, from := range map[string]v1alpha1.DatabaseServer{"host": {Host: "old.invalid"}, "port": {Host: "new.invalid", Port: 3307}} {
		restore, move := &restoring{client: c, key: key, from: from}, &moving{client: c, from: from}
		move.Key = key
		for _, err := range []error{restore.look(t.Context(), workflow.Discard{}), move.look(t.Context(), workflow.Discard{})} {
			if l := finding.Of(err); len(l) != 1 || l[0].Code != "OCA-7425" {
				t.Errorf("another %s: %v", name, err)
			}
		}
	}
	same := &moving{client: c, from: v1alpha1.DatabaseServer{Host: "new.invalid", Port: 3306}}
	same.Key = key
	if err := same.look(t.Context(), workflow.Discard{}); err != nil || same.cloud == nil {
		t.Errorf("the same server: %v", err)
	}
	if inPlaceSteps()[0].Name != "look" || moveSteps()[0].Name != "look" {
		t.Error("something is done before")
	}
}

// TestSaveBeforeARestore: the databases are replaced only if a file with what they held is stored.
func TestSaveBeforeARestore(t *testing.T) {
	for name, c := range map[string]struct {
		made   backup.Info
		failed error
		goesOn bool
	}{
		"stored":                  {backup.Info{Name: "a"}, nil, true},
		"stored without its note": {backup.Info{Name: "a"}, errors.New("uploading a.json"), true},
		"refused at its end":      {backup.Info{}, errors.New("uploading a"), false},
	} {
		x := &restoring{out: &Restored{}}
		x.Before = func(context.Context, client.ObjectKey, workflow.Reporter) (backup.Info, error) {
			return c.made, c.failed
		}
		if err := x.save(t.Context(), workflow.Discard{}); (err == nil) != c.goesOn || x.out.Before != c.made.Name {
			t.Errorf("%s: %q, %v", name, x.out.Before, err)
		}
	}
}
