// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"

	"yunion.io/x/ocadm/templates"
)

// UnitName is the name that upstream's own executor has: the agents' documentation and people's scripts use it.
const UnitName = "yunion-executor.service"

// Unit is the systemd unit of the executor.
type Unit struct {
	// Program is the absolute path of ocadm on the node.
	Program string
	// Socket is DefaultSocket, unless the services are configured for another.
	Socket string
}

// Render is the text of the unit's file.
func (u Unit) Render() ([]byte, error) {
	u.Socket = cmp.Or(u.Socket, DefaultSocket)
	return templates.Render("units/"+UnitName, u)
}
