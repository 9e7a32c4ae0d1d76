// SPDX-License-Identifier: Apache-2.0

// Package reaper is the first process of a container. It runs a program, forwards signals to it, and reaps orphaned processes. The kernel gives
// process 1 no default action for signals, and nothing else reaps its orphans.
package reaper

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalled is what a shell adds to the number of a fatal signal to form the exit status.
const signalled = 128

// Run runs a program with this process's environment, directory and standard files, and returns its exit status. argv[0] is the path. Orphans become
// children of this process even if it is not process 1. Meanwhile, no other code may wait for children of this process.
func Run(argv []string) (status int, err error) {
	runtime.LockOSThread() // the parent-death signal is tied to the thread that starts the child
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("adopting orphans: %w", err)
	}
	signal.Reset() // from now on signals are the program's business
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	defer signal.Stop(signals)
	child, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return 0, fmt.Errorf("starting %s: %w", argv[0], err)
	}
	for s := range signals {
		switch s {
		case unix.SIGCHLD:
			if status, ended, err := reap(child); ended || err != nil {
				return status, err
			}
		case unix.SIGURG: // sent by the Go runtime to itself
		default:
			if number, ok := s.(syscall.Signal); ok {
				_ = syscall.Kill(child, number) // fails only if it has just ended
			}
		}
	}
	return 0, nil
}

// reap reaps all children that have ended. One SIGCHLD can stand for many.
func reap(child int) (status int, ended bool, err error) {
	for {
		var how unix.WaitStatus
		pid, err := unix.Wait4(-1, &how, unix.WNOHANG, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.ECHILD) || err == nil && pid == 0:
			return status, ended, nil
		case err != nil:
			return 0, false, fmt.Errorf("waiting for processes: %w", err)
		case pid != child:
		case how.Signaled():
			status, ended = signalled+int(how.Signal()), true
		default:
			status, ended = how.ExitStatus(), true
		}
	}
}
