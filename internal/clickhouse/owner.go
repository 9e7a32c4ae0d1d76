// SPDX-License-Identifier: Apache-2.0

package clickhouse

import "context"

// Belonging is the ownership of an account and its database.
type Belonging string

const (
	// Free means that neither exists.
	Free Belonging = "free"
	// Ours means that the account accepts the cloud's own password, and has privileges on its database if that exists. The server has no other mark:
	// not every release can set comments on existing objects.
	Ours Belonging = "ours"
	// Foreign means anything else.
	Foreign Belonging = "foreign"
)

// Belongs returns who owns an account and its database. It writes nothing.
func (a *Admin) Belongs(ctx context.Context, snap *Snapshot, acc Account) (Belonging, error) {
	there := snap.has(acc.Database)
	if !snap.knows(acc.User) {
		if there {
			return Foreign, nil
		}
		return Free, nil
	}
	switch err := a.VerifyAccount(ctx, acc); {
	case ClassOf(err) == AccessDenied:
		return Foreign, nil
	case err != nil:
		return "", err
	case there && !snap.may(acc.User, "SELECT", acc.Database):
		return Foreign, nil
	}
	return Ours, nil
}
