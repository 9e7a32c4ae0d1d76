// SPDX-License-Identifier: Apache-2.0

package dbpair

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// StateName is the ConfigMap in which the primary reports whether the database survives the loss of a node. The operator watches it: unlike the
// Leases it changes only when that changes.
const StateName = "ocadm-mysql-state"

const (
	keyRedundant = "redundant"
	keyMessage   = "message"
)

// Redundancy describes whether every acknowledged row survives the loss of any one node.
type Redundancy struct {
	Redundant bool
	// Message is the reason, in words that stay the same while the reason does.
	Message string
}

// RedundancyOf reads the redundancy from the ConfigMap. nil stands for a single server, which has no ConfigMap.
func RedundancyOf(cm *corev1.ConfigMap) Redundancy {
	if cm == nil {
		return Redundancy{Message: "there is one copy; if its node is lost, so is everything newer than the last backup; add a replica: ocadm cluster database add-replica"}
	}
	if cm.Data[keyMessage] == "" {
		return Redundancy{Message: "the primary has not reported yet"}
	}
	is, err := strconv.ParseBool(cm.Data[keyRedundant])
	return Redundancy{Redundant: err == nil && is, Message: cm.Data[keyMessage]}
}

// Redundancy returns what the primary on a node reports about itself and its replica.
func (r Record) Redundancy(node string, replica Member) Redundancy {
	if r.InSync != "" {
		return Redundancy{Redundant: true, Message: "the replica " + PodName(r.InSync) + " has every change that was acknowledged"}
	}
	why := "the replica is not in sync"
	switch {
	case replica.Error != "":
		why = "the replica cannot continue: " + replica.Error
	case !replica.Complete:
		why = "the replica has no complete copy"
	}
	return Redundancy{Message: "the primary " + PodName(r.Primary) + " on node " + node + " continues alone: " + why}
}
