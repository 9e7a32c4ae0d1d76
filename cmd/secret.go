// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// passwordFD is the hidden flag by which this program, having replaced itself, takes the password from an inherited pipe.
const (
	passwordFlag = "mysql-password"
	passwordFD   = "mysql-password-fd"
)

// HideSecrets replaces this process by itself without the password in its arguments, where every user of the machine could read it. The
// password goes through a pipe. It returns only if there is nothing to hide, or if it cannot be hidden.
func HideSecrets(argv []string) error {
	args, password, ok := withoutPassword(argv)
	if !ok {
		return nil
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program to hide the password: %w", err)
	}
	var fds [2]int
	if err := syscall.Pipe(fds[:]); err != nil { // without close-on-exec: the next self reads it
		return fmt.Errorf("making a pipe for the password: %w", err)
	}
	w := os.NewFile(uintptr(fds[1]), "password")
	if _, err := io.WriteString(w, password); err != nil {
		return fmt.Errorf("writing the password to its pipe: %w", err)
	}
	if err := w.Close(); err != nil {
		return fmt.Errorf("writing the password to its pipe: %w", err)
	}
	end := len(args)
	if i := slices.Index(args, "--"); i >= 0 {
		end = i
	}
	args = slices.Insert(args, end, "--"+passwordFD+"="+strconv.Itoa(fds[0]))
	if err := syscall.Exec(self, args, os.Environ()); err != nil { //nolint:gosec // this program itself
		return fmt.Errorf("hiding the password: %w", err)
	}
	return nil
}

// maxPassword keeps the write to the pipe from blocking: nobody reads it yet.
const maxPassword = 4096

// withoutPassword takes the password out of the arguments. The hidden kubeadm takes none.
func withoutPassword(argv []string) (args []string, password string, ok bool) {
	if len(argv) < 2 || argv[1] == "kubeadm" {
		return argv, "", false
	}
	for i := 0; i < len(argv); i++ {
		a := argv[i]
		if a == "--" {
			args = append(args, argv[i:]...)
			break
		}
		if v, found := strings.CutPrefix(a, "--"+passwordFlag+"="); found {
			password, ok = v, true
			continue
		}
		if a == "--"+passwordFlag && i+1 < len(argv) {
			password, ok = argv[i+1], true
			i++
			continue
		}
		args = append(args, a)
	}
	if len(password) > maxPassword {
		return argv, "", false
	}
	return args, password, ok
}

// readPasswordFD reads what HideSecrets wrote and closes the pipe, so that no child inherits it.
func readPasswordFD(fd int) (string, error) {
	f := os.NewFile(uintptr(fd), "password")
	if f == nil {
		return "", fmt.Errorf("reading the password: descriptor %d is not open", fd)
	}
	defer f.Close()
	raw, err := io.ReadAll(f)
	if err != nil {
		return "", fmt.Errorf("reading the password: %w", err)
	}
	return string(raw), nil
}
