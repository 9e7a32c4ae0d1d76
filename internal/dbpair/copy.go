// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"yunion.io/x/ocadm/internal/mysql"
	"yunion.io/x/ocadm/internal/mysql/dump"
)

// copyTime bounds a copy.
const copyTime = 24 * time.Hour

// copyPatience is how long one statement of a copy may take.
const copyPatience = time.Hour

// beginCopy fills an emptied server with a copy of the primary, beside the loop of the agent. collectCopy hears of its end.
func (a *Agent) beginCopy(ctx context.Context) error {
	if a.copying != nil {
		return nil // the one that was interrupted has not ended yet
	}
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := a.askSource(limited); err != nil { // before anything is given up
		return fmt.Errorf("reaching the primary: %w", err)
	}
	a.copyFailed = time.Now() // until it has begun
	if err := a.empty(limited); err != nil {
		return err
	}
	if err := a.start(Copying, false); err != nil {
		return err
	}
	if _, err := a.awaitServer(limited); err != nil {
		a.stop(true)
		return err
	}
	a.closeLocal() // the copy has a connection of its own
	a.copyFailed = time.Time{}
	done := make(chan error, 1)
	a.copying = done
	go func() {
		ctx, cancel := context.WithTimeout(ctx, copyTime)
		defer cancel()
		at, err := a.copy(ctx)
		a.copiedAt = at
		done <- err
	}()
	return nil
}

// copy copies all databases and accounts, with the record of who owns which database, and compares every row. It returns the last event that they hold.
func (a *Agent) copy(ctx context.Context) (at string, err error) {
	from, to := a.sourceConfig(), a.socketConfig()
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
	if !slices.Equal(databases, now) { // one that was made before the snapshot would be missing
		return "", errors.New("databases were made or dropped during the copy")
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
	after, err := source.AccountStatements(ctx)
	if err != nil {
		return "", err
	}
	if !slices.Equal(accounts, after) {
		return "", errors.New("accounts were changed during the copy")
	}
	return at, target.MakeAccounts(ctx, accounts)
}

// sameRows compares the tables that were copied; what depends on them is made afterwards.
func sameRows(want, got dump.Summary) bool {
	for i := range want.Databases {
		want.Databases[i].Others = 0
	}
	for i := range got.Databases {
		got.Databases[i].Others = 0
	}
	return reflect.DeepEqual(want, got)
}

// collectCopy takes the end of a copy over: the server starts again as a replica whose log begins where the copy ends. The volume is marked as complete
// last, so whatever is interrupted begins anew.
func (a *Agent) collectCopy(ctx context.Context) {
	if a.copying == nil {
		return
	}
	select {
	case err := <-a.copying:
		a.copying = nil
		if err != nil {
			a.copyFailed = time.Now()
		}
		if a.mode != Copying {
			return // the server was stopped meanwhile
		}
		a.stop(err != nil)
		if err == nil {
			err = a.beginLog(ctx)
		}
		if err != nil {
			a.copyError, a.copyFailed = err.Error(), time.Now() // beginLog may have failed, too
			a.Log.Warn("not copied", "error", err)
			return
		}
		a.copyError = ""
		a.Log.Info("copied", "at", a.copiedAt)
	default:
	}
}

// sinceFailedCopy is how long ago the last copy failed, 0 if it did not.
func (a *Agent) sinceFailedCopy() time.Duration {
	if a.copyFailed.IsZero() {
		return 0
	}
	return max(1, time.Since(a.copyFailed))
}

// beginLog starts a copied server once as a replica and sets where its log begins.
func (a *Agent) beginLog(ctx context.Context) error {
	if err := a.start(Replica, false); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	db, err := a.awaitServer(ctx)
	if err == nil {
		err = db.Begin(ctx, a.copiedAt)
	}
	if err == nil {
		err = a.confirm()
	}
	if err != nil {
		a.stop(true)
	}
	return err
}
