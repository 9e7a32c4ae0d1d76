// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	driverpkg "github.com/go-sql-driver/mysql"
)

// used lists what columns use, as "CHARSET COLLATION". A table without such a column works with any default.
const used = "SELECT DISTINCT CONCAT(CHARACTER_SET_NAME, ' ', COLLATION_NAME) FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = ? AND COLLATION_NAME IS NOT NULL"

var collation = regexp.MustCompile(`^([A-Za-z0-9]+) ([A-Za-z0-9_]+)$`)

// UnknownCollation reports whether the server does not have a character set or a collation.
func UnknownCollation(err error) bool {
	my, ok := errors.AsType[*driverpkg.MySQLError](err)
	return ok && (my.Number == 1115 || my.Number == 1273)
}

// Accepts returns an error if the server lacks a collation of databases on another server: MySQL and MariaDB have different ones.
func (a *Admin) Accepts(ctx context.Context, from *Admin, databases ...string) error {
	var all []string
	for _, d := range databases {
		some, err := strings1(ctx, from.cfg, from.db, used, d)
		if err != nil {
			return from.fail("reading the collations of the databases", err, NoCreate)
		}
		all = append(all, some...)
	}
	slices.Sort(all)
	return a.has(ctx, slices.Compact(all))
}

func (a *Admin) has(ctx context.Context, collations []string) error {
	const op = "copying the databases"
	var lacking []string
	for _, c := range collations {
		m := collation.FindStringSubmatch(c)
		if m == nil {
			continue
		}
		err := exec(ctx, a.cfg, a.db, "DO CONVERT('' USING "+m[1]+") COLLATE "+m[2])
		if UnknownCollation(err) {
			lacking = append(lacking, m[2])
		} else if err != nil {
			return a.fail(op, err, NoCreate)
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	return &Error{Class: NoCollation, Op: op, Server: a.cfg.Addr(), User: a.cfg.User,
		Detail: "the server does not have the collations " + strings.Join(lacking, ", ") + ", which the databases use; use another server, or convert their tables first"}
}
