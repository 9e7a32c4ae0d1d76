// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"context"
	"errors"
	"strconv"
	"strings"
)

// Exit codes that are not derived from a finding's code. The table is docs/reference/exit-codes.md.
const (
	ExitOK          = 0
	ExitOther       = 1
	ExitPreflight   = 2
	ExitConfig      = 3
	ExitUsage       = 4
	ExitTimeout     = 124
	ExitInterrupted = 130
)

// CodeContinues is the code of a command that ends before the operation that it follows. The operation has not failed, so the status is ExitTimeout.
const CodeContinues = "OCA-7058"

// ExitCode derives the exit status from a code "OCA-NNMM": NN is the status, MM counts within it.
// A code of another shape gives ExitOther.
func ExitCode(code string) int {
	digits, ok := strings.CutPrefix(code, "OCA-")
	if !ok || len(digits) != 4 {
		return ExitOther
	}
	n, err := strconv.Atoi(digits[:2])
	if err != nil || n == 0 {
		return ExitOther
	}
	return n
}

// ExitStatus returns the exit status of a program that ends with err.
func ExitStatus(err error) int {
	switch l := Of(err); {
	case err == nil:
		return ExitOK
	case len(l) > 1:
		return ExitPreflight
	case len(l) == 1 && l[0].Code == CodeContinues:
		return ExitTimeout
	case len(l) == 1:
		return l[0].ExitCode()
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	case errors.Is(err, context.DeadlineExceeded):
		return ExitTimeout
	}
	return ExitOther
}
