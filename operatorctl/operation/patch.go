// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
)

// place returns the fields of a spec that say where a cloud and its servers are, and which secrets it uses for them. A rollback keeps them: an earlier
// database server would be rejected, an earlier password would be wrong, and nothing answers at an address from before "ocadm move". It also keeps fields
// that cannot change, those that no release contains, and the whole block of the backups: earlier values would delete data and backups that a user has
// decided to keep, or end a schedule that was set since. Another storage class is another volume, without what was written since.
func place() [][]string {
	return append(lists.Pick(catalog.All(), func(c component.Component) ([]string, bool) {
		return append(c.BlockPath(), "storageClassName"), c.Storage != nil
	}), [][]string{
		{"region"}, {"zone"}, {"etcd", "size"}, {"deletionPolicy"}, {"backup"}, {"machines"},
		{"loadBalancerEndpoint"}, {"mysql"}, {"clickhouse"}, {"dameng"}, {"keystone", "bootstrapPassword"},
	}...)
}

// withoutPlace removes these fields from two specs to compare. A block that loses a field is kept in both: otherwise the patch would remove the whole block.
func withoutPlace(a, b map[string]any) {
	for _, path := range place() {
		for _, spec := range []map[string]any{a, b} {
			unstructured.RemoveNestedField(spec, path...)
		}
		block := path[0]
		if len(path) == 1 || a[block] == nil && b[block] == nil {
			continue
		}
		for _, spec := range []map[string]any{a, b} {
			if spec[block] == nil {
				spec[block] = map[string]any{}
			}
		}
	}
}

// printable matches the fields whose values hold no secret.
var printable = regexp.MustCompile(`^(spec[.](version|imageRepository|profile|disableResourceManagement)|spec[.][A-Za-z]+[.](tag|disable|replicas)|metadata[.]annotations[.]` +
	regexp.QuoteMeta(v1alpha1.AnnotationEdition) + `)$`)

// changedFields lists the fields that a merge patch changes, with the values of those that hold no secret. It is pure.
func changedFields(patch map[string]any) string {
	var out []string
	var walk func(path string, v any)
	walk = func(path string, v any) {
		if block, is := v.(map[string]any); is {
			for _, key := range slices.Sorted(maps.Keys(block)) {
				walk(strings.TrimPrefix(path+"."+key, "."), block[key])
			}
			return
		}
		switch {
		case v == nil:
			path += ": (none)"
		case printable.MatchString(path):
			path += ": " + cmp.Or(fmt.Sprint(v), `""`)
		}
		out = append(out, path)
	}
	walk("", patch)
	return strings.Join(out, ", ")
}
