// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"os"

	"yunion.io/x/ocadm/cmd"
)

// AsProgram is the variable that makes the test program act as ocadm.
const AsProgram = "OCADM_TEST_PROGRAM"

// RunAsProgram acts as ocadm and exits if AsProgram is set. TestMain calls it first.
func RunAsProgram() {
	if os.Getenv(AsProgram) == "" {
		return
	}
	ctx, release := cmd.Signals(context.Background(), os.Exit)
	defer release()
	os.Exit(cmd.Execute(ctx, cmd.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Args[1:]))
}
