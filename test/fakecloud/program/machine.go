// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// Machine is a program's view of the machine or container on which it runs. The zero value is the real one.
type Machine struct {
	// Root replaces /, and Mounts replaces other directories.
	Root   string
	Mounts map[string]string
	// Name is the host name.
	Name string
	// Environment replaces this process's environment unless nil.
	Environment map[string]string
	// Address, if set, is the address on which programs listen, whatever their options say.
	Address string
	// Dial, if set, resolves names of Services.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// fail ends the program with an error.
	fail func(error)
}

// path returns the real path of a file of the machine. It leaves an empty path empty.
func (m Machine) path(file string) string {
	if file == "" || m.Root == "" {
		return file
	}
	for dir := filepath.Clean(file); dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if source, mounted := m.Mounts[dir]; mounted {
			return filepath.Join(source, strings.TrimPrefix(filepath.Clean(file), dir))
		}
	}
	return filepath.Join(m.Root, file)
}

func (m Machine) getenv(name string) string {
	if m.Environment != nil {
		return m.Environment[name]
	}
	return os.Getenv(name)
}

func (m Machine) hostname() (string, error) {
	if m.Name != "" {
		return m.Name, nil
	}
	return os.Hostname()
}
