// SPDX-License-Identifier: Apache-2.0

// Package http01 has the options of the HTTP challenge.
package http01

import "time"

// SetDelay does nothing.
func SetDelay(time.Duration) func() { return nil }

// ChallengePath is where a server asks for the answer.
func ChallengePath(token string) string { return "/.well-known/acme-challenge/" + token }
