// SPDX-License-Identifier: Apache-2.0

package bootstrap_test

import (
	"testing"

	"yunion.io/x/ocadm/operatorctl/machine/bootstrap"
	"yunion.io/x/ocadm/phases/config"
	"yunion.io/x/ocadm/phases/host"
)

// The constants are those of the installer, which the package must not import.
func TestConstants(t *testing.T) {
	if bootstrap.DepotPort != config.DepotPort || bootstrap.Ledger != host.LedgerFile {
		t.Error("the installer has another port of the depot, or another ledger")
	}
}
