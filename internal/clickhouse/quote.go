// SPDX-License-Identifier: Apache-2.0

package clickhouse

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxName is our own limit: a database is a directory on the server with at most 255 bytes in its name, where most characters are escaped to three.
const maxName = 64

// quoteIdent quotes the name of a database or an account.
func quoteIdent(name string) (string, error) {
	var why error
	switch {
	case name == "":
		why = errors.New("it is empty")
	case !utf8.ValidString(name):
		why = errors.New("it is not valid UTF-8")
	case strings.ContainsRune(name, 0):
		why = errors.New("it contains a NUL character")
	case utf8.RuneCountInString(name) > maxName:
		why = fmt.Errorf("it is longer than %d characters", maxName)
	}
	if why != nil {
		return "", fmt.Errorf("quoting name %q: %w", name, why)
	}
	return "`" + strings.NewReplacer(`\`, `\\`, "`", "\\`").Replace(name) + "`", nil
}

// quoteString quotes a string literal. The server treats no other character between the quotes specially.
func quoteString(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}
