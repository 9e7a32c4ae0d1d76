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
)

// place are the fields of a spec that say where a cloud and the servers that it uses are, and by which secrets they know it. They stay as they are,
// whatever release runs: a rollback that brought an earlier database server back would be refused, an earlier password would be wrong, and at the address
// of before "ocadm move" nothing answers.
var place = [][]string{
	{"loadBalancerEndpoint"}, {"mysql"}, {"clickhouse"}, {"dameng"}, {"keystone", "bootstrapPassword"},
	{"backup", "s3"}, {"backup", "hostPath"}, {"backup", "recipients"},
}

// withoutPlace leaves them out of two specs that are compared. A block of which a field is left out is in both then: else it would go as a whole.
func withoutPlace(a, b map[string]any) {
	for _, path := range place {
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

// printable are the fields whose values hold no secret.
var printable = regexp.MustCompile(`^(spec[.](version|imageRepository|profile|disableResourceManagement)|spec[.][A-Za-z]+[.](tag|disable|replicas)|metadata[.]annotations[.]` +
	regexp.QuoteMeta(v1alpha1.AnnotationEdition) + `)$`)

// changedFields names the fields that a merge patch changes, with the value of those that hold no secret. It is pure.
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
