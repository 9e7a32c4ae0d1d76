// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"errors"
	"fmt"
	"io"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/mysql/dump"
)

// Watcher receives the progress of an operation. A workflow.Reporter is one.
type Watcher interface {
	// Info reports one step in a line.
	Info(format string, args ...any)
	// Progress reports how much of a total is done; unit is "B" for bytes.
	Progress(done, total int64, unit string)
}

const inBytes = "B"

// onTables reports the progress in bytes, and each database once.
func onTables(w Watcher) func(dump.Progress) {
	nth := 0
	return func(p dump.Progress) {
		if p.Nth != nth {
			nth = p.Nth
			w.Info("database %s, %d of %d: %s", p.Database, p.Nth, p.Of, lists.Counted(p.Tables, "table"))
		}
		w.Progress(p.Done, p.Total, inBytes)
	}
}

// watched is a file being read, with a Watcher.
type watched struct {
	io.Reader
	watcher     Watcher
	done, total int64
	// failed is a read error, which does not mean that the file is damaged.
	failed error
}

func (r *watched) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.done += int64(n)
	if err != nil && !errors.Is(err, io.EOF) {
		r.failed = err
	}
	r.watcher.Progress(r.done, max(r.total, r.done), inBytes)
	return n, err
}

// text formats a number of bytes for people.
func text(n int64) string {
	if n < 10<<30 {
		return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20)
	}
	return fmt.Sprintf("%d GiB", n>>30)
}
