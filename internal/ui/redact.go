// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Redactor removes known secrets from output.
type Redactor struct {
	mu   sync.RWMutex
	list []string
}

// minSecret is the shortest secret that is removed: removing every "a" from a log would hide more than it protects.
const minSecret = 4

// Add adds secrets. Their JSON-escaped forms are removed, too.
func (r *Redactor) Add(secrets ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range secrets {
		if len(s) >= minSecret {
			r.list = append(append(r.list, s), escapes(s)...)
		}
	}
	slices.SortFunc(r.list, func(a, b string) int { return len(b) - len(a) }) // longest first: one may be part of another
	r.list = slices.Compact(r.list)
}

// escapes returns the quoted forms of s in JSON and in a log.
func escapes(s string) []string {
	quoted := strconv.Quote(s)
	out := []string{quoted[1 : len(quoted)-1]}
	if raw, err := json.Marshal(s); err == nil {
		out = append(out, string(raw[1:len(raw)-1]))
	}
	return out
}

// Text returns s without the secrets.
func (r *Redactor) Text(s string) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, secret := range r.list {
		s = strings.ReplaceAll(s, secret, "***")
	}
	return s
}

// Writer removes the secrets from everything written to w. It misses a secret that is split between two writes, so write whole lines.
func (r *Redactor) Writer(w io.Writer) io.Writer { return redacting{r, w} }

type redacting struct {
	r *Redactor
	w io.Writer
}

func (r redacting) Write(p []byte) (int, error) {
	if _, err := io.WriteString(r.w, r.r.Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
