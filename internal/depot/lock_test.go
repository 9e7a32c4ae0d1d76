// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/finding"
)

// While any process stores something, garbage is not removed: neither the blobs, which have no root yet, nor the new root.
func TestPruneWhileFilling(t *testing.T) {
	s := newStore(t)
	other := reopen(t, s.dir)
	other.patience = 50 * time.Millisecond
	none := func(string) bool { return false }
	stored, pruned := make(chan v1.Hash), make(chan error)
	filled := make(chan error, 1)
	go func() {
		filled <- s.Storing(t.Context(), func() error {
			h := s.put(t, "text")
			stored <- h
			<-stored
			return s.SetRoot(t.Context(), Root{Name: "x", Series: "x", Files: map[string]File{"f": {Digest: h, Size: 4}}})
		})
	}()
	h := <-stored
	if _, _, _, err := other.Prune(t.Context(), Cluster{Uses: none}, -time.Hour); len(finding.Of(err)) != 1 || finding.Of(err)[0].Code != CodeBusy {
		t.Errorf("a prune during a fill: %v", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, _, err := other.Prune(canceled, Cluster{Uses: none}, -time.Hour); !errors.Is(err, context.Canceled) {
		t.Errorf("a canceled prune: %v", err)
	}
	// A prune that waits long enough starts after the fill, and sees its root.
	other.patience = time.Minute
	go func() {
		_, kept, _, err := other.Prune(t.Context(), Cluster{Uses: none}, -time.Hour)
		if err == nil && strings.Join(kept, " ") != "x" {
			err = errors.New("kept " + strings.Join(kept, " "))
		}
		pruned <- err
	}()
	stored <- h
	if err := errors.Join(<-filled, <-pruned); err != nil {
		t.Error(err)
	}
	if got, err := s.text(t, h); got != "text" {
		t.Errorf("%q, %v", got, err)
	}
	// Two writers may store at the same time.
	err := s.Storing(t.Context(), func() error {
		return other.Storing(t.Context(), func() error { return nil })
	})
	if err != nil {
		t.Error(err)
	}
}
