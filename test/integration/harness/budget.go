// SPDX-License-Identifier: Apache-2.0

package harness

import "yunion.io/x/ocadm/operatorctl/policy"

// IdentityBudget returns the number of requests that an installation may send to the identity service: 200, plus 1.2 for each standard policy and
// each policy of a standard role.
func IdentityBudget() (int, error) {
	t, err := policy.Standard()
	return 200 + (len(t.Policies)+t.Grants())*12/10, err
}
