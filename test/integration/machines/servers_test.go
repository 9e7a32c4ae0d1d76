// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	gossh "golang.org/x/crypto/ssh"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/operatorctl/machine/bootstrap"
	"yunion.io/x/ocadm/test/sshserver"
)

// standIn is one of the machines.
type standIn struct {
	*sshserver.Server
	machines *machinesTest

	mu sync.Mutex
	// findings are those of precheck, broken is how often join loses the connection. The command that hangs names runs until the connection ends.
	findings string
	broken   int
	hangs    string
	ran      []string
	// identity is the node that it claims to be.
	identity string
	// offset is how far its clock is ahead.
	offset time.Duration
}

func (f *machinesTest) server(change ...func(*standIn)) *standIn {
	f.Helper()
	s := &standIn{Server: &sshserver.Server{Keys: []gossh.PublicKey{f.public}}, machines: f}
	s.Run = s.run
	for _, c := range change {
		c(s)
	}
	s.Start(f.tb)
	return s
}

// run plays the script in the bootstrap data, and the reset script.
func (s *standIn) run(c *sshserver.Call) int {
	text, _ := io.ReadAll(c.Stdin)
	what := strings.Trim(strings.TrimPrefix(c.Line, "sh -s --"), " '")
	s.mu.Lock()
	switch {
	case string(text) == bootstrap.TidyScript:
		what = "tidy"
	case what == "identity": // it is asked before a reset
		defer s.mu.Unlock()
		fmt.Fprint(c.Stdout, s.identity)
		return 0
	case what == "guests": // none run on it
		s.mu.Unlock()
		return 0
	case what == "clock":
		defer s.mu.Unlock()
		fmt.Fprintf(c.Stdout, "%d.0\n", time.Now().Add(s.offset).Unix())
		return 0
	}
	s.ran = append(s.ran, what)
	findings, broken, hangs := s.findings, s.broken, s.hangs != "" && s.hangs == what
	if what == "join" && broken > 0 {
		s.broken--
	}
	s.mu.Unlock()
	if hangs && !s.freed(c) {
		return 1
	}
	if what != "" && what != "tidy" && !s.machines.knows(c, string(text)) { // as the depot answers the script
		fmt.Fprintln(c.Stderr, "The control plane rejects the token in this bootstrap data")
		return bootstrap.ExitExpired
	}
	switch {
	case what == "precheck" && findings != "":
		fmt.Fprintf(c.Stdout, `{"passed":false,"findings":[%s]}`+"\n", findings)
		return 10
	case what == "precheck":
		fmt.Fprintln(c.Stdout, `{"passed":true,"findings":[{"code":"OCA-1008","severity":"warning","what":"Too few processors","cause":"1","remedy":"add one"}]}`)
	case what == "join" && broken > 0:
		c.Drop()
	case what == "join":
		fmt.Fprintln(c.Stdout, `{"type":"phase-started","phase":"preflight"}`)
		if err := s.machines.Register(c, string(text)); err != nil {
			fmt.Fprint(c.Stderr, err)
			return 1
		}
	}
	return 0
}

// knows reports whether the cluster has the join token of the bootstrap data.
func (f *machinesTest) knows(ctx context.Context, script string) bool {
	found := tokenInScript.FindStringSubmatch(script)
	if found == nil {
		return false
	}
	id, _, _ := strings.Cut(found[1], ".")
	return f.Client.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "bootstrap-token-" + id}, &corev1.Secret{}) == nil
}

// freed waits until the command is released or the connection ends. It reports whether the command was released.
func (s *standIn) freed(c *sshserver.Call) bool {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-c.Done():
			return false
		case <-tick.C:
		}
		s.mu.Lock()
		free := s.hangs == ""
		s.mu.Unlock()
		if free {
			return true
		}
	}
}

// let sets the command that hangs from now on, "" for none.
func (s *standIn) let(hangs string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangs = hangs
}

func (s *standIn) commands() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ran)
}
