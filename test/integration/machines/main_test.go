// SPDX-License-Identifier: Apache-2.0

// Package machines tests machines that the operator joins, with SSH servers as machines. It is separate from package integration so that both run at the
// same time.
package machines

import (
	"testing"

	"yunion.io/x/ocadm/test/env"
)

const (
	namespace = env.Namespace
	cloud     = env.Name
)

func TestMain(m *testing.M) { env.Main(m) }
