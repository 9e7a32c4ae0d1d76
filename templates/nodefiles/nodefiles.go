// SPDX-License-Identifier: Apache-2.0

// Package nodefiles holds configuration files of the cloud's agents, which are placed on nodes that lack them, for the node's owner to edit. The operator
// renders them; reset removes them unless they were edited.
package nodefiles

import _ "embed" // for the files

// Dir is the directory of the files.
const Dir = "/etc/yunion"

// Host is host.conf: the location of a compute node's disks and servers. Only users know its networks.
//
//go:embed host.conf
var Host string

// LBAgent is lbagent.conf for nodes with load balancers.
//
//go:embed lbagent.conf
var LBAgent string

// VolumeOnNode is a shell script that mounts a component's volume on its node. It runs in a pod and is not a file on the node.
//
//go:embed volume-on-node.sh
var VolumeOnNode string

// All returns the files by name.
func All() map[string]string { return map[string]string{"host.conf": Host, "lbagent.conf": LBAgent} }
