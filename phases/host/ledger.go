// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"yunion.io/x/ocadm/internal/workflow"
)

// StateDir is where ocadm keeps what it knows of the machine.
const StateDir = "/var/lib/ocadm"

// JournalFile records the runs of ocadm on this machine, and LockFile names the process of the one that is at work.
const (
	JournalFile = StateDir + "/journal.jsonl"
	LockFile    = "/run/ocadm.lock"
)

// LedgerFile is the ledger.
const LedgerFile = StateDir + "/ledger.jsonl"

const backupDir = StateDir + "/backup"

// Kind is what an entry of the ledger is about.
type Kind string

// The kinds. Name is the path of a file (or link) or directory, the name of a systemd unit that was enabled, of a kernel parameter
// that was set, of a program that was found, of an image that was imported, the machine's name as a node, the name of a network link
// that was there before, the directory of a program's data.
const (
	KindFile    Kind = "file"
	KindDir     Kind = "dir"
	KindUnit    Kind = "unit"
	KindSysctl  Kind = "sysctl"
	KindProgram Kind = "program"
	KindImage   Kind = "image"
	// KindRelease says in its detail which release of ocadm, or of Kubernetes, made the machine a node.
	KindRelease Kind = "release"
	// KindFirewall is an opening in firewalld; its name is the arguments of firewall-cmd that made it.
	KindFirewall Kind = "firewall"
	KindNode     Kind = "node"
	KindLink     Kind = "link"
	// KindContent is a file as ocadm wrote it last; its detail is the digest.
	KindContent Kind = "content"
	KindData    Kind = "data"
	// KindPhase is a phase of kubeadm that ended well; its detail is the digest of what kubeadm was given.
	KindPhase Kind = "phase"
	// KindRestart is a unit that has yet to be restarted, because files that it reads have changed.
	KindRestart Kind = "restart"
)

// Op is what happened to it.
type Op string

// The operations. What was found was there before, is used, and is not touched by reset.
const (
	Created Op = "created"
	Changed Op = "changed"
	Found   Op = "found"

	forgotten Op = "forgotten"
)

// Entry is one thing that ocadm made, changed or found.
type Entry struct {
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`
	Name string    `json:"name"`
	Op   Op        `json:"op"`
	// Previous is what was there before: the backup of a changed file, the value of a parameter.
	Previous string      `json:"previous,omitempty"`
	Mode     fs.FileMode `json:"mode,omitempty"`
	// Detail is for people: the version of a program that was found.
	Detail string `json:"detail,omitempty"`
	// Before is true of a changed file that was found before the machine became a node.
	Before bool `json:"before,omitempty"`
	// Digests are those of an installed program's files, "sha256:…" by path. Ledgers of the first release have none.
	Digests map[string]string `json:"digests,omitempty"`
}

func (e Entry) key() string { return string(e.Kind) + " " + e.Name }

// Ledger is the list of what ocadm made on this machine, one JSON line each, written before the thing itself: after a crash it may
// name what was not made, and never lacks what was. The first note on a thing stays.
type Ledger struct {
	files Files // without a ledger of its own

	mu      sync.Mutex
	entries []Entry
}

// OpenLedger reads the ledger of the machine. It makes nothing before the first note.
func OpenLedger(files Files) (*Ledger, error) {
	files.Ledger = nil
	l := &Ledger{files: files}
	err := workflow.ReadLines(files.Path(LedgerFile), func(line []byte) error { // one cut off by a crash: what it was about had not been done yet
		var e Entry
		if len(bytes.TrimSpace(line)) == 0 {
			return nil
		}
		if err := json.Unmarshal(line, &e); err != nil {
			return err
		}
		l.apply(e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the ledger %s: %w", LedgerFile, err)
	}
	return l, nil
}

func (l *Ledger) apply(e Entry) {
	i := slices.IndexFunc(l.entries, func(o Entry) bool { return o.key() == e.key() })
	switch {
	case e.Op == forgotten && i >= 0:
		l.entries = slices.Delete(l.entries, i, i+1)
	case i >= 0 && replaces(e, l.entries[i]):
		e.Before = true
		l.entries[i] = e
	case e.Op != forgotten && i < 0:
		l.entries = append(l.entries, e)
	}
}

// replaces reports whether a note supersedes an earlier one: a file that was only found has been changed.
func replaces(e, earlier Entry) bool {
	return e.Kind == KindFile && e.Op == Changed && earlier.Op == Found
}

// Record notes something. A thing that is noted already keeps its note, except that a file that was found may become a changed one.
func (l *Ledger) Record(e Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := l.index(e.Kind, e.Name); i >= 0 && !replaces(e, l.entries[i]) {
		return nil
	}
	return l.append(e)
}

// Replace notes something in place of an earlier note on it.
func (l *Ledger) Replace(e Entry) error {
	if err := l.Forget(e.Kind, e.Name); err != nil {
		return err
	}
	return l.Record(e)
}

// Forget strikes a thing that was taken back.
func (l *Ledger) Forget(kind Kind, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.index(kind, name) < 0 {
		return nil
	}
	return l.append(Entry{Kind: kind, Name: name, Op: forgotten})
}

// ForgetAll strikes all of these.
func (l *Ledger) ForgetAll(entries []Entry) error {
	for _, e := range entries {
		if err := l.Forget(e.Kind, e.Name); err != nil {
			return err
		}
	}
	return nil
}

// Has reports whether there is a note on a thing.
func (l *Ledger) Has(kind Kind, name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.index(kind, name) >= 0
}

// Get returns the note on a thing.
func (l *Ledger) Get(kind Kind, name string) (Entry, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := l.index(kind, name); i >= 0 {
		return l.entries[i], true
	}
	return Entry{}, false
}

func (l *Ledger) index(kind Kind, name string) int {
	return slices.IndexFunc(l.entries, func(e Entry) bool { return e.Kind == kind && e.Name == name })
}

// Created returns what was made or changed, the newest first: the order in which it is taken back. kinds are those asked for; none stands
// for all.
func (l *Ledger) Created(kinds ...Kind) []Entry { return l.reversed(kinds, Created, Changed) }

// Found returns what was there before and is used, of these kinds or of all.
func (l *Ledger) Found(kinds ...Kind) []Entry { return l.reversed(kinds, Found) }

func (l *Ledger) reversed(kinds []Kind, ops ...Op) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []Entry
	for _, e := range slices.Backward(l.entries) {
		if slices.Contains(ops, e.Op) && (len(kinds) == 0 || slices.Contains(kinds, e.Kind)) {
			out = append(out, e)
		}
	}
	return out
}

func (l *Ledger) append(e Entry) error {
	if err := l.files.wet("note", e.Name); err != nil {
		return err
	}
	e.Time = time.Now().UTC()
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("noting %s: %w", e.Name, err)
	}
	if err := workflow.AppendLine(l.files.Path(LedgerFile), line); err != nil {
		return fmt.Errorf("noting %s: %w", e.Name, err)
	}
	l.apply(e)
	return nil
}

// keep stores what a file held before it is changed, and returns where.
func (l *Ledger) keep(name string, data []byte) (string, error) {
	sum := sha256.Sum256([]byte(name))
	backup := filepath.Join(backupDir, hex.EncodeToString(sum[:4])+"-"+filepath.Base(name))
	if err := os.MkdirAll(l.files.Path(backupDir), 0o700); err != nil {
		return "", fmt.Errorf("keeping %s: %w", name, err)
	}
	return backup, l.files.WriteFile(backup, data, 0o600)
}
