// SPDX-License-Identifier: Apache-2.0

package workflow

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"yunion.io/x/ocadm/internal/lists"
)

// Entry is one line of the journal.
type Entry struct {
	Time time.Time `json:"time"`
	// Run identifies the run; PID is its process ID.
	Run   string `json:"run"`
	PID   int    `json:"pid,omitempty"`
	Plan  string `json:"plan"`
	Phase string `json:"phase,omitempty"`
	Event string `json:"event"`
	// Inputs holds the settings of the run without secrets. Part is true if the run has only some phases of the plan. Only the line that starts the run has
	// them.
	Inputs    map[string]string `json:"inputs,omitempty"`
	Part      bool              `json:"part,omitempty"`
	Unchanged bool              `json:"unchanged,omitempty"`
	Changes   []string          `json:"changes,omitempty"`
	Error     string            `json:"error,omitempty"`
	Duration  float64           `json:"duration,omitempty"`
}

// Journal records the start and end of each phase before the run continues.
type Journal interface {
	Append(ctx context.Context, e Entry) error
}

// FileJournal is a file that records what was done on this machine, with one JSON line for each start and end of a phase. It is not a source of truth:
// the machine and the cluster are.
type FileJournal struct {
	path string
	// Redact removes secrets from a line before it is written. If nil, lines are written unchanged.
	Redact func(string) string

	mu sync.Mutex
}

// NewJournal returns a journal at path. The first Append creates the file and its directory.
func NewJournal(path string) *FileJournal { return &FileJournal{path: path} }

// Append writes a line and syncs it to disk.
func (j *FileJournal) Append(_ context.Context, e Entry) error {
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	if e.Event == string(RunStarted) {
		e.PID = os.Getpid()
	}
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encoding a line of the journal: %w", err)
	}
	if j.Redact != nil {
		line = []byte(j.Redact(string(line)))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := AppendLine(j.path, line); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	return nil
}

// Entries reads the journal. A missing file has no entries, and lines that are not valid entries are skipped.
func (j *FileJournal) Entries() ([]Entry, error) {
	var out []Entry
	err := ReadLines(j.path, func(line []byte) error {
		var e Entry
		if json.Unmarshal(line, &e) == nil && e.Event != "" {
			out = append(out, e)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the journal: %w", err)
	}
	return out, nil
}

// Interrupted describes a run that failed or was cut off.
type Interrupted struct {
	Run  string
	Last time.Time
	// Phase is the phase that failed, or the last one that started; empty if none did.
	Phase, Error string
	Inputs       map[string]string
	// Did lists the phases that changed, or may have changed, something.
	Did []string
}

// Resume returns the last run of a plan if it did not end successfully. A successful run of single phases does not end an earlier one of the whole plan.
func (j *FileJournal) Resume(plan string) (*Interrupted, error) {
	entries, err := j.Entries()
	if err != nil {
		return nil, err
	}
	var in, whole *Interrupted // whole is the run that single phases have interrupted, nil if none
	part := false
	for _, e := range entries {
		if e.Plan != plan {
			continue
		}
		switch EventType(e.Event) {
		case RunStarted:
			did := []string(nil)
			if in != nil {
				did = in.Did // include what earlier unfinished runs did
			}
			switch {
			case !e.Part:
				whole = nil
			case !part:
				whole = in
			}
			in, part = &Interrupted{Run: e.Run, Inputs: e.Inputs, Did: did}, e.Part
		case RunDone:
			if whole != nil && in != nil {
				whole.Did = in.Did
			}
			in, whole, part = whole, nil, false
		}
		if in == nil || e.Run != in.Run {
			continue
		}
		in.Last = e.Time
		switch EventType(e.Event) {
		case PhaseStarted:
			in.Did = append(in.Did, e.Phase)
			if in.Error == "" {
				in.Phase = e.Phase
			}
		case PhaseFailed:
			if in.Error == "" {
				in.Phase, in.Error = e.Phase, e.Error
			}
		case PhaseUndone:
			in.Did = slices.DeleteFunc(in.Did, func(p string) bool { return p == e.Phase })
		}
	}
	return in, nil
}

// Completed reports whether any run of these plans ever ended successfully. One of single phases counts, too: a node may have been built by them.
func (j *FileJournal) Completed(plans ...string) (bool, error) {
	entries, err := j.Entries()
	return slices.ContainsFunc(entries, func(e Entry) bool { return slices.Contains(plans, e.Plan) && e.Event == string(RunDone) }), err
}

// Differences returns how now differs from the inputs of the interrupted run, one line per setting.
func (in *Interrupted) Differences(now map[string]string) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(in.Inputs)), maps.Keys(now))
	slices.Sort(keys)
	return lists.Pick(slices.Compact(keys), func(k string) (string, bool) {
		return fmt.Sprintf("%s: %s → %s", k, cmp.Or(in.Inputs[k], "(default)"), cmp.Or(now[k], "(default)")), in.Inputs[k] != now[k]
	})
}

func newRunID() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
