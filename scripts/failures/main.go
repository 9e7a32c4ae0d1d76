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
		err = print(os.Stdout, f)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "reading what the tests reported: %v\n", err)
		os.Exit(1)
	}
}

// event is a line of go test -json. Source: go doc test2json.
type event struct{ Action, Package, Test, Output string }

func print(out io.Writer, in io.Reader) error {
	var order []string
	said, failed := map[string][]string{}, map[string]bool{}
	for d := json.NewDecoder(in); ; {
		var e event
		if err := d.Decode(&e); err == io.EOF {
			break
		} else if err != nil {
			return err
		}
		test := strings.TrimSpace(e.Package + " " + e.Test)
		switch e.Action {
		case "output":
			said[test] = append(said[test], e.Output)
		case "fail":
			failed[test] = true
			order = append(order, test)
		}
	}
	for _, test := range order {
		if lines := reported(said[test]); len(lines) > 0 {
			fmt.Fprintf(out, "=== %s reported:\n%s", test, strings.Join(lines, ""))
		}
	}
	return nil
}

var (
	logged = regexp.MustCompile(`^ +([\w.-]+_test\.go):\d+: `)
	frame  = regexp.MustCompile(`^\s*(=== |--- |ok\s|FAIL|PASS|exit status)`)
)

// reported are the lines of a test without go test's own and those of stories. The further lines of a message follow its first.
func reported(output []string) []string {
	var lines []string
	story := false
	for _, line := range output {
		if frame.MatchString(line) {
			continue
		}
		if m := logged.FindStringSubmatch(line); m != nil {
			story = m[1] == "story_test.go"
		}
		if !story {
			lines = append(lines, line)
		}
	}
	return lines
}
