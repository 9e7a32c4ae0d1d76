// SPDX-License-Identifier: Apache-2.0

package dbpair

import "runtime"

// run starts the program, reports the result, and waits for its end. The kernel ties the process to the thread that started it, so that thread must stay.
func (p *process) run(started chan<- error) {
	defer close(p.exited)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // the process state has the result
	}
}

func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}
