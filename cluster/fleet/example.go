// SPDX-License-Identifier: Apache-2.0

package fleet

import _ "embed"

// Example is a file of a fleet with comments.
//
//go:embed example.yaml
var Example string
