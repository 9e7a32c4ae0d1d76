// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"fmt"
	"slices"
	"strings"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// CodeHalfRestored is the finding about an operation that cannot be given up.
const CodeHalfRestored = "OCA-7077"

// HalfRestored says which databases a paused operation has begun to replace on its way back, and where their copies are; "" if none. To give it up would let
// services start on them: they hold neither what they held nor what they are to hold. It is pure.
func HalfRestored(s *v1alpha1.OnecloudOperationStatus) string {
	if s.Phase != v1alpha1.OperationPaused || !reverts(s) || s.Databases == nil || len(s.Databases.Restoring) == 0 {
		return ""
	}
	var prefixes []string
	for _, from := range sources(s) {
		if slices.ContainsFunc(from.databases, func(d string) bool { return slices.Contains(s.Databases.Restoring, d) }) {
			prefixes = append(prefixes, prefixOf(s.Databases, from.set)+"…")
		}
	}
	where := "their copies"
	if len(prefixes) > 0 {
		where = "their copies in databases " + strings.Join(prefixes, ", ")
	}
	return fmt.Sprintf("databases %s are half replaced by %s, and services would start on them", strings.Join(s.Databases.Restoring, ", "), where)
}

// prefixOf is that of the copies in a set.
func prefixOf(d *v1alpha1.OperationDatabases, set string) string {
	for _, c := range d.Replaced {
		if c.Set == set {
			return c.Prefix
		}
	}
	return d.Saved.Prefix
}
