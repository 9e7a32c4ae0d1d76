// SPDX-License-Identifier: Apache-2.0

package status

import (
	corev1 "k8s.io/api/core/v1"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/dbpair"
)

// The reasons of condition DatabaseRedundant.
const (
	ReasonInSync    = "InSync"
	ReasonOneCopy   = "OneCopy"
	ReasonNotInSync = "NotInSync"
)

// DatabaseRedundant reports whether the embedded database survives the loss of any one node. host is the cloud's database server; an external one is its
// administrator's business and has no such condition. state is ConfigMap dbpair.StateName, nil if there is a single server.
func (c *Cloud) DatabaseRedundant(host string, state *corev1.ConfigMap) {
	if !dbpair.Embedded(host) {
		c.remove(v1alpha1.ConditionDatabaseRedundant)
		return
	}
	is, reason := dbpair.RedundancyOf(state), ReasonNotInSync
	switch {
	case is.Redundant:
		reason = ReasonInSync
	case state == nil:
		reason = ReasonOneCopy
	}
	c.set(v1alpha1.ConditionDatabaseRedundant, is.Redundant, reason, is.Message)
}
