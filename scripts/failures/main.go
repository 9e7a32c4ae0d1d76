// SPDX-License-Identifier: Apache-2.0

// Command failures prints the messages of failed tests. It reads the output of go test -json from the file that gotestsum names in GOTESTSUM_JSONFILE for
// its --post-run-command. It omits the logs of commands, which tests write from a file named story_test.go: an end-to-end test has thousands of such
// lines, which would hide the relevant one.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
)

func main() {
	f, err := os.Open(os.Getenv("GOTESTSUM_JSONFILE"))
	if err == nil {
		defer f.Close()
		err = list(os.Stdout, f)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "reading the output of the tests: %v\n", err)
		os.Exit(1)
	}
}

// list reads the output of go test -json (see go doc test2json), in which a test's output precedes its end.
func list(out io.Writer, in io.Reader) error {
	said := map[string][]string{}
	for d := json.NewDecoder(in); ; {
		var e struct{ Action, Package, Test, Output string }
		if err := d.Decode(&e); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
		test := strings.TrimSpace(e.Package + " " + e.Test)
		if said[test] = append(said[test], e.Output); e.Action == "fail" {
			fmt.Fprint(out, reported(test, said[test]))
		}
	}
}

var (
	logged = regexp.MustCompile(`^ +([\w.-]+_test\.go):\d+: `)
	frame  = regexp.MustCompile(`^\s*(=== |--- |ok\s|FAIL|PASS|exit status|$)`)
)

// reported returns a test's output without the lines of go test itself and of stories. A message may span several lines.
func reported(test string, output []string) string {
	text, story := "", false
	for _, line := range output {
		if m := logged.FindStringSubmatch(line); m != nil {
			story = m[1] == "story_test.go"
		}
		if !story && !frame.MatchString(line) {
			text += line
		}
	}
	if text == "" {
		return ""
	}
	return "=== " + test + " reported:\n" + text
}
