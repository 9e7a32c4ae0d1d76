// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/mysql/dump"
)

// copyTime limits the duration of a copy.
const copyTime = 24 * time.Hour

// copyPatience limits the duration of one statement of a copy.
const copyPatience = time.Hour

// copier fills an emptied server with a copy of the primary.
type copier struct {
	local   *local
	remote  remote
	log     *slog.Logger
	copying chan error
	// at is the last event in a copy, and problem the reason why the last one failed.
	at, problem string
	failed      time.Time // zero if the last copy did not fail
}

// begin starts a copy in the background. collect receives its result.
func (c *copier) begin(ctx context.Context) error {
	if c.copying != nil {
		return nil // the interrupted copy has not ended yet
	}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := c.remote.ask(limited); err != nil { // before anything is deleted
		return fmt.Errorf("reaching the primary: %w", err)
	}
	c.failed = time.Now() // reset once the copy has started
	if err := c.local.files.empty(limited, c.local.programs); err != nil {
		return err
	}
	if err := c.local.start(Copying, false); err != nil {
		return err
	}
	if _, err := c.local.await(limited); err != nil {
		c.local.stop(true)
		return err
	}
	c.local.close() // the copy has its own connection
	c.failed = time.Time{}
	done := make(chan error, 1)
	c.copying = done
	go func() {
		ctx, cancel := context.WithTimeout(ctx, copyTime)
		defer cancel()
		at, err := copyAll(ctx, c.log, c.remote.config(), c.local.config)
		c.at = at
		done <- err
	}()
	return nil
}

// copyAll copies all databases and accounts, including the record of owners, and compares every row. It returns the last event that the copy includes.
func copyAll(ctx context.Context, log *slog.Logger, from, to mysql.Config) (at string, err error) {
	from.Patience, to.Patience = copyPatience, copyPatience
	source, err := mysql.Open(ctx, from)
	if err != nil {
		return "", err
	}
	defer source.Close()
	target, err := mysql.Open(ctx, to)
	if err != nil {
		return "", err
	}
	defer target.Close()
	databases, err := source.Schemas(ctx)
	if err != nil {
		return "", err
	}
	accounts, err := source.AccountStatements(ctx)
	if err != nil {
		return "", err
	}
	if err := target.MakeDatabases(ctx, databases); err != nil {
		return "", err
	}
	load, err := dump.NewLoader(ctx, target, func(d string) string { return d })
	if err != nil {
		return "", err
	}
	defer load.Close()
	want, at, err := dump.At(ctx, source, databases, func(p dump.Piece) error { return load.Load(ctx, p) })
	if err != nil {
		return "", err
	}
	now, err := source.Schemas(ctx)
	if err != nil {
		return "", err
	}
	if !slices.Equal(databases, now) { // one that was created before the snapshot would be missing
		return "", errors.New("databases were created or dropped during the copy")
	}
	got, err := dump.Examine(ctx, target, databases)
	if err != nil {
		return "", err
	}
	if !sameRows(want, got) {
		return "", errors.New("comparing the copy: it differs from the primary")
	}
	if err := load.Finish(ctx); err != nil {
		return "", err
	}
	for _, v := range load.LeftOut {
		log.Warn("left out what uses something that does not exist", "object", v)
	}
	after, err := source.AccountStatements(ctx)
	if err != nil {
		return "", err
	}
	if !slices.Equal(accounts, after) {
		return "", errors.New("accounts were changed during the copy")
	}
	return at, target.MakeAccounts(ctx, accounts)
}

// sameRows compares the tables that were copied; the objects that depend on them are created later.
func sameRows(want, got dump.Summary) bool {
	for i := range want.Databases {
		want.Databases[i].Others = 0
	}
	for i := range got.Databases {
		got.Databases[i].Others = 0
	}
	return reflect.DeepEqual(want, got)
}

// collect handles the end of a copy: the server restarts as a replica whose log begins where the copy ends. The volume is marked as complete last, so
// an interrupted copy starts over.
func (c *copier) collect(ctx context.Context) {
	if c.copying == nil {
		return
	}
	select {
	case err := <-c.copying:
		c.copying = nil
		if err != nil {
			c.failed = time.Now()
		}
		if c.local.mode != Copying {
			return // the server has been stopped meanwhile
		}
		c.local.stop(err != nil)
		if err == nil {
			err = c.beginLog(ctx)
		}
		if err != nil {
			c.problem, c.failed = err.Error(), time.Now() // beginLog may have failed as well
			c.log.Warn("copying the primary failed", "error", err)
			return
		}
		c.problem = ""
		c.log.Info("copied", "at", c.at)
	default:
	}
}

// sinceFailed returns the time since the last copy failed, 0 if it did not.
func (c *copier) sinceFailed() time.Duration {
	if c.failed.IsZero() {
		return 0
	}
	return max(1, time.Since(c.failed))
}

// beginLog starts a copied server as a replica and sets the start of its log.
func (c *copier) beginLog(ctx context.Context) error {
	if err := c.local.start(Replica, false); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	db, err := c.local.await(ctx)
	if err == nil {
		err = db.Begin(ctx, c.at)
	}
	if err == nil {
		err = c.local.files.confirm()
	}
	if err != nil {
		c.local.stop(true)
	}
	return err
}
