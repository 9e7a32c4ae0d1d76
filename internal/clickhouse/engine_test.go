// SPDX-License-Identifier: Apache-2.0

package clickhouse

import (
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	fakeclickhouse "yunion.io/x/ocadm/test/fakecloud/clickhouse"
	"yunion.io/x/ocadm/test/require"
)

// ask runs queries in ClickHouse's engine and prints the answers or error messages as a JSON list.
const ask = `
const { Session } = require('chdb');
const s = new Session();
const out = JSON.parse(require('fs').readFileSync(0)).map(q => {
  try { return { rows: String(s.query(q, 'JSONCompactStrings') || '') }; } catch (e) { return { error: e.message }; }
});
process.stdout.write(JSON.stringify(out));
`

// engine queries the real engine, if it is installed: see docs/decisions/0011.
func engine(t *testing.T, queries []string) (rows [][][]string, refusals []string) {
	t.Helper()
	dir := os.Getenv("OCADM_CHDB")
	if dir == "" {
		t.Skip("OCADM_CHDB names no directory with the npm package chdb")
	}
	in, err := json.Marshal(queries)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), "node", "-e", ask)
	cmd.Dir, cmd.Stdin, cmd.Stderr = dir, strings.NewReader(string(in)), os.Stderr
	answer, err := cmd.Output()
	require.NoError(t, err)
	var all []struct{ Rows, Error string }
	if err := json.Unmarshal(answer, &all); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	for _, a := range all {
		var table struct{ Data [][]string }
		if a.Error == "" && a.Rows != "" {
			if err := json.Unmarshal([]byte(a.Rows), &table); err != nil {
				t.Fatalf("%v: %s", err, a.Rows)
			}
		}
		rows, refusals = append(rows, table.Data), append(refusals, a.Error)
	}
	return rows, refusals
}

// TestEngine passes what we send to the real parser: every statement, every quoted string and name.
func TestEngine(t *testing.T) {
	strange := []string{"plain", "a`b", `a\`, `\n`, "'; DROP DATABASE x; --", "\\'", "`\\`", "näme", "new\nline", "tab\t", "{param:Identifier}", "%_", `\x41`, "--", "/*", "😀"}
	// Every statement that the administrator sends to create, repair and drop.
	s := fakeclickhouse.Start(t)
	a, _ := open(t, s)
	for _, name := range []string{"glance", "a`b", `c\d'e`} {
		acc := Account{User: name, Password: "p", Database: name}
		for range 2 {
			if _, err := a.EnsureDatabase(t.Context(), snapshot(t, a), name); err != nil {
				t.Fatal(err)
			}
			if _, err := a.EnsureAccount(t.Context(), snapshot(t, a), acc); err != nil {
				t.Fatal(err)
			}
			acc.Password = "q"
		}
		require.NoError(t, a.DropDatabase(t.Context(), snapshot(t, a), name))
		require.NoError(t, a.DropAccount(t.Context(), snapshot(t, a), name))
	}
	statements := s.Statements()
	slices.Sort(statements)
	statements = slices.Compact(statements)
	var queries []string
	for _, q := range statements {
		queries = append(queries, "SELECT formatQuery("+quoteString(q)+")")
	}
	for _, v := range strange {
		queries = append(queries, "SELECT "+quoteString(v))
	}
	for _, v := range strange {
		quoted, err := quoteIdent(v)
		require.NoError(t, err)
		queries = append(queries, "SELECT "+quoted+" FROM (SELECT 1 AS "+quoted+")", "CREATE DATABASE IF NOT EXISTS "+quoted)
	}
	selects := slices.DeleteFunc(slices.Clone(statements), func(q string) bool { return !strings.HasPrefix(q, "SELECT ") })
	queries = append(queries, selects...)
	rows, refusals := engine(t, queries)
	known := false
	for i, q := range queries {
		// The engine's only account may not list accounts, but the statement was parsed.
		if refusals[i] != "" && !strings.Contains(refusals[i], "(ACCESS_DENIED)") {
			t.Errorf("%s\n\t%s", q, refusals[i])
		}
		if at := i - len(statements); at >= 0 && at < len(strange) && (len(rows[i]) != 1 || rows[i][0][0] != strange[at]) {
			t.Errorf("%q came back as %q", strange[at], rows[i])
		}
		known = known || refusals[i] == "" && strings.HasPrefix(q, "SELECT name FROM system.databases")
	}
	names, _ := engine(t, append(slices.DeleteFunc(slices.Clone(queries), func(q string) bool { return !strings.HasPrefix(q, "CREATE DATABASE") }),
		"SELECT name FROM system.databases"))
	var databases []string
	for _, r := range names[len(names)-1] {
		databases = append(databases, r[0])
	}
	for _, v := range strange {
		if !slices.Contains(databases, v) {
			t.Errorf("database %q is not among %q", v, databases)
		}
	}
	if !known {
		t.Error("the engine has not answered which databases there are")
	}
}
