// SPDX-License-Identifier: Apache-2.0

package mysql

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	maxIdentifier = 64
	// maxUser is MySQL's limit; MariaDB allows 80.
	maxUser = 32
	maxHost = 255
)

// QuoteIdent quotes the name of a database, table or column. It returns an error for a name that no server can store.
func QuoteIdent(name string) (string, error) {
	if err := checkName(name, maxIdentifier); err != nil {
		return "", fmt.Errorf("quoting identifier %q: %w", name, err)
	}
	return "`" + strings.ReplaceAll(name, "`", "``") + "`", nil
}

// quotePattern quotes a database name for GRANT, where _ and % would match other databases too.
func quotePattern(name string) (string, error) {
	if _, err := QuoteIdent(name); err != nil {
		return "", err
	}
	return "`" + strings.NewReplacer("`", "``", `\`, `\\`, `_`, `\_`, `%`, `\%`).Replace(name) + "`", nil
}

// QuoteString quotes a string literal for a server whose sql_mode does not contain NO_BACKSLASH_ESCAPES. It is for statements that are shown to
// people; those that are sent use placeholders.
func QuoteString(s string) string {
	r := strings.NewReplacer(`\`, `\\`, `'`, `''`, "\x00", `\0`, "\n", `\n`, "\r", `\r`, "\x1a", `\Z`)
	return "'" + r.Replace(s) + "'"
}

func checkName(name string, limit int) error {
	switch {
	case name == "":
		return errors.New("it is empty")
	case !utf8.ValidString(name):
		return errors.New("it is not valid UTF-8")
	case utf8.RuneCountInString(name) > limit:
		return fmt.Errorf("it is longer than %d characters", limit)
	case strings.ContainsRune(name, 0):
		return errors.New("it contains a NUL character")
	case strings.HasSuffix(name, " "):
		return errors.New("it ends with a space")
	}
	if strings.ContainsFunc(name, func(r rune) bool { return r > 0xFFFF }) {
		return errors.New("it contains a character outside the Basic Multilingual Plane")
	}
	return nil
}

func checkUser(user, host string) error {
	if err := checkName(user, maxUser); err != nil {
		return fmt.Errorf("user name %q: %w", user, err)
	}
	if err := checkName(host, maxHost); err != nil {
		return fmt.Errorf("host %q of user %q: %w", host, user, err)
	}
	return nil
}

// quoteAccount turns root@10.%, as CURRENT_USER() returns it, into 'root'@'10.%'.
func quoteAccount(account string) string {
	i := strings.LastIndexByte(account, '@')
	if i < 0 {
		return QuoteString(account)
	}
	return QuoteString(account[:i]) + "@" + QuoteString(account[i+1:])
}
