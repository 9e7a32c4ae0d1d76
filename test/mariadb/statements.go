// SPDX-License-Identifier: Apache-2.0

package mariadb

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
)

// Statement is an entry of the general log: a connection (Command Connect), a statement (Query, Execute, Prepare) or the end of a connection (Quit).
type Statement struct {
	Thread  int
	Command string
	Text    string
}

// logLine is "[yymmdd hh:mm:ss]\t thread Command\ttext", in MySQL with an RFC 3339 time; other lines continue the statement before.
var logLine = regexp.MustCompile(`^(?:\d{6}\s+\d{1,2}:\d{2}:\d{2}|\d{4}-\S+Z|\s)\s*(\d+) ([A-Z][A-Za-z ]*)\t(.*)$`)

// Statements returns the contents of the general log (Options.GeneralLog).
func (s *Server) Statements() ([]Statement, error) {
	data, err := os.ReadFile(s.log)
	if err != nil {
		return nil, fmt.Errorf("reading the general log: %w", err)
	}
	var out []Statement
	for _, line := range strings.Split(string(data), "\n") {
		m := logLine.FindStringSubmatch(line)
		if m == nil {
			if n := len(out); n > 0 && line != "" {
				out[n-1].Text += "\n" + line
			}
			continue
		}
		thread, err := strconv.Atoi(m[1])
		if err != nil {
			return nil, err
		}
		out = append(out, Statement{Thread: thread, Command: m[2], Text: m[3]})
	}
	return out, nil
}

// Count returns the number of statements that clients sent: queries and executions, but not connections and preparations.
func Count(statements []Statement) int {
	n := 0
	for _, st := range statements {
		if st.Command == "Query" || st.Command == "Execute" {
			n++
		}
	}
	return n
}
