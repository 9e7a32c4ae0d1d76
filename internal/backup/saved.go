// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/mysql/dump"
)

// savedPrefix is the prefix of databases that hold permanent copies.
const savedPrefix = "ocadm_saved_"

// Saved is a set of copies of databases of a cloud, on the same server and marked as the cloud's: docs/decisions/0037.
type Saved struct {
	// Set is its name, of lower-case letters and digits; By is who made it.
	Set  string    `json:"set"`
	By   string    `json:"by"`
	Time time.Time `json:"time"`
	// Definitions has the definitions of each database, as returned by dump.Definitions.
	Definitions map[string]string `json:"definitions"`
	// Data summarises the copies under the names of the originals.
	Data dump.Summary `json:"-"`

	prefix string
}

// Prefix returns the prefix of the names of the copies; the name of the database follows.
func (s Saved) Prefix() string { return s.prefix }

func (s Saved) Copy(database string) string { return within(s.prefix, database) }

// within returns the prefixed name of a database; a name that would be too long becomes a digest.
func within(prefix, database string) string {
	name := prefix + database
	if len([]rune(name)) > 64 {
		name = prefix + digest([]byte(database))[:64-len(prefix)]
	}
	return name
}

// Databases returns the names of the saved databases, sorted.
func (s Saved) Databases() []string {
	return lists.Map(s.Data.Databases, func(d dump.DatabaseSummary) string { return d.Name })
}

// Vault holds the copies of a cloud.
type Vault struct {
	Admin *mysql.Admin
	// CloudID is the ID of Admin's owner.
	CloudID string
}

func (v Vault) prefix() string { return savedPrefix + digest([]byte(v.CloudID))[:8] + "_" }

// index returns the name of the database that describes a set. It is created last, so a set with an index is complete.
func (v Vault) index(set string) string { return v.prefix() + set }

// Save copies databases as of one moment, and compares each row. It keeps a complete set of the same name and maker, and replaces any other set of
// that name.
func (v Vault) Save(ctx context.Context, set, by string, databases []string, w Watcher) (Saved, error) {
	release, err := v.Admin.Lock(ctx, v.index(""))
	if err != nil {
		return Saved{}, err
	}
	defer release()
	was, there, err := v.Read(ctx, set)
	if err != nil || there && was.By == by {
		return was, err
	}
	return steadily(w, func() (Saved, error) { return v.save(ctx, w, set, by, databases) })
}

func (v Vault) save(ctx context.Context, w Watcher, set, by string, databases []string) (Saved, error) {
	s := Saved{Set: set, By: by, prefix: v.index(set) + "_"}
	if err := v.Drop(ctx, set); err != nil {
		return s, err
	}
	for _, d := range databases {
		if _, err := v.Admin.EnsureDatabase(ctx, nil, s.Copy(d)); err != nil {
			return s, err
		}
	}
	var err error
	if s.Definitions, err = dump.Definitions(ctx, v.Admin, databases); err != nil {
		return s, err
	}
	s.Time = time.Now().UTC().Truncate(time.Second)
	if s.Data, err = copyPieces(ctx, w, v.Admin, v.Admin, databases, s.Copy); err != nil {
		return s, err
	}
	after, err := dump.Definitions(ctx, v.Admin, databases)
	if err != nil {
		return s, err
	}
	for d, was := range s.Definitions {
		if after[d] != was {
			return s, fmt.Errorf("copying database %q: %w", d, dump.ErrSchemaChanged)
		}
	}
	return s, v.write(ctx, s)
}

func (v Vault) write(ctx context.Context, s Saved) error {
	name := v.index(s.Set)
	if _, err := v.Admin.EnsureDatabase(ctx, nil, name); err != nil {
		return err
	}
	quoted, err := mysql.QuoteIdent(name)
	if err != nil {
		return err
	}
	rows := map[string]any{"": s}
	for _, d := range s.Data.Databases {
		rows[d.Name] = d
	}
	fail := func(err error) error { return v.Admin.Fail("recording the content of the copies", err) }
	c, err := v.Admin.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	const table = " (name VARCHAR(64) NOT NULL PRIMARY KEY, content LONGTEXT NOT NULL) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
	if _, err := c.ExecContext(ctx, "CREATE TABLE "+quoted+".content"+table); err != nil {
		return fail(err)
	}
	tx, err := c.BeginTx(ctx, nil)
	if err != nil {
		return fail(err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after the commit
	for key, value := range rows {
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO "+quoted+".content VALUES (?, ?)", key, string(text)); err != nil {
			return fail(err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fail(err)
	}
	return nil
}

// Read returns a set; there is false if the set does not exist, or is incomplete.
func (v Vault) Read(ctx context.Context, set string) (s Saved, there bool, err error) {
	name := v.index(set)
	owned, _, err := v.Admin.Owned(ctx)
	if err != nil || !slices.Contains(owned, name) {
		return Saved{}, false, err
	}
	tables, err := v.Admin.Tables(ctx, name)
	if err != nil || len(tables) == 0 {
		return Saved{}, false, err
	}
	quoted, err := mysql.QuoteIdent(name)
	if err != nil {
		return Saved{}, false, err
	}
	c, err := v.Admin.Conn(ctx)
	if err != nil {
		return Saved{}, false, err
	}
	defer c.Close()
	rows, err := c.QueryContext(ctx, "SELECT name, content FROM "+quoted+".content ORDER BY name")
	if err != nil {
		return Saved{}, false, v.Admin.Fail("reading the record of the copies", err)
	}
	defer rows.Close()
	s.prefix = name + "_"
	for rows.Next() {
		var key string
		var text sql.RawBytes
		if err = rows.Scan(&key, &text); err == nil {
			if key == "" {
				there, err = true, json.Unmarshal(text, &s)
			} else {
				d := dump.DatabaseSummary{}
				err = json.Unmarshal(text, &d)
				s.Data.Databases = append(s.Data.Databases, d)
			}
		}
		if err != nil {
			return Saved{}, false, v.Admin.Fail("reading the record of the copies", err)
		}
	}
	return s, there, rows.Err()
}

// Try creates a database with a table, alters the table, and drops both, to find out early whether the server refuses any of this.
func (v Vault) Try(ctx context.Context) error {
	name := v.index("try")
	if _, err := v.Admin.EnsureDatabase(ctx, nil, name); err != nil {
		return err
	}
	quoted, err := mysql.QuoteIdent(name)
	if err != nil {
		return err
	}
	c, err := v.Admin.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	var failed error
	for _, statement := range []string{"CREATE TABLE IF NOT EXISTS %s.t (id INT PRIMARY KEY)", "INSERT IGNORE INTO %s.t VALUES (1)",
		"ALTER TABLE %s.t MODIFY COLUMN id BIGINT"} {
		if _, err := c.ExecContext(ctx, fmt.Sprintf(statement, quoted)); err != nil {
			failed = v.Admin.Fail("testing whether a table can be created and altered", err)
			break
		}
	}
	return errors.Join(failed, v.Admin.DropDatabase(context.WithoutCancel(ctx), name))
}

// Drop removes a set, its index first.
func (v Vault) Drop(ctx context.Context, set string) error {
	_, err := drop(ctx, v.Admin, func(name string) bool { return name == v.index(set) || strings.HasPrefix(name, v.index(set)+"_") })
	return err
}

// Keep removes all other sets.
func (v Vault) Keep(ctx context.Context, sets ...string) error {
	_, err := drop(ctx, v.Admin, v.notOf(sets))
	return err
}

// Frees returns the space that Keep would free, in bytes, as the server estimates it.
func (v Vault) Frees(ctx context.Context, sets ...string) (int64, error) {
	owned, _, err := v.Admin.Owned(ctx)
	if err != nil {
		return 0, err
	}
	goes := v.notOf(sets)
	return v.Admin.Size(ctx, slices.DeleteFunc(owned, func(name string) bool { return !goes(name) })...)
}

// notOf returns a function that reports whether a database belongs to a set that is not in sets.
func (v Vault) notOf(sets []string) func(name string) bool {
	return func(name string) bool {
		set, _, _ := strings.Cut(strings.TrimPrefix(name, v.prefix()), "_")
		return strings.HasPrefix(name, v.prefix()) && !slices.Contains(sets, set)
	}
}

// drop drops some databases of a cloud, in the order of their names, so that an index goes before the copies it lists. It returns the cloud's accounts.
func drop(ctx context.Context, a *mysql.Admin, which func(name string) bool) (accounts []string, err error) {
	owned, accounts, err := a.Owned(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range owned {
		if which(name) {
			if err := a.DropDatabase(ctx, name); err != nil {
				return nil, err
			}
		}
	}
	return accounts, nil
}

// Changed returns the databases of a set whose definitions have changed, or that are gone.
func (v Vault) Changed(ctx context.Context, s Saved) ([]string, error) {
	there, err := v.Admin.Databases(ctx)
	if err != nil {
		return nil, err
	}
	var have, out []string
	for _, d := range s.Databases() {
		if slices.Contains(there, d) {
			have = append(have, d)
		} else {
			out = append(out, d)
		}
	}
	now, err := dump.Definitions(ctx, v.Admin, have)
	if err != nil {
		return nil, err
	}
	out = append(out, lists.Filter(have, func(d string) bool { return now[d] != s.Definitions[d] })...)
	slices.Sort(out)
	return out, nil
}

// Since returns how the rows of databases differ now from those of a set, one line per table.
func (v Vault) Since(ctx context.Context, s Saved, databases []string) ([]string, error) {
	there, err := v.Admin.Databases(ctx)
	if err != nil {
		return nil, err
	}
	now, err := dump.Examine(ctx, v.Admin, slices.DeleteFunc(slices.Clone(databases), func(d string) bool { return !slices.Contains(there, d) }))
	if err != nil {
		return nil, err
	}
	return grown(s.only(databases).Data, now), nil
}

// grown returns how the rows of the later summary differ, one line per table.
func grown(then, now dump.Summary) []string {
	was := then.Tables()
	var out []string
	for _, d := range now.Databases {
		for _, t := range d.Tables {
			name := d.Name + "." + t.Name
			old, there := was[name]
			switch {
			case !there:
				out = append(out, fmt.Sprintf("%s: a new table with %s", name, lists.Counted(t.Rows, "row")))
			case old.Rows != t.Rows:
				out = append(out, fmt.Sprintf("%s: %s, had %d", name, lists.Counted(t.Rows, "row"), old.Rows))
			case old.Checksum != t.Checksum:
				out = append(out, fmt.Sprintf("%s: %s as before, with different values or columns", name, lists.Counted(t.Rows, "row")))
			}
		}
	}
	return out
}

// Restore replaces databases with their copies, and compares each row. If interrupted, it must be run again. Services must not run meanwhile.
func (v Vault) Restore(ctx context.Context, w Watcher, s Saved, databases []string) error {
	var copies []string
	back := map[string]string{}
	for _, d := range databases {
		copies = append(copies, s.Copy(d))
		back[s.Copy(d)] = d
	}
	_, err := copyInto(ctx, w, v.Admin, v.Admin, copies, func(c string) string { return back[c] })
	return err
}

// only returns the set with just these databases.
func (s Saved) only(databases []string) Saved {
	s.Data.Databases = slices.DeleteFunc(slices.Clone(s.Data.Databases), func(d dump.DatabaseSummary) bool { return !slices.Contains(databases, d.Name) })
	return s
}

// Differs returns how the rows of a later set differ from this one, one line per table.
func (s Saved) Differs(later Saved) []string {
	return grown(s.only(later.Databases()).Data, later.Data)
}
