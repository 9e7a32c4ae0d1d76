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
)

// Entry is one line of the journal.
type Entry struct {
	Time time.Time `json:"time"`
	// Run is the identity of the run, PID its process.
	Run   string `json:"run"`
	PID   int    `json:"pid,omitempty"`
	Plan  string `json:"plan"`
	Phase string `json:"phase,omitempty"`
	Event string `json:"event"`
	// Inputs are the settings of the run without secrets, on the line that starts it.
	Inputs    map[string]string `json:"inputs,omitempty"`
	Unchanged bool              `json:"unchanged,omitempty"`
	Changes   []string          `json:"changes,omitempty"`
	Error     string            `json:"error,omitempty"`
	Duration  float64           `json:"duration,omitempty"`
}

// Journal records the start and end of each phase of a run, before the run goes on.
type Journal interface {
	Append(ctx context.Context, e Entry) error
}

// FileJournal is the file that records what was done on this machine, one JSON line for each start and end of a phase. It is no source of
// truth: the machine and the cluster are.
type FileJournal struct {
	path string
	// Redact takes secrets out of a line before it is written; nil writes it as it is.
	Redact func(string) string

	mu sync.Mutex
}

// NewJournal is a journal at path. The file and its directory are made by the first line.
func NewJournal(path string) *FileJournal { return &FileJournal{path: path} }

// Append writes a line and makes sure that it is on the disk.
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

// Entries reads the journal. No file is no entry; lines that are no entries are passed over.
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

// Interrupted is a run that failed or was cut off.
type Interrupted struct {
	Run string
	// Last is when the last line was written.
	Last time.Time
	// Phase is the one that failed, or the last that was started; empty if none was.
	Phase, Error string
	Inputs       map[string]string
	// Did are the phases that changed, or may have changed, something.
	Did []string
}

// Resume returns the last run of a plan if it did not end well.
func (j *FileJournal) Resume(plan string) (*Interrupted, error) {
	entries, err := j.Entries()
	if err != nil {
		return nil, err
	}
	var in *Interrupted
	for _, e := range entries {
		if e.Plan != plan {
			continue
		}
		switch EventType(e.Event) {
		case RunStarted:
			did := []string(nil)
			if in != nil {
				did = in.Did // an unfinished run before the last one did its part, too
			}
			in = &Interrupted{Run: e.Run, Inputs: e.Inputs, Did: did}
		case RunDone:
			in = nil
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

// Completed reports whether a run of one of these plans ever ended well.
func (j *FileJournal) Completed(plans ...string) (bool, error) {
	entries, err := j.Entries()
	return slices.ContainsFunc(entries, func(e Entry) bool { return slices.Contains(plans, e.Plan) && e.Event == string(RunDone) }), err
}

// Differences returns, one line each, how now differs from the inputs of the interrupted run.
func (in *Interrupted) Differences(now map[string]string) []string {
	keys := map[string]bool{}
	for k := range in.Inputs {
		keys[k] = true
	}
	for k := range now {
		keys[k] = true
	}
	var out []string
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		if was, is := in.Inputs[k], now[k]; was != is {
			out = append(out, fmt.Sprintf("%s: %s → %s", k, cmp.Or(was, "(default)"), cmp.Or(is, "(default)")))
		}
	}
	return out
}

func newRunID() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
