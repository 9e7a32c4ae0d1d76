// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"fmt"
	"strconv"
	"time"

	"yunion.io/x/ocadm/internal/finding"
)

// Clocks that differ by more than warnOffset cause a warning; beyond maxOffset, certificates and tokens of other machines are refused.
const (
	warnOffset = 30 * time.Second
	maxOffset  = 5 * time.Minute
)

// Offset returns how far ahead a clock is whose time, as printed by date +%s.%N, was read between two times of this clock. It is pure.
func Offset(printed string, before, after time.Time) time.Duration {
	seconds, err := strconv.ParseFloat(printed, 64)
	if err != nil {
		return 0
	}
	theirs := time.Unix(0, int64(seconds*float64(time.Second)))
	switch {
	case theirs.Before(before):
		return theirs.Sub(before)
	case theirs.After(after):
		return theirs.Sub(after)
	}
	return 0 // no difference beyond the duration of the query
}

// CheckClock returns findings about a clock that differs from the others. It is pure.
func CheckClock(name string, offset time.Duration) finding.List {
	const remedy = "run on it: timedatectl set-ntp true; or install a time service"
	offset = offset.Round(time.Second)
	what := fmt.Sprintf("The clock of %s differs by %s", name, offset)
	switch {
	case offset.Abs() > maxOffset:
		return finding.List{finding.New("OCA-7644", what, "certificates and tokens of the other machines are not valid at that time", remedy)}
	case offset.Abs() > warnOffset:
		return finding.List{finding.Warn("OCA-7644", what, "certificates and tokens may be rejected", remedy)}
	}
	return nil
}
