// SPDX-License-Identifier: Apache-2.0

package adopt

import (
	"slices"

	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// derived are the fields of a block that the earlier operator worked out and wrote into the spec: no user chose them.
var derived = []string{"image", "imageName", "imagePullPolicy", "initContainerImage", "version", "limits", "affinity", "nodeSelector",
	"tolerations", "createdSecrets"}

// Derived returns a test: whether a field of the resource (a path from its root), owned by the earlier operator, is a default of it that may
// give way to ours. What it wrote beside these (version, registry, region, ports, sizes of volumes, what is disabled, the administrator's
// password) describes the cloud as it is, and stays.
func Derived(spec *v1alpha1.OnecloudClusterSpec) func(fieldpath.Path) bool {
	return func(p fieldpath.Path) bool {
		names := make([]string, len(p))
		for i, e := range p {
			if e.FieldName != nil {
				names[i] = *e.FieldName
			}
		}
		if len(names) < 3 || names[0] != "spec" || spec.Component(names[1]) == nil {
			return false
		}
		block, rest := names[1], names[2:]
		if len(rest) > 1 && spec.Container(block+"."+rest[0]) != nil {
			block, rest = block+"."+rest[0], rest[1:]
		}
		switch {
		case slices.Contains(derived, rest[0]):
			return true
		case rest[0] == "requests":
			return len(rest) == 2 && rest[1] != "storage"
		case rest[0] == "replicas" && len(rest) == 1:
			// One, or none because it was disabled; a greater number is a choice.
			n := spec.Component(block).Replicas
			return n == nil || *n <= 1
		}
		return false
	}
}
