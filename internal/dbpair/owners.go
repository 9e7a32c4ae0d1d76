// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"context"
	"slices"

	"yunion.io/x/ocadm/internal/mysql"
)

const lacksOwners = "it has no record of who owns which database"

// lookForOwners finds a replica that was copied without the record of who owns which database, as earlier versions did. Such a replica stops at the next
// database that is made, and if it became the primary, backups and updates would find no database of any cloud.
func (a *Agent) lookForOwners(ctx context.Context, db *mysql.Admin, r mysql.Replication) error {
	mine, err := db.Schemas(ctx)
	if err != nil {
		return err
	}
	if slices.Contains(mine, mysql.OwnersDatabase) {
		a.ownersSeen = true
		return nil
	}
	if a.ownersAt == "" {
		source, err := mysql.Open(ctx, a.sourceConfig())
		if err != nil {
			return err
		}
		defer source.Close()
		theirs, err := source.Schemas(ctx)
		if err != nil {
			return err
		}
		if !slices.Contains(theirs, mysql.OwnersDatabase) {
			a.ownersSeen = true // one that is made from now on is replicated
			return nil
		}
		state, err := source.Replication(ctx)
		if err != nil {
			return err
		}
		a.ownersAt = state.Binlog
	}
	// It may still be on its way.
	if mysql.Sequence(r.Applied) >= mysql.Sequence(a.ownersAt) || r.Error != "" && !r.Applying {
		a.lacking = lacksOwners
	}
	return nil
}
