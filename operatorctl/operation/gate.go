// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"fmt"
	"slices"
	"strings"

	"yunion.io/x/ocadm/api/v1alpha1"
)

// verdict is what a gate says of the components of a wave.
type verdict struct {
	// ready is true if all of them serve what they are to serve, done how many do.
	ready      bool
	done, want int
	// why is what is missing, failed why it will not come.
	why, failed string
}

// judge reports whether the components of a wave serve as settled says. It is pure.
func judge(cloud *v1alpha1.OnecloudCluster, names []string, settled func(v1alpha1.ComponentStatus) bool, f forbearance) verdict {
	var v verdict
	var missing, failed []string
	for _, c := range cloud.Status.Components {
		if !slices.Contains(names, c.Name) || c.State == v1alpha1.Disabled {
			continue
		}
		v.want++
		switch {
		case settled(c):
			v.done++
		case c.State == v1alpha1.Degraded && f.over(c.Since.Time):
			failed = append(failed, fmt.Sprintf("%s: %s", c.Name, c.Message))
		default:
			missing = append(missing, fmt.Sprintf("%s is %s: %s", c.Name, c.State, c.Message))
		}
	}
	v.ready = v.done == v.want
	v.why, v.failed = strings.Join(append(failed, missing...), "; "), strings.Join(failed, "; ")
	return v
}

// settledBefore reports whether a component serves, be it in the version from before the update.
func settledBefore(c v1alpha1.ComponentStatus) bool {
	return c.Settled() || c.State == v1alpha1.Available && c.Reason == v1alpha1.ReasonWave
}

// followed reports whether the status of a cloud was determined when a rollout was as it is now. Its values alone do not say that: no release is made, one
// is, and none is again. An operator whose definitions are older than it counts nothing. It is pure.
func followed(cloud *v1alpha1.OnecloudCluster, operation string, r v1alpha1.Rollout) bool {
	seen := cloud.Status.Rollout
	return seen != nil && seen.Operation == operation && (seen.Steer == r.Steer || seen.Steer == 0) &&
		seen.Reached == r.Reached && seen.Hold == r.Hold && slices.Equal(seen.Stopped, r.Stopped) &&
		(r.Of == 0 || r.Hold || seen.Of == r.Of)
}
