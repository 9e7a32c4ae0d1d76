// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/workflow"
)

// StateDir is the directory in which ocadm keeps its state on the machine.
const StateDir = "/var/lib/ocadm"

// JournalFile records the runs of ocadm on this machine. LockFile holds the process ID of the active one.
const (
	JournalFile = StateDir + "/journal.jsonl"
	LockFile    = "/run/ocadm.lock"
)

// LedgerFile is the path of the ledger.
const LedgerFile = StateDir + "/ledger.jsonl"

const backupDir = StateDir + "/backup"

// Kind is the kind of thing that a ledger entry records.
type Kind string

// The kinds. Name is the path of a file (or link) or directory, an enabled systemd unit, a kernel parameter that was set, a program that was found, an
// imported image, the machine's node name, a network link that already existed, or the data directory of a program.
const (
	KindFile    Kind = "file"
	KindDir     Kind = "dir"
	KindUnit    Kind = "unit"
	KindSysctl  Kind = "sysctl"
	KindProgram Kind = "program"
	KindImage   Kind = "image"
	// KindRelease is the release of ocadm or Kubernetes that made the machine a node; it is in the detail.
	KindRelease Kind = "release"
	// KindFirewall is an opening in firewalld; its name holds the arguments of firewall-cmd that made it.
	KindFirewall Kind = "firewall"
	KindNode     Kind = "node"
	KindLink     Kind = "link"
	// KindContent is a file as ocadm last wrote it; its detail is the digest.
	KindContent Kind = "content"
	KindData    Kind = "data"
	// KindPhase is a successful phase of kubeadm; its detail is the digest of kubeadm's input.
	KindPhase Kind = "phase"
	// KindRestart is a unit that must still be restarted because files that it reads have changed.
	KindRestart Kind = "restart"
)

// Op is what ocadm did to a recorded thing.
type Op string

// The operations. Found things existed before; ocadm uses them, and reset does not touch them.
const (
	Created Op = "created"
	Changed Op = "changed"
	Found   Op = "found"

	forgotten Op = "forgotten"
)

// Entry records one thing that ocadm made, changed or found.
type Entry struct {
	Time time.Time `json:"time"`
	Kind Kind      `json:"kind"`
	Name string    `json:"name"`
	Op   Op        `json:"op"`
	// Previous is the earlier state: the backup of a changed file, or the value of a parameter.
	Previous string      `json:"previous,omitempty"`
	Mode     fs.FileMode `json:"mode,omitempty"`
	// Link is where a changed file led that was a symbolic link. The file there did not change, so there is no backup.
	Link string `json:"link,omitempty"`
	// Detail is for people, such as the version of a program that was found.
	Detail string `json:"detail,omitempty"`
	// Before is true for a changed file that was found before the machine became a node.
	Before bool `json:"before,omitempty"`
	// Digests holds the digests of an installed program's files, "sha256:…" by path. Ledgers of the first release lack them.
	Digests map[string]string `json:"digests,omitempty"`
}

func (e Entry) key() string { return string(e.Kind) + " " + e.Name }

// Ledger lists what ocadm made on this machine, one JSON line each. An entry is written before the thing is made: after a crash the ledger may list
// things that were not made, but never misses one that was. The first entry for a thing stays.
type Ledger struct {
	files Files // with no ledger

	mu      sync.Mutex
	entries []Entry
}

// OpenLedger reads the ledger of the machine. It creates nothing before the first entry.
func OpenLedger(files Files) (*Ledger, error) {
	files.Ledger = nil
	l := &Ledger{files: files}
	err := workflow.ReadLines(files.Path(LedgerFile), func(line []byte) error { // if a crash cut one off, the work had not been done yet
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

// replaces reports whether an entry supersedes an earlier one: a file that was only found has been changed.
func replaces(e, earlier Entry) bool {
	return e.Kind == KindFile && e.Op == Changed && earlier.Op == Found
}

// Record adds an entry. A recorded thing keeps its entry, except that a found file may become a changed one.
func (l *Ledger) Record(e Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := l.index(e.Kind, e.Name); i >= 0 && !replaces(e, l.entries[i]) {
		return nil
	}
	return l.append(e)
}

// Replace adds an entry that replaces any earlier entry for the same thing.
func (l *Ledger) Replace(e Entry) error {
	if err := l.Forget(e.Kind, e.Name); err != nil {
		return err
	}
	return l.Record(e)
}

// Forget deletes the entry of a thing that was undone.
func (l *Ledger) Forget(kind Kind, name string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.index(kind, name) < 0 {
		return nil
	}
	return l.append(Entry{Kind: kind, Name: name, Op: forgotten})
}

// ForgetAll deletes all of these entries.
func (l *Ledger) ForgetAll(entries []Entry) error {
	for _, e := range entries {
		if err := l.Forget(e.Kind, e.Name); err != nil {
			return err
		}
	}
	return nil
}

// Has reports whether the ledger has an entry for a thing.
func (l *Ledger) Has(kind Kind, name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.index(kind, name) >= 0
}

// Get returns the entry for a thing.
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

// Created returns what was made or changed, newest first, which is the order in which it is undone. It returns only these kinds, or all without any.
func (l *Ledger) Created(kinds ...Kind) []Entry { return l.reversed(kinds, Created, Changed) }

// Found returns what already existed and is used, of these kinds or of all.
func (l *Ledger) Found(kinds ...Kind) []Entry { return l.reversed(kinds, Found) }

func (l *Ledger) reversed(kinds []Kind, ops ...Op) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := lists.Filter(l.entries, func(e Entry) bool {
		return slices.Contains(ops, e.Op) && (len(kinds) == 0 || slices.Contains(kinds, e.Kind))
	})
	slices.Reverse(out)
	return out
}

func (l *Ledger) append(e Entry) error {
	if err := l.files.wet("note", e.Name); err != nil {
		return err
	}
	e.Time = time.Now().UTC()
	line, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("recording %s: %w", e.Name, err)
	}
	if err := workflow.AppendLine(l.files.Path(LedgerFile), line); err != nil {
		return fmt.Errorf("recording %s: %w", e.Name, err)
	}
	l.apply(e)
	return nil
}

// keep stores a file's content before it is changed, and returns the path of the copy.
func (l *Ledger) keep(name string, data []byte) (string, error) {
	backup := filepath.Join(backupDir, fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:8]+"-"+filepath.Base(name))
	if err := os.MkdirAll(l.files.Path(backupDir), 0o700); err != nil {
		return "", fmt.Errorf("backing up %s: %w", name, err)
	}
	return backup, l.files.WriteFile(backup, data, 0o600)
}
