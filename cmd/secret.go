// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/phases/config"
)

const (
	passwordFlag = "mysql-password"
	// argumentsFD is the hidden flag for the inherited file with the complete command line, after this program has re-executed itself.
	argumentsFD = "--arguments-fd="
)

// secretFlags returns the flags with values that other users of the machine must not read.
func secretFlags() []string {
	former := []string{"discovery-token", "tls-bootstrap-token"} // of earlier versions and of kubeadm
	flags := lists.Pick(config.Settings(), func(s config.Setting) (string, bool) { return s.Flag, s.Secret && s.Flag != "" })
	return lists.Unique(append(former, flags...))
}

// HideSecrets removes secrets from the arguments of this process, which every user of the machine can read. If argv holds a secret, HideSecrets
// re-executes this program without the secret and does not return. The new process reads the complete command line from a file that only it has open.
// HideSecrets returns the command line to run.
func HideSecrets(argv []string) ([]string, error) {
	if i := slices.IndexFunc(argv, func(a string) bool { return strings.HasPrefix(a, argumentsFD) }); i > 0 && i == len(argv)-1 {
		return readArguments(strings.TrimPrefix(argv[i], argumentsFD))
	}
	shown, hidden := withoutSecrets(argv, secretFlags())
	if !hidden {
		return argv, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program to hide secrets: %w", err)
	}
	fd, err := writeArguments(argv)
	if err != nil {
		return nil, err
	}
	shown = append(shown, argumentsFD+strconv.Itoa(fd))
	if err := syscall.Exec(self, shown, os.Environ()); err != nil { //nolint:gosec // this program itself
		return nil, fmt.Errorf("hiding secrets: %w", err)
	}
	return nil, nil // not reached
}

// withoutSecrets returns a command line without these flags and their values, and whether it had any. It ignores arguments after "--", which are for
// another program.
func withoutSecrets(argv, flags []string) (shown []string, hidden bool) {
	for i := 0; i < len(argv); i++ {
		if argv[i] == "--" {
			break // the shown arguments are for ps only and are not parsed
		}
		name, isFlag := strings.CutPrefix(argv[i], "--")
		name, _, withValue := strings.Cut(name, "=")
		if !isFlag || !slices.Contains(flags, name) {
			shown = append(shown, argv[i])
			continue
		}
		hidden = true
		if !withValue {
			i++ // its value
		}
	}
	return shown, hidden
}

// writeArguments writes a command line to memory that the re-executed program inherits.
func writeArguments(argv []string) (fd int, err error) {
	raw, err := json.Marshal(argv)
	if err != nil {
		return 0, fmt.Errorf("hiding secrets: %w", err)
	}
	fd, err = unix.MemfdCreate("arguments", 0) // without close-on-exec: the new process reads it
	if err != nil {
		return 0, fmt.Errorf("creating a file in memory for secrets: %w", err)
	}
	for at := 0; at < len(raw); {
		n, err := unix.Pwrite(fd, raw[at:], int64(at))
		if err != nil {
			return 0, fmt.Errorf("writing secrets to memory: %w", err)
		}
		at += n
	}
	return fd, nil
}

// readArguments reads what writeArguments wrote and closes the file, so that no child inherits it.
func readArguments(number string) ([]string, error) {
	fd, err := strconv.Atoi(number)
	if err != nil || fd <= 2 {
		return nil, fmt.Errorf("reading the arguments: %q is not a file descriptor of this program", number)
	}
	f := os.NewFile(uintptr(fd), "arguments")
	defer f.Close()
	raw, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
	if err != nil {
		return nil, fmt.Errorf("reading the arguments: %w", err)
	}
	var argv []string
	if err := json.Unmarshal(raw, &argv); err != nil {
		return nil, fmt.Errorf("reading the arguments: %w", err)
	}
	return argv, nil
}
