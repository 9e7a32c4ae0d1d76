// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"cmp"

	"yunion.io/x/ocadm/templates"
)

// UnitName is the name of upstream's own executor, which the agents' documentation and users' scripts use.
const UnitName = "yunion-executor.service"

// Unit describes the systemd unit of the executor.
type Unit struct {
	// Program is the absolute path of ocadm on the node.
	Program string
	// Socket is DefaultSocket, unless the services are configured with another.
	Socket string
}

func (u Unit) Render() ([]byte, error) {
	u.Socket = cmp.Or(u.Socket, DefaultSocket)
	return templates.Render("units/"+UnitName, u)
}
