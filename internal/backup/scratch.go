// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/mysql"
)

// scratchPrefix is the prefix of databases that hold temporary copies.
const scratchPrefix = "ocadm_scratch_"

// Scratch is a set of databases for a temporary copy, on the server of a cloud's databases and marked as the cloud's. A cloud has one set at a time.
type Scratch struct {
	admin   *mysql.Admin
	owner   string
	names   []string
	release func()
}

// NewScratch creates an empty database for each name. It first drops the leftovers of an interrupted run.
func NewScratch(ctx context.Context, a *mysql.Admin, cloudID string, databases []string) (*Scratch, error) {
	s := &Scratch{admin: a, owner: digest([]byte(cloudID))[:8]}
	var err error
	if s.release, err = a.Lock(ctx, scratchPrefix+s.owner); err != nil {
		return nil, err
	}
	s.names = databases
	err = s.drop(ctx)
	for _, d := range databases {
		if err == nil {
			_, err = a.EnsureDatabase(ctx, nil, s.Name(d))
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

func (s *Scratch) Name(database string) string {
	return within(scratchPrefix+s.owner+"_", database)
}

// Close drops the databases, even if ctx has ended.
func (s *Scratch) Close(ctx context.Context) error {
	defer s.release()
	return s.drop(context.WithoutCancel(ctx))
}

func (s *Scratch) drop(ctx context.Context) error {
	accounts, err := drop(ctx, s.admin, func(name string) bool { return strings.HasPrefix(name, scratchPrefix+s.owner+"_") })
	if err != nil || !slices.Contains(accounts, s.User()) { // an account of that name may be another cloud's
		return err
	}
	return s.admin.DropAccount(ctx, s.User())
}

// User returns the name of the account that Grant creates.
func (s *Scratch) User() string { return scratchPrefix + s.owner }

// Grant creates an account with all privileges on these databases, and none on any other. Close drops it.
func (s *Scratch) Grant(ctx context.Context, password string) error {
	for _, d := range s.names {
		if _, err := s.admin.EnsureAccount(ctx, nil, mysql.Account{User: s.User(), Password: password, Database: s.Name(d)}); err != nil {
			return err
		}
	}
	return nil
}

// Databases returns the databases of a cloud to back up: all existing ones that it owns, including those of disabled components, but no copies.
func Databases(ctx context.Context, a *mysql.Admin) ([]string, error) {
	owned, _, err := a.Owned(ctx)
	if err != nil {
		return nil, err
	}
	there, err := a.Databases(ctx)
	if err != nil {
		return nil, err
	}
	out := []string{}
	for _, n := range owned {
		if slices.Contains(there, n) && !strings.HasPrefix(n, scratchPrefix) && !strings.HasPrefix(n, savedPrefix) {
			out = append(out, n)
		}
	}
	return out, nil
}
