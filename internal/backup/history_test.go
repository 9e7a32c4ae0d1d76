// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"fmt"
	"testing"
	"time"
)

func TestHistory(t *testing.T) {
	at := func(n int) time.Time { return time.Date(2026, 11, 1, n, 0, 0, 0, time.UTC) }
	proven := at(1)
	h := History{}.With(Record{Name: "a", Place: "p", Time: at(1), Problem: "no scratch database"}, at(1))
	h = h.With(Record{Name: "a", Place: "p", Time: at(1), Proven: &proven}, at(1))
	if len(h) != 1 || h.Proven() == nil || h[0].Problem != "" {
		t.Fatalf("a backup that was proven later: %+v", h)
	}
	h = h.With(Record{Name: "ahead", Place: "p", Time: at(9999), Proven: &proven}, at(2))
	for n := range historyLimit + 5 {
		h = h.With(Record{Time: at(2 + n), Error: fmt.Sprint("attempt ", n)}, at(2+n))
	}
	known := h.Until(at(100))
	if len(h) != historyLimit || h[0].Name != "ahead" || known[0].Error != "attempt 24" {
		t.Errorf("%d records, the latest %+v", len(h), h[0])
	}
	if p := known.Proven(); p == nil || p.Name != "a" {
		t.Error("the only proven backup is forgotten")
	}
	again, err := ParseHistory(h.String())
	if err != nil || len(again) != len(h) || !again[0].Time.Equal(h[0].Time) {
		t.Errorf("%+v, %v", again, err)
	}
	if h, err := ParseHistory(""); err != nil || len(h) != 0 || h.Proven() != nil {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := ParseHistory("{"); err == nil {
		t.Error("no error")
	}
}

// However many records a clock that was ahead has left, an attempt is recorded.
func TestHistoryAfterClockWasAhead(t *testing.T) {
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	var h History
	for n := range historyLimit {
		h = h.With(Record{Time: now.AddDate(1, 0, n), Error: "ahead"}, now.AddDate(1, 0, n))
	}
	for n := range 2 {
		h = h.With(Record{Time: now.AddDate(0, 0, n), Error: "no room"}, now.AddDate(0, 0, n))
	}
	if known := h.Until(now.AddDate(0, 0, 1)); len(h) != historyLimit || len(known) != 2 || h[0].Error != "ahead" {
		t.Errorf("%d of %d", len(known), len(h))
	}
}
