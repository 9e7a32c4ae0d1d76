// SPDX-License-Identifier: Apache-2.0

// Package nodefiles holds what the cloud's agents put on a node where there is none, for the node's owner to edit. The operator renders
// it; reset takes it away again unless it was edited.
package nodefiles

import _ "embed" // for the files

// Dir is where they are put.
const Dir = "/etc/yunion"

// Host is host.conf: where a compute node keeps disks and servers. Which networks it has, only people know.
//
//go:embed host.conf
var Host string

// LBAgent is lbagent.conf of a node with load balancers.
//
//go:embed lbagent.conf
var LBAgent string

// VolumeOnNode is a shell script that mounts a component's volume on its node. It runs in a pod, and is not a file of the node.
//
//go:embed volume-on-node.sh
var VolumeOnNode string

// All are the files by name.
func All() map[string]string { return map[string]string{"host.conf": Host, "lbagent.conf": LBAgent} }
