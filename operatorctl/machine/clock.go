// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/ssh"
	"yunion.io/x/ocadm/operatorctl/machine/pairs"
)

// clock asks a machine for its clock, and compares it with that of this process. One that does not say has the checks of join for it.
func clock(ctx context.Context, name string, c *ssh.Conn) (finding.List, error) {
	var printed string
	before := time.Now()
	after := before
	if _, err := c.Script(ctx, "date +%s.%N\n", []string{"clock"}, func(l string) { printed, after = l, time.Now() }); err != nil {
		return nil, err
	}
	return pairs.CheckClock(name, pairs.Offset(printed, before, after)), nil
}
