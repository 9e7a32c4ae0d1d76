// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"slices"
	"strings"

	"yunion.io/x/ocadm/internal/backup"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/mysql/dump"
)

// intact returns an error if copies do not hold what was saved. They are databases on a server that others can write to, too.
func intact(ctx context.Context, v backup.Vault, saved backup.Saved, databases []string) error {
	names, original := make([]string, len(databases)), map[string]string{}
	for i, d := range databases {
		names[i] = saved.Copy(d)
		original[names[i]] = d
	}
	there, err := v.Admin.Databases(ctx)
	if err != nil {
		return err
	}
	have, err := dump.Examine(ctx, v.Admin, slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(there, name) }))
	if err != nil {
		return err
	}
	lines := altered(saved.Data, have, databases, original)
	if len(lines) == 0 {
		return nil
	}
	return finding.New("OCA-7076", "The copies of the databases were changed", strings.Join(bounded(lines), "; "),
		"undo the change in databases "+saved.Prefix()+"…, then: ocadm operation resume NAME; or restore a backup: ocadm cluster backup list")
}

// altered returns how copies differ from what was saved, one line per table. It is pure.
func altered(saved, have dump.Summary, databases []string, original map[string]string) []string {
	for i, d := range have.Databases {
		have.Databases[i].Name = original[d.Name]
	}
	saved.Databases = slices.DeleteFunc(slices.Clone(saved.Databases), func(d dump.DatabaseSummary) bool { return !slices.Contains(databases, d.Name) })
	same := func(d string) string { return d }
	lines := backup.Same(saved, have, same)
	for _, line := range backup.Same(have, saved, same) {
		if table, is := strings.CutSuffix(line, " is missing"); is {
			lines = append(lines, table+" was not saved")
		}
	}
	for _, d := range databases {
		if !slices.ContainsFunc(have.Databases, func(h dump.DatabaseSummary) bool { return h.Name == d }) {
			lines = append(lines, "the copy of "+d+" is missing")
		}
	}
	return lines
}
