// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/workflow"
)

// unheard is a reporter whose reports nobody reads.
type unheard struct{}

func (unheard) Info(string, ...any)           {}
func (unheard) Output(string)                 {}
func (unheard) Waiting(string, string)        {}
func (unheard) Progress(int64, int64, string) {}
func (unheard) Alive()                        {}
func (unheard) Changed(string, ...any)        {}

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
		if err := x.save(t.Context(), unheard{}); (err == nil) != c.goesOn || x.out.Before != c.made.Name {
			t.Errorf("%s: %q, %v", name, x.out.Before, err)
		}
	}
}
