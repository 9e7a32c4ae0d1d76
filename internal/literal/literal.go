// SPDX-License-Identifier: Apache-2.0

// Package literal quickly rules out matches of a regular expression: logs have tens of megabytes, and few lines match anything.
package literal

import (
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
)

// Set holds lower-case literals; every text that a regular expression matches contains at least one of them. An empty set rules out nothing.
type Set []string

// Of returns the literals of a regular expression.
func Of(re *regexp.Regexp) Set {
	tree, err := syntax.Parse(re.String(), syntax.Perl)
	if err != nil {
		return nil
	}
	return needs(tree.Simplify())
}

// MayMatch returns false if the expression cannot match a text, given in lower case.
func (s Set) MayMatch(lower string) bool {
	return len(s) == 0 || slices.ContainsFunc(s, func(l string) bool { return strings.Contains(lower, l) })
}

func needs(re *syntax.Regexp) Set {
	switch re.Op {
	case syntax.OpLiteral:
		return Set{strings.ToLower(string(re.Rune))}
	case syntax.OpCapture, syntax.OpPlus:
		return needs(re.Sub[0])
	case syntax.OpConcat: // every part must match: use the most selective
		var best Set
		for _, sub := range re.Sub {
			if s := needs(sub); s.rarer(best) {
				best = s
			}
		}
		return best
	case syntax.OpAlternate:
		var all Set
		for _, sub := range re.Sub {
			s := needs(sub)
			if len(s) == 0 {
				return nil
			}
			all = append(all, s...)
		}
		return all
	}
	return nil
}

// rarer prefers the set whose shortest literal is longer, then the one with fewer literals.
func (s Set) rarer(than Set) bool {
	a, b := s.shortest(), than.shortest()
	return a > b || a == b && len(s) < len(than)
}

func (s Set) shortest() int {
	least := 0
	for _, l := range s {
		if least == 0 || len(l) < least {
			least = len(l)
		}
	}
	return least
}
