// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "strings"

// Paused parses AnnotationPaused of a cloud: "true" is the whole cloud, otherwise a comma-separated list of components, by name or by block in the
// spec.
func Paused(annotation string) (all bool, names []string) {
	switch strings.TrimSpace(annotation) {
	case "true":
		return true, nil
	case "", "false":
		return false, nil
	}
	return false, strings.FieldsFunc(annotation, func(r rune) bool { return r == ',' || r == ' ' })
}
