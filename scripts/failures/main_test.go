// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

func TestList(t *testing.T) {
	const events = `{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: of a test that passes\n"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB/reset","Output":"    story_test.go:9: [residue] done\n"}
{"Action":"output","Package":"p","Test":"TestB/reset","Output":"        a further line of the story\n"}
{"Action":"output","Package":"p","Test":"TestB/reset","Output":"    hostile_test.go:130: node 1 after reset: link:veth1 is new\n"}
{"Action":"output","Package":"p","Test":"TestB/reset","Output":"        and a second line\n"}
{"Action":"output","Package":"p","Test":"TestB/reset","Output":"    story_test.go:9: [runtime-data] done\n"}
{"Action":"output","Package":"p","Test":"TestB/reset","Output":"    --- FAIL: TestB/reset (1.00s)\n"}
{"Action":"fail","Package":"p","Test":"TestB/reset"}
{"Action":"output","Package":"p","Test":"TestB","Output":"--- FAIL: TestB (2.00s)\n"}
{"Action":"fail","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Output":"FAIL\n"}
{"Action":"output","Package":"p","Output":"panic: test timed out\n"}
{"Action":"fail","Package":"p"}
`
	const want = `=== p TestB/reset reported:
    hostile_test.go:130: node 1 after reset: link:veth1 is new
        and a second line
=== p reported:
panic: test timed out
`
	var out strings.Builder
	if err := list(&out, strings.NewReader(events)); err != nil || out.String() != want {
		t.Errorf("printed %v:\n%s\nwant:\n%s", err, out.String(), want)
	}
	if err := list(&out, strings.NewReader(events+"{cut")); err == nil {
		t.Error("a file that is cut is read without an error")
	}
}
