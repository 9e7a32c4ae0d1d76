// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "the lab runs Linux containers with systemd, so it works on Linux only; a Debian 12 virtual machine will do")
	os.Exit(1)
}
