// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"context"
	"slices"

	"yunion.io/x/ocadm/internal/mysql"
)

// progress is the progress of a replica since its server started.
type progress struct {
	following, caughtUp, diverged bool
	target                        string // the last event of the primary when the replica connected
	ownersAt                      string // the last event of the primary when its owners were checked
	ownersSeen                    bool   // whether the owners were checked, and nothing is missing
	lacking                       string
}

// catchUp notes when a replica has received everything that the primary had at the first check after the replica connected.
func (p *progress) catchUp(ctx context.Context, r mysql.Replication, primary remote) {
	if !p.caughtUp && p.target == "" {
		source, err := primary.ask(ctx)
		if err != nil {
			return
		}
		p.target = source.Binlog
	}
	p.caughtUp = p.caughtUp || mysql.Sequence(r.Received) >= mysql.Sequence(p.target)
}

const lacksOwners = "it has no record of the owners of the databases"

// lookForOwners detects a replica that was copied without the record of owners, as earlier versions did. Such a replica stops at the next database
// that is created, and if it became the primary, backups and updates would find no database of any cloud.
func (p *progress) lookForOwners(ctx context.Context, db *mysql.Admin, r mysql.Replication, primary remote) error {
	if p.ownersSeen || p.lacking != "" {
		return nil
	}
	mine, err := db.Schemas(ctx)
	if err != nil {
		return err
	}
	if slices.Contains(mine, mysql.OwnersDatabase) {
		p.ownersSeen = true
		return nil
	}
	if p.ownersAt == "" {
		source, err := mysql.Open(ctx, primary.config())
		if err != nil {
			return err
		}
		defer source.Close()
		theirs, err := source.Schemas(ctx)
		if err != nil {
			return err
		}
		if !slices.Contains(theirs, mysql.OwnersDatabase) {
			p.ownersSeen = true // one that is created from now on is replicated
			return nil
		}
		state, err := source.Replication(ctx)
		if err != nil {
			return err
		}
		p.ownersAt = state.Binlog
	}
	// The database may still be on its way.
	if mysql.Sequence(r.Applied) >= mysql.Sequence(p.ownersAt) || r.Error != "" && !r.Applying {
		p.lacking = lacksOwners
	}
	return nil
}
