// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// HistoryName is the ConfigMap in the namespace of a cloud that holds what became of its backups, HistoryKey its key. A namespace has one cloud.
const HistoryName, HistoryKey = "ocadm-backups", "backups.json"

// historyLimit is how many records are kept.
const historyLimit = 20

// Record is what became of one attempt to make a backup.
type Record struct {
	// Name of the file, "" if none was written.
	Name string `json:"name,omitempty"`
	// Place where it lies, as its Store says.
	Place string `json:"place,omitempty"`
	// Time of the attempt, and how many seconds it took, with the proof.
	Time    time.Time `json:"time"`
	Seconds float64   `json:"seconds,omitempty"`
	// Size in bytes.
	Size   int64 `json:"size,omitempty"`
	Tables int   `json:"tables,omitempty"`
	Rows   int64 `json:"rows,omitempty"`
	// Proven is when the file was restored into scratch databases and compared; Problem is why it could not be.
	Proven  *time.Time `json:"proven,omitempty"`
	Problem string     `json:"problem,omitempty"`
	// Etcd is the snapshot of etcd beside the file.
	Etcd *Etcd `json:"etcd,omitempty"`
	// Error is why there is no file.
	Error string `json:"error,omitempty"`
}

// History are the attempts of a cloud, the latest first.
type History []Record

// clockSlack is how far the clocks of machines may differ.
const clockSlack = 5 * time.Minute

// ahead reports whether what is of a time was made by a clock that was ahead. Nothing says then how old it is.
func ahead(t, now time.Time) bool { return t.After(now.Add(clockSlack)) }

// Until is the history without records that a clock made which was ahead.
func (h History) Until(now time.Time) History {
	return slices.DeleteFunc(slices.Clone(h), func(r Record) bool { return ahead(r.Time, now) })
}

// ParseHistory reads what String wrote; "" is an empty history.
func ParseHistory(text string) (History, error) {
	var h History
	if text == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(text), &h); err != nil {
		return nil, fmt.Errorf("reading the history of backups: %w", err)
	}
	return h, nil
}

// String is the history in JSON.
func (h History) String() string {
	text, err := json.MarshalIndent(h, "", " ")
	if err != nil {
		return "" // a record has nothing that cannot be encoded
	}
	return string(text)
}

// With is the history with another record, in place of an earlier one of the same file. The record that is the latest
// proven one now is always kept.
func (h History) With(r Record, now time.Time) History {
	out := append(History{r}, slices.DeleteFunc(slices.Clone(h), func(old Record) bool {
		return old.Name == r.Name && old.Place == r.Place && (r.Name != "" || old.Time.Equal(r.Time))
	})...)
	slices.SortStableFunc(out, func(a, b Record) int { return b.Time.Compare(a.Time) })
	if len(out) <= historyLimit {
		return out
	}
	proven := out.Until(now).Proven()
	kept := out[:historyLimit]
	if proven != nil && kept.Until(now).Proven() == nil {
		kept[historyLimit-1] = *proven
	}
	return kept
}

// Proven is the latest record of a backup that was proven, nil if there is none.
func (h History) Proven() *Record {
	for i := range h {
		if h[i].Proven != nil {
			return &h[i]
		}
	}
	return nil
}
