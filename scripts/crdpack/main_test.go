// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

const generated = `
metadata: {name: x, annotations: {by: generator}}
spec: {versions: [{schema: {openAPIV3Schema: {properties: {spec: {type: object}}}}}]}
`

// The revision counts changes: packing an unchanged CRD again leaves the file as it is.
func TestRevision(t *testing.T) {
	pack := func(in, before string) string {
		t.Helper()
		var b strings.Builder
		require.NoError(t, pack(strings.NewReader(in), &b, []byte(before)))
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

// TestBounded checks that the format is removed only where a minimum and a maximum are stricter.
func TestBounded(t *testing.T) {
	number := func(more string) string { return "{type: integer, format: int32" + more + "}" }
	in := strings.ReplaceAll(generated, "{type: object}", "{properties: {a: "+number(", minimum: 0, maximum: 100")+", b: "+number(", minimum: 0")+", c: {items: "+
		number(", minimum: 1, maximum: 2")+"}}}")
	var b strings.Builder
	require.NoError(t, pack(strings.NewReader(in), &b, nil))
	if n := strings.Count(b.String(), "int32"); n != 1 || !strings.Contains(b.String(), `b: {"format":"int32","minimum":0,"type":"integer"}`) {
		t.Errorf("%d formats:\n%s", n, b.String())
	}
}
