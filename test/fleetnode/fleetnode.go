// SPDX-License-Identifier: Apache-2.0

// Package fleetnode plays machines of a fleet for tests: an SSH server that answers the scripts of ocadm fleet as a machine with ocadm does.
package fleetnode

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/test/sshserver"
)

// Machine is one machine.
type Machine struct {
	*sshserver.Server
	Name string

	mu sync.Mutex
	// facts override the defaults.
	facts map[string]string
	// findings are the findings of its checks, in JSON.
	findings string
	// authority is the digest of its cluster's CA certificate, "" if it has not joined.
	authority string
	sent      map[string]bool
	ran       []string
	calls     []Call
	hooks     Hooks
	loses     func(from string, port, size int) bool
}

// Lose sets which packets from others get lost. For a TCP port, size is 0.
func (m *Machine) Lose(loses func(from string, port, size int) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.loses = loses
}

// Call is a command that ran on a machine, and its input.
type Call struct{ Line, Stdin string }

// Calls returns all commands, in order.
func (m *Machine) Calls() []Call {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.calls)
}

// Hooks define how a machine acts in the cluster.
type Hooks struct {
	// Kubeconfig is the kubeconfig of a first node, Authority the digest of its CA certificate.
	Kubeconfig, Authority string
	// Join receives the script and creates the Node. An error is a failure of the machine.
	Join func(script string) error
	// Busy is the number of times that init or join finds another ocadm at work.
	Busy int
}

// Start starts a machine that accepts logins with the given key.
func Start(t testing.TB, name string, key gossh.PublicKey, hooks Hooks, change ...func(*sshserver.Server)) *Machine {
	t.Helper()
	m := &Machine{Server: &sshserver.Server{Keys: []gossh.PublicKey{key}}, Name: name, facts: map[string]string{}, sent: map[string]bool{}, hooks: hooks}
	m.Run = m.answer
	for _, c := range change {
		c(m.Server)
	}
	m.Server.Start(t)
	return m
}

// Say overrides a fact.
func (m *Machine) Say(fact, value string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.facts[fact] = value
}

// Unsay ends the override of a fact.
func (m *Machine) Unsay(fact string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.facts, fact)
}

// Find sets the findings of its checks, in JSON; "" means no finding.
func (m *Machine) Find(findings string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.findings = findings
}

// Did returns the commands that changed the machine, by their subcommand, in order.
func (m *Machine) Did() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.ran)
}

// Forget clears the list that Did returns.
func (m *Machine) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ran = nil
}

func (m *Machine) answer(c *sshserver.Call) int {
	if strings.Contains(c.Line, "machine probe") {
		return m.probe(c)
	}
	text, _ := io.ReadAll(c.Stdin)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls = append(m.calls, Call{c.Line, string(text)})
	if strings.HasPrefix(c.Line, "sh -c ") {
		words := strings.Fields(c.Line) // they end with the name, the digest and the form
		m.sent[strings.Trim(words[len(words)-2], "'")] = true
		m.ran = append(m.ran, "receive "+strings.Trim(words[len(words)-3], "'"))
		return 0
	}
	args := strings.Fields(strings.ReplaceAll(strings.TrimPrefix(c.Line, "sh -s --"), "'", ""))
	if len(args) > 0 {
		return m.script(c, args, string(text))
	}
	switch s := string(text); {
	case strings.Contains(s, "say hostname"):
		for _, line := range m.own() {
			fmt.Fprintln(c.Stdout, line)
		}
	case strings.Contains(s, "cat /etc/kubernetes/admin.conf"):
		fmt.Fprint(c.Stdout, m.hooks.Kubeconfig)
	case strings.Contains(s, "token create"):
		fmt.Fprintln(c.Stdout, `{"token":"abcdef.0123456789abcdef","certificateKey":"c0ffee"}`)
	case strings.Contains(s, " reset --yes"):
		m.ran, m.authority = append(m.ran, "reset"), ""
	case strings.Contains(s, "rmdir"):
		m.ran, m.sent = append(m.ran, "tidy"), map[string]bool{}
	default:
		fmt.Fprint(c.Stderr, "this script is not known")
		return 1
	}
	return 0
}

// own returns its facts.
func (m *Machine) own() []string {
	facts := map[string]string{
		"hostname": m.Name, "machineid": "id-of-" + m.Name, "arch": "x86_64", "mac": "mac-of-" + m.Name, "mtu": "1500", "address": "address-of-" + m.Name,
		"authority": m.authority, "clock": fmt.Sprintf("%.9f", float64(time.Now().UnixNano())/float64(time.Second)),
	}
	if m.authority != "" {
		facts["ours"] = "yes"
		if m.hooks.Kubeconfig != "" {
			facts["administrator"] = "yes"
		}
	}
	maps.Copy(facts, m.facts)
	out := lists.Pick(slices.Sorted(maps.Keys(facts)), func(key string) (string, bool) { return key + "=" + facts[key], key != "clock" && facts[key] != "" })
	return append(out, "clock="+facts["clock"])
}

func (m *Machine) script(c *sshserver.Call, args []string, text string) int {
	switch word := args[0]; word {
	case "guests": // none run on it
	case "identity":
		if m.authority != "" {
			fmt.Fprintln(c.Stdout, "name", m.Name)
		}
	case "precheck-init", "precheck-join", "precheck":
		findings := m.findings
		if cmp.Or(m.facts["authority"], m.authority) != "" && findings == "" && strings.Contains(text, "sha256:"+strings.Repeat("0", 64)) { // the pin of no cluster
			findings = `{"code":"OCA-4108","severity":"error","what":"This machine is a node of another cluster"}`
		}
		fmt.Fprintf(c.Stdout, `{"passed":%t,"findings":[%s]}`+"\n", findings == "", findings)
		if findings != "" {
			return 10
		}
	case "init", "join":
		m.ran = append(m.ran, word)
		if m.hooks.Busy > 0 {
			m.hooks.Busy--
			return failed(c, `{"code":"OCA-1050","severity":"error","what":"Another ocadm is running on this machine","cause":"process 7"}`)
		}
		if m.findings != "" {
			return failed(c, m.findings)
		}
		fmt.Fprintln(c.Stdout, `{"type":"phase-started","phase":"software"}`)
		fmt.Fprintln(c.Stdout, `{"type":"phase-changed","phase":"software","message":"wrote a file"}`)
		if m.hooks.Join != nil {
			if err := m.hooks.Join(text); err != nil {
				fmt.Fprint(c.Stderr, err)
				return 1
			}
		}
		m.authority = cmp.Or(m.hooks.Authority, "of-the-cluster")
	default:
		if !m.sent[word] { // a digest
			return 1
		}
	}
	return 0
}

func failed(c *sshserver.Call, finding string) int {
	fmt.Fprintf(c.Stdout, `{"type":"run-failed","message":"failed","findings":[%s]}`+"\n", finding)
	return 10
}
