// SPDX-License-Identifier: Apache-2.0

// Package statement is what the clients of databases have in common: how a statement is counted, and how secrets are kept out of what a
// server says of it.
package statement

import (
	"slices"
	"strings"
)

// twoWords are the first words that need a second one to say what a statement does.
var twoWords = []string{"CREATE", "ALTER", "DROP", "SHOW"}

// Verb is what a statement does, for counting: "SELECT", "CREATE USER". The statement must not be empty.
func Verb(s string) string {
	words := strings.Fields(s)
	if len(words) > 1 && slices.Contains(twoWords, words[0]) {
		return words[0] + " " + words[1]
	}
	return words[0]
}

// Redact takes secrets, as they are, out of s.
func Redact(s string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, "***")
		}
	}
	return s
}
