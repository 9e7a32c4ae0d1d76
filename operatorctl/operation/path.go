// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"

	"yunion.io/x/ocadm/internal/finding"
)

// minors are the minor releases that exist, in their order. An update goes from one to the next.
var minors = []string{"3.4", "3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "4.0"}

var numbers = regexp.MustCompile(`^v?([0-9]+\.[0-9]+)\.([0-9]+)`)

// The findings that refuse a version.
const codeSkipped, codeBack = "OCA-7060", "OCA-7061"

// path judges the way from one version to another. What is no version of a release, such as the tag of a build of your own, is not judged.
func path(from, to string, allowDowngrade bool) finding.List {
	was, is := numbers.FindStringSubmatch(from), numbers.FindStringSubmatch(to)
	if was == nil || is == nil {
		return nil
	}
	a, b := slices.Index(minors, was[1]), slices.Index(minors, is[1])
	switch {
	case a < 0 || b < 0:
		return nil
	case b > a+1:
		return finding.List{finding.New(codeSkipped, "The update skips a release", fmt.Sprintf("from %s to %s", from, to),
			"update to the last release of v"+minors[a+1]+" first")}
	case earlier(from, to) && !allowDowngrade:
		return finding.List{finding.New(codeBack, "The update goes back to an earlier release",
			fmt.Sprintf("from %s to %s: its services change the databases back, and may lose data", from, to),
			"ocadm cluster rollback --restore-databases; or, if you accept the loss, ocadm cluster update --version "+to+" --allow-downgrade")}
	case earlier(from, to):
		return finding.List{finding.Warn("OCA-7062", "The update goes back to an earlier release", fmt.Sprintf("from %s to %s", from, to),
			"its services change the databases back, and may lose data; ocadm cluster rollback --restore-databases would bring the databases of before back")}
	}
	return nil
}

// earlier reports whether a version is earlier than another one. Also a lower patch changes tables back: v4.0.2 empties columns of v4.0.3.
func earlier(from, to string) bool {
	was, is := numbers.FindStringSubmatch(from), numbers.FindStringSubmatch(to)
	if was == nil || is == nil {
		return false
	}
	a, b := slices.Index(minors, was[1]), slices.Index(minors, is[1])
	return a >= 0 && b >= 0 && (b < a || b == a && patch(is[2]) < patch(was[2]))
}

func patch(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// minorOf is the minor release of a version, or the version itself if it is of none.
func minorOf(version string) string {
	if n := numbers.FindStringSubmatch(version); n != nil {
		return n[1]
	}
	return version
}
