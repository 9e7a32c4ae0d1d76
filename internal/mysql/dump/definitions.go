// SPDX-License-Identifier: Apache-2.0

package dump

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"yunion.io/x/ocadm/internal/mysql"
)

// Definitions returns, by database, a SHA-256 of the definitions of its tables, views and programs. The hash covers neither rows, nor AUTO_INCREMENT
// counters, nor the name of the database.
func Definitions(ctx context.Context, a *mysql.Admin, databases []string) (map[string]string, error) {
	s, err := newSession(ctx, a, readSession...)
	if err != nil {
		return nil, err
	}
	defer s.close()
	all, err := s.schemas(ctx, databases)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, d := range all {
		h := sha256.New()
		for _, t := range d.tables {
			fmt.Fprintf(h, "table %q %q\n", t.name, withoutCounter(t.create))
		}
		for _, p := range d.others {
			fmt.Fprintf(h, "%s %q %q\n", p.Kind, p.Name, p.SQL)
		}
		out[d.name] = hex.EncodeToString(h.Sum(nil))
	}
	return out, nil
}
