// SPDX-License-Identifier: Apache-2.0

package vip

import (
	"cmp"
	"time"
)

const (
	checkEvery = time.Second
	// failures is how many consecutive errors make an API server count as lost: a momentary overload must not move the address.
	failures = 2
	// silence is how many unanswered checks make it count as lost. Checks do not wait for each other, so this equals seconds, and an API server that
	// takes three seconds to answer keeps the address. Ticks are counted rather than time: an agent that got no CPU has also missed ticks.
	silence = 4
)

// health evaluates the health of this node's API server from the results of checks.
type health struct {
	well bool
	// why is the last problem, "" after a success.
	why              string
	refused, pending int
}

// tick is called when a check starts.
func (h *health) tick() {
	if h.pending++; h.pending > silence {
		h.well, h.why = false, cmp.Or(h.why, "no answer")
	}
}

// answered is called when a check ends.
func (h *health) answered(err error) {
	if err == nil {
		*h = health{well: true}
		return
	}
	h.why = err.Error()
	if h.refused++; h.refused >= failures {
		h.well = false
	}
}

// problem returns why the API server cannot serve, "" while it can.
func (h *health) problem() string {
	if h.well {
		return ""
	}
	return cmp.Or(h.why, "it has not answered yet")
}
