// SPDX-License-Identifier: Apache-2.0

package clickhouse

import "context"

// Belonging says whose an account and its database are.
type Belonging string

const (
	// Free: neither exists.
	Free Belonging = "free"
	// Ours: the account takes the cloud's own password, and has been granted its database where that exists. The server keeps no other mark:
	// not every release has comments that can be set on what exists.
	Ours Belonging = "ours"
	// Foreign is anything else.
	Foreign Belonging = "foreign"
)

// Belongs returns the owner of an account and its database. It writes nothing.
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
