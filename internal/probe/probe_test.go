// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"os"
	"slices"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

func TestPacket(t *testing.T) {
	for _, size := range ladder(1500) {
		p := packet("run", "a", "b", size, headIPv4+headUDP)
		if len(p)+headIPv4+headUDP != size {
			t.Errorf("a packet of %d bytes has %d", size, len(p)+headIPv4+headUDP)
		}
		if p[0]&0x08 != 0 {
			t.Error("VXLAN would take it for its own")
		}
		datagram := append([]byte{1, 2, 0x21, 0x18, 0, 0, 0, 0}, p...)
		if got, ours := read(datagram, "run", "b"); !ours || got != (Arrival{From: "a", Port: 8472, Size: size}) {
			t.Errorf("%+v %t", got, ours)
		}
		for _, other := range [][2]string{{"another", "b"}, {"run", "c"}} {
			if got, ours := read(datagram, other[0], other[1]); ours {
				t.Errorf("%v: %+v", other, got)
			}
		}
	}
	if got := ladder(1450); got[len(got)-1] != 1450 || slices.Contains(got, 1500) || got[0] != Small {
		t.Errorf("%v", got)
	}
	for name, p := range map[string][]byte{"short": {0x45}, "TCP": append([]byte{0x45, 0, 0, 0, 0, 0, 0, 0, 0, 6}, make([]byte, 30)...), "none": nil} {
		if datagram(p) != nil {
			t.Errorf("%s is a datagram", name)
		}
	}
	for name, l := range map[string]Listen{"no run": {Name: "a"}, "no name": {Run: "r"}, "a bar": {Run: "r", Name: "a|b"}} {
		if l.check() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

// dialogue is a running probe.
type dialogue struct {
	t    *testing.T
	in   *io.PipeWriter
	out  *bufio.Scanner
	over chan error
}

func start(t *testing.T) *dialogue {
	t.Helper()
	in, w := io.Pipe()
	r, out := io.Pipe()
	d := &dialogue{t: t, in: w, out: bufio.NewScanner(r), over: make(chan error, 1)}
	go func() {
		d.over <- Run(t.Context(), in, out)
		_ = out.Close()
	}()
	t.Cleanup(func() { _, _ = w.Close(), r.Close() })
	return d
}

func (d *dialogue) say(line any, into any) {
	d.t.Helper()
	require.NoError(d.t, json.NewEncoder(d.in).Encode(line))
	d.hear(into)
}

func (d *dialogue) hear(into any) {
	d.t.Helper()
	if !d.out.Scan() {
		d.t.Fatal("it says nothing: ", <-d.over)
	}
	require.NoError(d.t, json.Unmarshal(d.out.Bytes(), into))
}

// TestRun makes two probes on one machine send to each other over the loopback interface.
func TestRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it needs root, as on the machines")
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	free, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	port := func(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }
	own, others, closed := port(free), port(taken), 1
	free.Close()
	a, b := start(t), start(t)
	var ready Ready
	a.say(Listen{Run: "r", Name: "a"}, &ready)
	b.say(Listen{Run: "r", Name: "b", TCP: []int{own, others}}, &ready)
	if !slices.Equal(ready.Listening, []int{own}) || !slices.Equal(ready.Taken, []int{others}) || !ready.Wire || ready.Error != "" {
		t.Fatalf("%+v", ready)
	}
	var report Report
	a.say(Targets{To: []Target{{Name: "b", Address: "127.0.0.1", TCP: []int{own, others, closed}, UDP: []int{8472, 6081}}}}, &report)
	sent := report.Sent[0]
	if sent.To != "b" || sent.TCP[own] != Connected || sent.TCP[others] != Connected || sent.TCP[closed] != Refused || len(sent.UDP) > 0 || sent.MTU == 0 {
		t.Errorf("%+v", sent)
	}
	b.say(Targets{}, &report)
	for d, want := range map[*dialogue][]Arrival{a: {}, b: {{"a", 6081, Small, true}, {"a", 8472, Small, true}}} {
		_ = d.in.Close()
		var got Arrived
		if d.hear(&got); !slices.Equal(got.Packets, want) {
			t.Errorf("%+v, want %+v", got.Packets, want)
		}
		if err := <-d.over; err != nil {
			t.Error(err)
		}
	}
}

// TestRunEnds checks that a probe ends with its input, whatever it was asked, and rejects unknown messages.
func TestRunEnds(t *testing.T) {
	d := start(t)
	_ = d.in.Close()
	if err := <-d.over; err != nil {
		t.Error(err)
	}
	for _, line := range []string{"no JSON\n", `{"run":"r"}` + "\n"} {
		d := start(t)
		if _, err := io.WriteString(d.in, line); err != nil {
			t.Fatal(err)
		}
		if err := <-d.over; err == nil {
			t.Errorf("%s is no error", line)
		}
	}
}
