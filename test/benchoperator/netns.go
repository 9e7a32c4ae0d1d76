// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// inside tells the second run of this program that it has a network of its own.
const inside = "OCADM_BENCH_INSIDE"

// apart runs this program once more in a network namespace of its own, whose loopback nobody else uses: the ports of a cloud are fixed,
// and others on this machine may have them. It returns the exit code.
func apart(ctx context.Context) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	c := exec.CommandContext(ctx, self, os.Args[1:]...)
	c.Env = append(os.Environ(), inside+"=1")
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Setpgid: true}
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) } // it cleans up
	if err := c.Run(); err != nil {
		if code := c.ProcessState.ExitCode(); c.ProcessState != nil && code > 0 {
			return code, nil
		}
		return 1, fmt.Errorf("entering a network namespace (takes root): %w", err)
	}
	return 0, nil
}

// loopbackUp switches on the loopback of this namespace.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("switching loopback on: %w", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return fmt.Errorf("switching loopback on: %w", err)
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("switching loopback on: %w", err)
	}
	return nil
}
