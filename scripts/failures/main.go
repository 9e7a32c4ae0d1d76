// SPDX-License-Identifier: Apache-2.0

// Command failures prints what the failed tests reported, from the file of go test -json that gotestsum names in GOTESTSUM_JSONFILE to
// its --post-run-command. The stories of commands, which a test logs from a file named story_test.go, are left out: an end-to-end test has
// thousands of lines of them, in which the one that says what was wrong cannot be found.
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
		fmt.Fprintf(os.Stderr, "reading what the tests reported: %v\n", err)
		os.Exit(1)
	}
}

// list reads go test -json (see go doc test2json): a test's output is before its end.
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

// reported is what a test printed, without go test's own lines and those of stories. The further lines of a message follow its first.
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
