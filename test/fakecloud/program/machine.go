// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// Machine is what a program sees of the machine or the container it runs on. The zero value is this one.
type Machine struct {
	// Root is the directory that takes the place of /, and Mounts are those that take the place of others.
	Root   string
	Mounts map[string]string
	// Name is the host name.
	Name string
	// Environment replaces this process's, if it is not nil.
	Environment map[string]string
	// Address, when set, is where programs listen, whatever their options say.
	Address string
	// Dial, when set, finds Services by their names.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// fail ends the program with an error.
	fail func(error)
}

// path is where a file of the machine lies. No file stays none.
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
