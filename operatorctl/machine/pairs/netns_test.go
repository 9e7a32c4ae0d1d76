// SPDX-License-Identifier: Apache-2.0

package pairs

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/probe"
)

// asProbe makes the test program the probe.
const asProbe = "OCADM_TEST_PROBE"

func TestMain(m *testing.M) {
	if os.Getenv(asProbe) != "" {
		if err := probe.Run(context.Background(), os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// wire is three network namespaces on a bridge.
type wire struct{ t *testing.T }

func (w wire) run(argv ...string) {
	w.t.Helper()
	if out, err := exec.CommandContext(w.t.Context(), argv[0], argv[1:]...).CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %v: %s", strings.Join(argv, " "), err, out)
	}
}

func space(name string) string { return "ocadm-pairs-" + name }

// in runs a command in a namespace.
func (w wire) in(name string, argv ...string) {
	w.t.Helper()
	w.run(append([]string{"ip", "netns", "exec", space(name)}, argv...)...)
}

func newWire(t *testing.T) (wire, []Member) {
	t.Helper()
	for _, program := range []string{"ip", "iptables"} {
		if _, err := exec.LookPath(program); err != nil || os.Geteuid() != 0 {
			t.Skip("it needs root, ip and iptables: ", err)
		}
	}
	w := wire{t}
	remove := func() { // a killed run may have left something
		for _, name := range []string{"a", "b", "c", "bridge"} {
			_ = exec.Command("ip", "netns", "delete", space(name)).Run()
		}
	}
	remove()
	t.Cleanup(remove)
	w.run("ip", "netns", "add", space("bridge"))
	w.in("bridge", "ip", "link", "add", "br0", "type", "bridge")
	w.in("bridge", "ip", "link", "set", "br0", "up")
	var all []Member
	for i, name := range []string{"a", "b", "c"} {
		w.run("ip", "netns", "add", space(name))
		w.in("bridge", "ip", "link", "add", "name", name, "type", "veth", "peer", "name", "eth0", "netns", space(name))
		w.in("bridge", "ip", "link", "set", "dev", name, "master", "br0", "up")
		m := Member{Name: name, Address: fmt.Sprintf("192.0.2.%d", i+1), ControlPlane: i == 0}
		w.in(name, "ip", "address", "add", m.Address+"/24", "dev", "eth0")
		w.in(name, "ip", "link", "set", "eth0", "up")
		m.Probe = func(ctx context.Context, in io.Reader, onLine func(string)) error {
			c := exec.CommandContext(ctx, "ip", "netns", "exec", space(name), os.Args[0])
			c.Env = append(os.Environ(), asProbe+"=1")
			var stderr bytes.Buffer
			c.Stderr = &stderr
			stdin, err := c.StdinPipe()
			if err != nil {
				return err
			}
			out, err := c.StdoutPipe()
			if err != nil {
				return err
			}
			if err := c.Start(); err != nil {
				return err
			}
			go func() {
				_, _ = io.Copy(stdin, in)
				stdin.Close()
			}()
			for lines := bufio.NewScanner(out); lines.Scan(); {
				onLine(lines.Text())
			}
			if err := c.Wait(); err != nil {
				return fmt.Errorf("%w: %s", err, stderr.String())
			}
			return nil
		}
		all = append(all, m)
	}
	return w, all
}

// TestNetwork tests the paths between machines of real networks, whose firewalls and MTUs drop packets.
func TestNetwork(t *testing.T) {
	w, all := newWire(t)
	find := func(want ...string) {
		t.Helper()
		outcome := Try(t.Context(), all, "run", func(int, int) {})
		var got []string
		for name, list := range outcome.Findings() {
			for _, f := range list {
				got = append(got, name+": "+f.Code+" "+f.What+"; "+f.Cause)
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q\nwant %q", got, want)
		}
	}
	find()
	const firewall = "packets arrive, but the receiver's firewall drops them"
	rule := func(in string, args ...string) func() {
		w.in(in, append([]string{"iptables", "-I"}, args...)...)
		return func() { w.in(in, append([]string{"iptables", "-D"}, args...)...) }
	}
	undo := rule("c", "INPUT", "-p", "udp", "--dport", "8472", "-s", "192.0.2.2", "-j", "DROP")
	find("c: OCA-7648 Nothing arrives from b at c on UDP 8472 (pod network); " + firewall)
	undo()
	undo = rule("b", "OUTPUT", "-p", "udp", "--dport", "8472", "-j", "DROP")
	find("b: OCA-7648 Nothing arrives from b at a, c on UDP 8472 (pod network); the sender cannot send: operation not permitted")
	undo()
	undo = rule("c", "INPUT", "-p", "tcp", "--dport", "10250", "-j", "REJECT", "--reject-with", "tcp-reset")
	find("c: OCA-7648 Nothing arrives from a at c on TCP 10250 (kubelet); connections are refused although a program listens: a firewall rejects them")
	undo()
	undo = rule("c", "INPUT", "-p", "tcp", "--dport", "10250", "-j", "DROP")
	find("c: OCA-7648 Nothing arrives from a at c on TCP 10250 (kubelet); connections get no answer")
	undo()
	// The network between them drops large packets, like the smaller MTU at the other end of a cable.
	w.in("bridge", "ip", "link", "set", "dev", "b", "mtu", "1400")
	w.in("bridge", "ip", "link", "set", "dev", "br0", "mtu", "1500")
	const whole = "; the sender's interface has MTU 1500, and the pod network uses all of it, including 50 bytes for its own header"
	find("b: OCA-7649 Packets of more than 1400 bytes do not arrive from a, c at b"+whole, "b: OCA-7649 Packets of more than 1400 bytes do not arrive from b at a, c"+whole)
}
