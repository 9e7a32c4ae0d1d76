// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// HistoryName is the ConfigMap with the history of backups in the namespace of a cloud, HistoryKey its key. A namespace has one cloud.
const HistoryName, HistoryKey = "ocadm-backups", "backups.json"

// historyLimit is the number of records to keep.
const historyLimit = 20

// Record is the result of one attempt at a backup.
type Record struct {
	// Name is the name of the file, "" if none was written.
	Name string `json:"name,omitempty"`
	// Place is the Store of the file, as its String method returns it.
	Place string `json:"place,omitempty"`
	// Time is the time of the attempt; Seconds is its duration, including the proof.
	Time    time.Time `json:"time"`
	Seconds float64   `json:"seconds,omitempty"`
	// Size is in bytes.
	Size   int64 `json:"size,omitempty"`
	Tables int   `json:"tables,omitempty"`
	Rows   int64 `json:"rows,omitempty"`
	// Proven is the time when the file was restored into scratch databases and compared; Problem is the reason why it could not be.
	Proven  *time.Time `json:"proven,omitempty"`
	Problem string     `json:"problem,omitempty"`
	// Etcd is the snapshot of etcd beside the file.
	Etcd *Etcd `json:"etcd,omitempty"`
	// Error is the reason why there is no file.
	Error string `json:"error,omitempty"`
}

// History lists the attempts of a cloud, the latest first.
type History []Record

// clockSlack is the tolerated difference between the clocks of machines.
const clockSlack = 5 * time.Minute

// ahead reports whether a time was set by a clock that was ahead. Its age is unknown then.
func ahead(t, now time.Time) bool { return t.After(now.Add(clockSlack)) }

// Until returns the history without records from a clock that was ahead.
func (h History) Until(now time.Time) History {
	return slices.DeleteFunc(slices.Clone(h), func(r Record) bool { return ahead(r.Time, now) })
}

// ParseHistory parses the output of String; "" is an empty history.
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

func (h History) String() string {
	text, err := json.MarshalIndent(h, "", " ")
	if err != nil {
		return "" // every record can be encoded
	}
	return string(text)
}

// With returns the history with another record, which replaces an earlier one of the same file. It always keeps the record that is the latest proven
// one as of now, and others beside those from a clock that was ahead.
func (h History) With(r Record, now time.Time) History {
	out := append(History{r}, slices.DeleteFunc(slices.Clone(h), func(old Record) bool {
		return old.Name == r.Name && old.Place == r.Place && (r.Name != "" || old.Time.Equal(r.Time))
	})...)
	slices.SortStableFunc(out, func(a, b Record) int { return b.Time.Compare(a.Time) })
	early := len(out) - len(out.Until(now)) // they come first
	out = out[max(0, min(len(out)-historyLimit, early-historyLimit/2)):]
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

// Proven returns the latest record of a proven backup, nil if there is none.
func (h History) Proven() *Record {
	for i := range h {
		if h[i].Proven != nil {
			return &h[i]
		}
	}
	return nil
}
