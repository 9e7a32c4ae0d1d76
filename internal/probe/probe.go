// SPDX-License-Identifier: Apache-2.0

// Package probe tests the network paths between machines. It runs on all of them concurrently: it listens on free ports, sees which packets of the
// others arrive and which pass the machine's firewall, and sends its own. It speaks JSON, one line per message, over its standard streams, and leaves
// nothing behind.
//
// The dialogue: Listen in, Ready out; Targets in, Sent out; end of input, Arrived out.
package probe

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"yunion.io/x/ocadm/internal/lists"
)

// Listen is the first line of input.
type Listen struct {
	// Run identifies the run on all machines. Name is this machine's name.
	Run  string `json:"run"`
	Name string `json:"name"`
	// TCP are the ports to listen on.
	TCP []int `json:"tcp,omitempty"`
}

// Ready is the first line of output.
type Ready struct {
	// Listening lists the ports on which it listens, Taken those on which another program does.
	Listening []int `json:"listening,omitempty"`
	Taken     []int `json:"taken,omitempty"`
	// Wire reports whether it sees packets before the machine's firewall does.
	Wire bool `json:"wire,omitempty"`
	// Error is why it cannot see UDP packets at all.
	Error string `json:"error,omitempty"`
}

// Target is a machine to send to. With MTU, packets of all sizes go to the first UDP port.
type Target struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	TCP     []int  `json:"tcp,omitempty"`
	UDP     []int  `json:"udp,omitempty"`
	MTU     bool   `json:"mtu,omitempty"`
}

// Targets is the second line of input.
type Targets struct {
	To []Target `json:"to"`
}

// Outcomes of a connection. Any other outcome is the text of an error.
const (
	Connected = "connected"
	Refused   = "refused"
	Silent    = "no answer"
)

// Sent describes the outcome of sending to a machine.
type Sent struct {
	To string `json:"to"`
	// TCP holds the outcome of the connection to each port, UDP the error of sending to a port.
	TCP map[int]string `json:"tcp,omitempty"`
	UDP map[int]string `json:"udp,omitempty"`
	// MTU is the MTU of the sending interface.
	MTU int `json:"mtu,omitempty"`
}

// Report is the second line of output.
type Report struct {
	Sent []Sent `json:"sent"`
}

// Arrival is a packet that arrived. Passed reports whether the machine's firewall let it through.
type Arrival struct {
	From   string `json:"from"`
	Port   int    `json:"port"`
	Size   int    `json:"size"`
	Passed bool   `json:"passed,omitempty"`
}

// Arrived is the last line of output.
type Arrived struct {
	Packets []Arrival `json:"packets"`
}

const (
	headIPv4, headIPv6, headUDP = 20, 40, 8
	// Small is the size of a packet that fits through any path.
	Small = 160
)

// sizes are the packet sizes tried below the MTU: what tunnels and providers leave.
var sizes = []int{1280, 1358, 1380, 1400, 1420, 1430, 1442, 1450, 1472, 1480, 1492, 1500, 4000, 8000, 8500, 8900, 8950, 9000}

// ladder returns the sizes to try on an interface. It is pure.
func ladder(mtu int) []int {
	out := append([]int{Small}, lists.Filter(sizes, func(s int) bool { return s < mtu })...)
	if mtu > Small {
		out = append(out, mtu)
	}
	return out
}

// zeros begin a packet: VXLAN and Geneve drop packets without a valid header. mark follows.
const (
	zeros = "\x00\x00\x00\x00\x00\x00\x00\x00"
	mark  = "ocadmway"
)

// packet returns the payload for a packet size, which includes the IP and UDP headers. It is pure.
func packet(run, from, to string, size, heads int) []byte {
	out := []byte(zeros + mark + strings.Join([]string{run, from, to, strconv.Itoa(size)}, "|") + "|")
	if n := size - heads; len(out) < n {
		out = append(out, make([]byte, n-len(out))...)
	}
	return out
}

// read parses a UDP datagram with its header, if it belongs to this run and is for this machine. It is pure.
func read(datagram []byte, run, self string) (Arrival, bool) {
	if len(datagram) < headUDP {
		return Arrival{}, false
	}
	port := int(datagram[2])<<8 | int(datagram[3]) //nolint:mnd // the receiver's port
	text, ours := bytes.CutPrefix(datagram[headUDP:], []byte(zeros+mark))
	fields := strings.SplitN(string(text[:min(len(text), Small)]), "|", 5) //nolint:mnd // four fields and the rest
	if !ours || len(fields) < 5 || fields[0] != run || fields[2] != self {
		return Arrival{}, false
	}
	size, err := strconv.Atoi(fields[3])
	return Arrival{From: fields[1], Port: port, Size: size}, err == nil
}

// datagram returns the payload of an IP packet; nil for a fragment and for protocols other than UDP. It is pure.
func datagram(p []byte) []byte {
	const udp = 17
	switch {
	case len(p) >= headIPv6 && p[0]>>4 == 6 && p[6] == udp: //nolint:mnd // version and next header
		return p[headIPv6:]
	case len(p) >= headIPv4 && p[0]>>4 == 4 && p[9] == udp: //nolint:mnd // version and protocol
		if head := int(p[0]&0xf) * 4; head <= len(p) { //nolint:mnd // in 4-byte words
			return p[head:]
		}
	}
	return nil
}

// check rejects invalid values.
func (l Listen) check() error {
	if l.Run == "" || l.Name == "" || strings.ContainsAny(l.Run+l.Name, "|\x00") || len(l.Run)+2*len(l.Name) > 100 { //nolint:mnd // the capacity of a small packet
		return fmt.Errorf("listening: run %q of machine %q cannot be sent", l.Run, l.Name)
	}
	return nil
}
