// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/mysql"
)

// scratchPrefix begins the names of databases that hold a copy for a while.
const scratchPrefix = "ocadm_scratch_"

// Scratch are databases beside those of a cloud, on the same server and marked as the cloud's, for a copy. There is one set for a cloud at a time.
type Scratch struct {
	admin   *mysql.Admin
	owner   string
	names   []string
	release func()
}

// NewScratch makes an empty database for each name. What an interrupted run left is dropped first.
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

// Name of the database that stands for another one.
func (s *Scratch) Name(database string) string {
	return within(scratchPrefix+s.owner+"_", database)
}

// Close drops the databases, even when ctx has ended.
func (s *Scratch) Close(ctx context.Context) error {
	defer s.release()
	return s.drop(context.WithoutCancel(ctx))
}

func (s *Scratch) drop(ctx context.Context) error {
	err := drop(ctx, s.admin, func(name string) bool { return strings.HasPrefix(name, scratchPrefix+s.owner+"_") })
	if err != nil {
		return err
	}
	_, accounts, err := s.admin.Owned(ctx)
	if err != nil || !slices.Contains(accounts, s.User()) { // an account of that name may be another cloud's
		return err
	}
	return s.admin.DropAccount(ctx, s.User())
}

// User is the account that Grant makes.
func (s *Scratch) User() string { return scratchPrefix + s.owner }

// Grant makes an account that may do everything in these databases, and nothing in any other. Close drops it.
func (s *Scratch) Grant(ctx context.Context, password string) error {
	for _, d := range s.names {
		if _, err := s.admin.EnsureAccount(ctx, nil, mysql.Account{User: s.User(), Password: password, Database: s.Name(d)}); err != nil {
			return err
		}
	}
	return nil
}

// Databases are those of a cloud that are backed up: all that it owns and that exist, including those of disabled components. Copies are not.
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
