// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"
	"strings"
	"time"

	"filippo.io/age"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/mysql/dump"
)

// attempts is the maximum number of attempts at a dump when tables change meanwhile.
const attempts = 5

// Source is the input of a backup.
type Source struct {
	// Header is complete except for Databases and Server, which are read from the server.
	Header  Header
	Objects []Object
	Images  []string
	// Admin is an administrator whose owner is the cloud.
	Admin *mysql.Admin
}

// Plan is a plan for a backup.
type Plan struct {
	Source
	Store Store
	// Recipients can read the file; it is not encrypted if there are none. Identity reads it back if the recipient is a passphrase.
	Recipients []age.Recipient
	Identity   age.Identity
	// Keep is how many backups of this cloud to keep; 0 keeps all.
	Keep int
	// SkipProof skips the restore into scratch databases.
	SkipProof bool

	// once is the key that reads the file back in the proof.
	once age.Identity
}

// ErrNothing is returned if the cloud has no database on its server.
var ErrNothing = errors.New("no database on the server is marked as this cloud's: there is nothing to back up")

// SpaceError reports that a backup would not fit.
type SpaceError struct {
	Store      string
	Free, Need int64
}

func (e *SpaceError) Error() string {
	return fmt.Sprintf("%s has %d MiB free, and the backup needs about %d MiB", e.Store, e.Free>>20, e.Need>>20)
}

// prefix returns the prefix of a cloud's file names. It includes the ID, because clouds that share a store often share their name, too.
func prefix(c Cloud) string { return c.Name + "-" + digest([]byte(c.ID))[:8] + "-" }

// FileName returns the file name of a backup.
func FileName(h Header) string {
	return prefix(h.Cloud) + h.Time.UTC().Format("20060102T150405Z") + Suffix
}

// Prepare removes leftovers of interrupted runs for this cloud, and checks that there is something to back up and room for it.
func (p *Plan) Prepare(ctx context.Context, w Watcher) error {
	if err := p.Store.Clean(ctx, prefix(p.Header.Cloud)); err != nil {
		return err
	}
	if err := p.prepare(ctx); err != nil {
		return err
	}
	need, free, err := p.room(ctx)
	if err == nil {
		w.Info("%s; the file needs about %s, %s", lists.Counted(len(p.Header.Databases), "database"), text(need), freeIn(free, p.Store))
	}
	return err
}

func freeIn(free int64, s Store) string {
	if free < 0 {
		return s.String() + " has no known limit"
	}
	return fmt.Sprintf("%s has %s free", s, text(free))
}

// Write writes a file that can be proven, and starts over if tables change meanwhile.
func (p *Plan) Write(ctx context.Context, w Watcher) (Info, error) {
	recipients := p.Recipients
	p.once = p.Identity
	if len(recipients) > 0 && p.once == nil {
		var err error
		if recipients, p.once, err = readable(recipients); err != nil {
			return Info{}, err
		}
	}
	name := FileName(p.Header)
	info, err := steadily(w, func() (Info, error) { return p.attempt(ctx, w, name, recipients) })
	if err == nil && p.SkipProof {
		err = WriteInfo(ctx, p.Store, info)
	}
	return info, err
}

// readable adds a temporary recipient so that this process can read the file back. Its key is never stored.
func readable(recipients []age.Recipient) ([]age.Recipient, age.Identity, error) {
	once, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, nil, fmt.Errorf("generating a key: %w", err)
	}
	return append(slices.Clone(recipients), once.Recipient()), once, nil
}

// Prove proves what Write stored, unless SkipProof is set, and notes the result beside the file.
func (p *Plan) Prove(ctx context.Context, w Watcher, info *Info) error {
	if p.SkipProof {
		return nil
	}
	if err := p.prove(ctx, w, info); err != nil {
		info.Problem = err.Error()
		return errors.Join(fmt.Errorf("proving backup %s: %w", info.Name, err), WriteInfo(context.WithoutCancel(ctx), p.Store, *info))
	}
	return WriteInfo(ctx, p.Store, *info)
}

// RetentionError reports that a backup was made but older ones could not be removed.
type RetentionError struct{ Err error }

func (e *RetentionError) Error() string {
	return "removing backups beyond the retention limit: " + e.Err.Error()
}

func (e *RetentionError) Unwrap() error { return e.Err }

// Retain removes older backups that Keep does not cover, and returns their names.
func (p *Plan) Retain(ctx context.Context) ([]string, error) {
	gone, err := Prune(ctx, p.Store, p.Header.Cloud.ID, p.Keep, FileName(p.Header), time.Now())
	if err != nil {
		err = &RetentionError{err}
	}
	return gone, err
}

// Stream writes one backup to a writer. It can neither be proven nor retried.
func (p *Plan) Stream(ctx context.Context, w Watcher, to io.Writer) (Info, error) {
	if err := p.prepare(ctx); err != nil {
		return Info{}, err
	}
	return p.write(ctx, w, to, p.Recipients)
}

func (p *Plan) prepare(ctx context.Context) error {
	var err error
	if p.Header.Databases, err = Databases(ctx, p.Admin); err != nil {
		return err
	}
	if len(p.Header.Databases) == 0 {
		return ErrNothing
	}
	p.Header.Server = p.Admin.ServerInfo().String()
	return nil
}

// room checks that the file will fit. It assumes that the file is about as large as the last one; the first is smaller than the databases.
func (p *Plan) room(ctx context.Context) (need, free int64, err error) {
	list, err := List(ctx, p.Store)
	if err != nil {
		return 0, 0, err
	}
	if i := slices.IndexFunc(list, func(i Info) bool { return i.Cloud.ID == p.Header.Cloud.ID }); i >= 0 {
		need = list[i].Size*5/4 + 64<<20
	} else if need, err = p.Admin.Size(ctx, p.Header.Databases...); err != nil {
		return 0, 0, err
	}
	free, err = p.Store.Free(ctx)
	if err == nil && free >= 0 && free < need {
		err = &SpaceError{Store: p.Store.String(), Free: free, Need: need}
	}
	return need, free, err
}

// steadily runs attempt, and runs it again while tables change.
func steadily[T any](w Watcher, attempt func() (T, error)) (T, error) {
	for n := 1; ; n++ {
		out, err := attempt()
		if !errors.Is(err, dump.ErrSchemaChanged) || n == attempts {
			return out, err
		}
		w.Info("%v: starting over", err)
	}
}

func (p *Plan) attempt(ctx context.Context, w Watcher, name string, recipients []age.Recipient) (Info, error) {
	w.Info("writing %s to %s", name, p.Store)
	f, err := p.Store.Create(ctx, name)
	if err != nil {
		return Info{}, err
	}
	defer f.Abort()
	info, err := p.write(ctx, w, f, recipients)
	if err != nil {
		return Info{}, err
	}
	if err := f.Commit(); err != nil {
		return Info{}, err // no file was stored: a store may upload a small one only now
	}
	info.Name = name
	return info, nil
}

func (p *Plan) write(ctx context.Context, watch Watcher, to io.Writer, recipients []age.Recipient) (Info, error) {
	began := time.Now()
	counted := &counter{w: to, sum: sha256.New()}
	meter, err := dump.NewMeter(ctx, p.Admin, p.Header.Databases, onTables(watch))
	if err != nil {
		return Info{}, err
	}
	w, err := NewWriter(counted, p.Header, recipients...)
	if err != nil {
		return Info{}, err
	}
	for _, o := range p.Objects {
		if err := w.Object(o); err != nil {
			return Info{}, err
		}
	}
	data, err := dump.Dump(ctx, p.Admin, p.Header.Databases, meter.Over(w.Piece))
	if err != nil {
		return Info{}, err
	}
	meter.End()
	if err := w.Close(Manifest{Data: data, Images: p.Images}); err != nil {
		return Info{}, err
	}
	info := Info{
		Header: p.Header, Size: counted.n, SHA256: hex.EncodeToString(counted.sum.Sum(nil)), Encrypted: len(recipients) > 0, Loose: loose(data),
		Seconds: time.Since(began).Seconds(),
	}
	info.Format = Format
	info.Tables, info.Rows = data.Count()
	return info, nil
}

func loose(s dump.Summary) []string {
	return slices.Concat(lists.Map(s.Databases, func(d dump.DatabaseSummary) []string {
		return lists.Pick(d.Tables, func(t dump.TableSummary) (string, bool) { return d.Name + "." + t.Name, t.Loose })
	})...)
}

type counter struct {
	w   io.Writer
	n   int64
	sum hash.Hash
}

func (c *counter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	c.sum.Write(b[:n])
	return n, err
}

// prove reads the file back from its store, restores it and compares.
func (p *Plan) prove(ctx context.Context, w Watcher, info *Info) error {
	var ids []age.Identity
	if p.once != nil {
		ids = append(ids, p.once)
	}
	w.Info("restoring %s into scratch databases", info.Name)
	if _, err := Prove(ctx, w, p.Store, *info, p.Admin, ids...); err != nil {
		return err
	}
	now := time.Now().UTC().Truncate(time.Second)
	info.Proven, info.Problem = &now, ""
	return nil
}

// Prune removes all but the newest backups of a cloud, and returns the names of those it removed. It always keeps the one that was just made and the
// newest proven one. It also keeps those dated in the future, which count as neither, because a clock was ahead when they were made.
func Prune(ctx context.Context, s Store, cloudID string, keep int, made string, now time.Time) ([]string, error) {
	if keep <= 0 {
		return nil, nil
	}
	list, err := List(ctx, s)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(i Info) bool { return i.Unknown || i.Cloud.ID != cloudID || ahead(i.Time, now) })
	proven := slices.IndexFunc(list, func(i Info) bool { return i.Proven != nil })
	var gone []string
	for n, i := range list {
		if n < keep || n == proven || i.Name == made {
			continue
		}
		if err := remove(ctx, s, i.Name); err != nil {
			return gone, err
		}
		gone = append(gone, i.Name)
	}
	return gone, nil
}

// Same returns the differences between two sets of databases, one per line; into maps the name of a wanted database to the one in have.
func Same(want, have dump.Summary, into func(string) string) []string {
	var out []string
	tables := have.Tables()
	for _, d := range want.Databases {
		for _, t := range d.Tables {
			got, there := tables[into(d.Name)+"."+t.Name]
			switch {
			case !there:
				out = append(out, fmt.Sprintf("%s.%s is missing", d.Name, t.Name))
			case got.Rows != t.Rows:
				out = append(out, fmt.Sprintf("%s.%s has %s, not %d", d.Name, t.Name, lists.Counted(got.Rows, "row"), t.Rows))
			case got.Checksum != t.Checksum:
				out = append(out, fmt.Sprintf("%s.%s has the right number of rows, but different content", d.Name, t.Name))
			}
		}
	}
	return out
}

func differs(lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	return errors.New("the restored data differs from the saved data: " + strings.Join(lists.Some(lines, 5), "; "))
}

// Agrees reports whether two sets of databases have exactly the same rows.
func Agrees(want, have dump.Summary) bool {
	same := func(d string) string { return d }
	return len(Same(want, have, same)) == 0 && len(Same(have, want, same)) == 0
}
