// SPDX-License-Identifier: Apache-2.0

package env

import (
	"context"
	"os"

	"yunion.io/x/ocadm/cmd"
)

// AsProgram is the variable that makes a test program act as ocadm, if its TestMain calls Main.
const AsProgram = "OCADM_TEST_PROGRAM"

// runAsProgram acts as ocadm and exits if AsProgram is set.
func runAsProgram() {
	if os.Getenv(AsProgram) == "" {
		return
	}
	ctx, release := cmd.Signals(context.Background(), os.Exit)
	defer release()
	os.Exit(cmd.Execute(ctx, cmd.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Args[1:]))
}

// StartOwnJobPods runs the pods of Jobs until the test ends, with the test program as ocadm.
func (e *Env) StartOwnJobPods() *JobPods {
	e.Helper()
	self, err := os.Executable()
	e.Must(err)
	return e.StartJobPods(self, AsProgram+"=1")
}
