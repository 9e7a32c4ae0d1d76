// SPDX-License-Identifier: Apache-2.0

// Package nodefiles holds configuration files of the cloud's agents, which are placed on nodes that lack them, for the node's owner to edit. The operator
// renders them; reset removes them unless they were edited.
package nodefiles

import (
	"crypto/sha256"
	_ "embed" // for the files
	"fmt"
	"slices"
)

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

// written lists the digests of the texts that this release and earlier ones put on nodes.
var written = []string{"5c2e38525e025a58", "0b2562afe7f3a5e5", "85c13fcce694159c", "2e15d37bb57e74fd", "e96922e2e1fcb56d", "106dfb9e202a40a8"}

// Unedited reports whether a file's text is as this release or an earlier one wrote it.
func Unedited(text string) bool { return slices.Contains(written, digest(text)) }

func digest(text string) string { return fmt.Sprintf("%.8x", sha256.Sum256([]byte(text))) }
