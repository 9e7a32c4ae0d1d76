// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

const generated = `
metadata: {name: x, annotations: {by: generator}}
spec: {versions: [{schema: {openAPIV3Schema: {properties: {spec: {type: object}}}}}]}
`

// The revision counts changes: packed again without one, the file stays as it is.
func TestRevision(t *testing.T) {
	pack := func(in, before string) string {
		t.Helper()
		var b strings.Builder
		if err := pack(strings.NewReader(in), &b, []byte(before)); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	revision := func(text, want string) {
		t.Helper()
		if !strings.Contains(text, `onecloud.yunion.io/definition-revision: "`+want+`"`) {
			t.Errorf("not revision %s:\n%s", want, text)
		}
	}
	first := pack(generated, "")
	revision(first, "1")
	if again := pack(generated, first); again != first {
		t.Errorf("packed again it is\n%s", again)
	}
	changed := pack(strings.ReplaceAll(generated, "type: object", "type: object, nullable: true"), first)
	revision(changed, "2")
	revision(pack(generated, changed), "3")
}
