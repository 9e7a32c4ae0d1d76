// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package virtualaddress kills and disconnects the nodes of a virtual address, with the real keepalived, agent and configuration, and counts the holders of the address.
package virtualaddress

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/test/lab/images"
	"yunion.io/x/ocadm/test/require"
)

const (
	rounds, fewRounds = 50, 3
	sampleEvery       = 50 * time.Millisecond
	// resolves is how long two holders that reach each other are tolerated. VRRP settles it with the next advertisement, which comes every second.
	resolves = 4 * time.Second
	// settles limits how long the address may have no holder, or two, after the end of a fault, on a busy machine.
	settles = 5 * time.Minute
)

// group holds the machines and the observations.
type group struct {
	mu       sync.Mutex
	machines []*machine
	// two is the time since which there have been two effective holders, longest the longest such time.
	two     time.Time
	longest time.Duration
	problem string
}

// effective returns the machines that have the address, are reachable for the others, and have an API server that answers.
func (g *group) effective() (out []*machine) {
	for _, m := range g.machines {
		if m.on && m.connected && m.mode == answers && m.holds() {
			out = append(out, m)
		}
	}
	return out
}

func (g *group) sample(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	list := g.effective()
	if len(list) < 2 {
		g.two = time.Time{}
		return
	}
	if g.two.IsZero() {
		g.two = now
	}
	if took := now.Sub(g.two); took > g.longest {
		g.longest = took
		if took > resolves {
			g.problem = list[0].name + " and " + list[1].name + " have the address"
		}
	}
}

// holder waits until exactly one machine has had the address for two seconds.
func (g *group) holder(t *testing.T) *machine {
	t.Helper()
	end := time.Now().Add(settles)
	var one *machine
	since := time.Now()
	for time.Now().Before(end) {
		g.mu.Lock()
		list, all := g.effective(), 0
		for _, m := range g.machines {
			if m.on && m.holds() {
				all++
			}
		}
		g.mu.Unlock()
		switch {
		case len(list) != 1 || all != 1:
			one = nil
		case one != list[0]:
			one, since = list[0], time.Now()
		case time.Since(since) > 2*time.Second:
			return one
		}
		time.Sleep(sampleEvery)
	}
	t.Fatalf("not one machine has the address after %s", settles)
	return nil
}

// change changes a machine under the lock of the sampler.
func (g *group) change(do func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	do()
}

// fault is a temporary fault of a machine.
type fault struct {
	name      string
	begin     func(*testing.T, *machine)
	end       func(*testing.T, *machine)
	from, to  int // how long, in tenths of a second
	elsewhere bool
}

func (g *group) serves(t *testing.T, m *machine, mode string) {
	m.mode = mode
	m.write(t, modeFile, []byte(mode), 0o600)
}

func (g *group) faults(boot func(*testing.T, *machine)) []fault {
	mode := func(mode string) func(*testing.T, *machine) {
		return func(t *testing.T, m *machine) { g.serves(t, m, mode) }
	}
	cut := func(t *testing.T, m *machine) { m.connect(t, false); g.serves(t, m, noQuorum) }
	heal := func(t *testing.T, m *machine) { m.connect(t, true); g.serves(t, m, answers) }
	kill := func(t *testing.T, m *machine) {
		if err := m.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
			t.Error(err)
		}
	}
	return []fault{
		{name: "keepalived is killed", begin: kill, end: func(*testing.T, *machine) {}, from: 1, to: 30},
		{name: "the API server is silent", begin: mode(silent), end: mode(answers), from: 10, to: 90},
		{name: "the API server refuses", begin: mode(refuses), end: mode(answers), from: 5, to: 60},
		{name: "the holder is cut off", begin: cut, end: heal, from: 5, to: 90},
		{name: "another is cut off", begin: cut, end: heal, from: 5, to: 90, elsewhere: true},
		{name: "the power is cut", begin: func(t *testing.T, m *machine) { m.cutPower(t) }, end: boot, from: 5, to: 80},
	}
}

// needRoot skips a test that creates network namespaces if it does not run as root. With OCADM_TEST_REQUIRE it fails instead.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("OCADM_TEST_REQUIRE") != "" {
			t.Fatal("this needs root: it makes network namespaces")
		}
		t.Skip("this needs root: it makes network namespaces")
	}
}

// TestRounds makes one random fault after the other, most of them at the machine that has the address.
func TestRounds(t *testing.T) {
	needRoot(t)
	tree, err := images.Keepalived(t.Context(), t.Logf)
	require.NoError(t, err)
	s := vip.Settings{Address: "10.213.0.100", RouterID: 77, Password: vip.NewPassword()}.With("10.213.0.1").With("10.213.0.2").With("10.213.0.3")
	namespace(t, hub)
	ip(t, "-n", hub, "link", "add", "br0", "type", "bridge")
	ip(t, "-n", hub, "link", "set", "br0", "up")
	log, err := os.Create(filepath.Join(t.TempDir(), "machines.log"))
	require.NoError(t, err)
	defer log.Close()
	g := &group{}
	boot := func(t *testing.T, m *machine) { m.mode = answers; m.boot(t, log) }
	for n := 1; n <= 3; n++ {
		m := newMachine(t, n, tree, s)
		g.machines = append(g.machines, m)
		boot(t, m)
		t.Cleanup(func() {
			if m.on {
				m.cutPower(t)
			}
		})
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case now := <-tick.C:
				g.sample(now)
			}
		}
	}()
	g.run(t, g.faults(boot))
	close(stop)
	<-stopped
	t.Logf("the longest time with two effective holders was %.2f s", g.longest.Seconds())
	if t.Failed() {
		raw, _ := os.ReadFile(log.Name()) // as evidence
		lines := strings.Split(string(raw), "\n")
		t.Log(strings.Join(lines[max(0, len(lines)-150):], "\n"))
	}
}

func (g *group) run(t *testing.T, faults []fault) {
	count, seed := fewRounds, rand.Uint64()
	if os.Getenv("OCADM_SWEEP") != "" {
		count = rounds
	}
	t.Logf("%d rounds, seed %d", count, seed)
	random := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // not secret
	moved := 0
	for n := 1; n <= count && !t.Failed(); n++ {
		f := faults[(n+random.IntN(2))%len(faults)]
		holder := g.holder(t)
		victim := holder
		if f.elsewhere {
			victim = g.machines[(slices.Index(g.machines, holder)+1+random.IntN(2))%len(g.machines)]
		}
		length := time.Duration(f.from+random.IntN(f.to-f.from)) * 100 * time.Millisecond
		g.change(func() { f.begin(t, victim) })
		time.Sleep(length)
		g.change(func() { f.end(t, victim) })
		now := g.holder(t)
		if now != holder {
			moved++
		}
		t.Logf("round %d: %s, %s, for %.1f s: the address is on %s, was on %s", n, f.name, victim.name, length.Seconds(), now.name, holder.name)
		if g.problem != "" {
			t.Errorf("two effective holders for more than %s: %s", resolves, g.problem)
		}
	}
	t.Logf("the address moved %d times", moved)
	if count == rounds && moved < rounds/5 {
		t.Errorf("the address moved %d times in %d rounds: the faults do nothing", moved, count)
	}
}
