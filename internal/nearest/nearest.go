// SPDX-License-Identifier: Apache-2.0

// Package nearest finds the known word that a misspelt word most likely means. Use it for suggestions, never for decisions.
package nearest

import "strings"

// To returns the known word nearest to word, if one is near enough. It ignores case.
func To(word string, known []string) (string, bool) {
	best, least := "", 1+max(1, len(word)/3)
	for _, k := range known {
		if d := distance(strings.ToLower(word), strings.ToLower(k)); d < least {
			best, least = k, d
		}
	}
	if best != "" {
		return best, true
	}
	for _, k := range known { // a prefix, or the last part of a path
		if len(word) >= 3 && (strings.HasPrefix(k, word) || strings.HasSuffix(k, "/"+word)) {
			return k, true
		}
	}
	return "", false
}

// distance returns the number of letters to insert, delete, replace or swap with a neighbour.
func distance(a, b string) int {
	before, last := []int(nil), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replace := 1
			if a[i-1] == b[j-1] {
				replace = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+replace)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
