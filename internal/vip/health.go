// SPDX-License-Identifier: Apache-2.0

package vip

import (
	"cmp"
	"time"
)

const (
	checkEvery = time.Second
	// failures is after how many refusals in a row an API server counts as lost: one that was busy for a moment does not move the address.
	failures = 2
	// silence is after how many checks without an answer it counts as lost. Checks do not wait for each other, so this many seconds pass, and an API server
	// that takes three seconds for each answer keeps the address. Ticks are counted and not time: an agent that got no CPU has missed ticks, too.
	silence = 4
)

// health judges the API server of this node by what the checks bring.
type health struct {
	well bool
	// why is the last problem, "" after a good answer.
	why              string
	refused, pending int
}

// tick is called when a check begins.
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

// problem is why the API server cannot serve, "" while it can.
func (h *health) problem() string {
	if h.well {
		return ""
	}
	return cmp.Or(h.why, "it has not answered yet")
}
