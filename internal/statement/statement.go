// SPDX-License-Identifier: Apache-2.0

// Package statement holds what the database clients have in common: classifying statements, and removing secrets from servers' error messages.
package statement

import (
	"slices"
	"strings"
)

// twoWords are the keywords that need the following word to classify a statement.
var twoWords = []string{"CREATE", "ALTER", "DROP", "SHOW"}

// Verb returns the kind of a statement, for metrics: "SELECT", "CREATE USER". The statement must not be empty.
func Verb(s string) string {
	words := strings.Fields(s)
	if len(words) > 1 && slices.Contains(twoWords, words[0]) {
		return words[0] + " " + words[1]
	}
	return words[0]
}

// Redact removes literal occurrences of secrets from s.
func Redact(s string, secrets ...string) string {
	for _, secret := range secrets {
		if secret != "" {
			s = strings.ReplaceAll(s, secret, "***")
		}
	}
	return s
}
