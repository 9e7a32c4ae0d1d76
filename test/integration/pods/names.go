// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// names is the DNS of the pods: a hosts file that only grows, for a program may be reading it.
type names struct {
	file string

	mu  sync.Mutex
	all map[string]bool
}

func (n *names) start() error {
	n.all = map[string]bool{}
	if err := os.WriteFile(n.file, []byte("127.0.0.1\tlocalhost\n"), 0o644); err != nil { //nolint:gosec // /etc/hosts is for everybody
		return fmt.Errorf("writing hosts: %w", err)
	}
	return nil
}

func (n *names) add(service, namespace string) error {
	short := service + "." + namespace
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all[service] {
		return nil
	}
	line := []string{service, short, short + ".svc", short + ".svc.cluster.local"}
	file, err := os.OpenFile(n.file, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("adding Service %q to hosts: %w", service, err)
	}
	defer file.Close()
	if _, err := fmt.Fprintf(file, "127.0.0.1\t%s\n", strings.Join(line, " ")); err != nil {
		return fmt.Errorf("adding Service %q to hosts: %w", service, err)
	}
	for _, name := range line {
		n.all[name] = true
	}
	return nil
}

func (n *names) known(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.all[strings.TrimSuffix(name, ".")]
}
