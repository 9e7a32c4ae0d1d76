// SPDX-License-Identifier: Apache-2.0

// Package dns01 has the options of the DNS challenge.
package dns01

import (
	"strings"
	"time"
)

// ChallengeOption is one.
type ChallengeOption = func()

// AddRecursiveNameservers does nothing.
func AddRecursiveNameservers([]string) ChallengeOption { return nil }

// RecursiveNSsPropagationRequirement does nothing.
func RecursiveNSsPropagationRequirement() ChallengeOption { return nil }

// DisableAuthoritativeNssPropagationRequirement does nothing.
func DisableAuthoritativeNssPropagationRequirement() ChallengeOption { return nil }

// PropagationWait does nothing.
func PropagationWait(time.Duration, bool) ChallengeOption { return nil }

// UnFqdn removes a trailing dot.
func UnFqdn(name string) string { return strings.TrimSuffix(name, ".") }
