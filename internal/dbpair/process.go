// SPDX-License-Identifier: Apache-2.0

package dbpair

import "runtime"

// run starts the program, reports that, and waits for its end. The kernel ties its life to the thread that started it, so that has to stay.
func (p *process) run(started chan<- error) {
	defer close(p.exited)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // the state says how it ended
	}
}

// ended reports whether the program has ended.
func (p *process) ended() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}
