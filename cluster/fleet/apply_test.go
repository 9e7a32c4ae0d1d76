// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	gossh "golang.org/x/crypto/ssh"

	"yunion.io/x/ocadm/cluster/fleet"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/fleetnode"
	"yunion.io/x/ocadm/test/sshserver"
)

// story keeps the events of a run.
type story struct {
	mu     sync.Mutex
	events []workflow.Event
}

func (s *story) Event(e workflow.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

// world is three machines and the file that names them.
type world struct {
	t        *testing.T
	dir      string
	key      gossh.PublicKey
	machines []*fleetnode.Machine
	// more are further fields of the machines.
	more  [3]string
	story story
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir()}
	private, public := sshserver.NewKey(t)
	w.key = public
	w.write("key", string(private))
	w.write("ocadm", "a program")
	for _, name := range []string{"a", "b", "c"} {
		w.machines = append(w.machines, fleetnode.Start(t, name, public, fleetnode.Hooks{}))
	}
	return w
}

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// spec reads the file: machine a is the first node.
func (w *world) spec(head string) *fleet.Spec {
	w.t.Helper()
	text := "apiVersion: ocadm.yunion.io/v1\nkind: Fleet\nprograms: {amd64: ocadm, arm64: ocadm}\n"
	if head == "" {
		head = "ssh: {keyFile: key}\n"
	}
	text += head
	for i, m := range w.machines {
		if i < 2 {
			text += []string{"controlPlanes:\n", "workers:\n"}[i]
		}
		text += fmt.Sprintf("- {name: %s, address: 127.0.0.1, ssh: {port: %d%s}}\n", m.Name, m.Port(), w.more[i])
	}
	s, err := fleet.Read(filepath.Join(w.dir, "fleet.yaml"), []byte(text))
	if err != nil {
		w.t.Fatal(err, finding.Of(err))
	}
	return s
}

func (w *world) apply(head string, change ...func(*fleet.Options)) (fleet.Result, error) {
	w.t.Helper()
	o := fleet.Options{Spec: w.spec(head), Dir: filepath.Join(w.dir, "state"), Parallel: 4, Sink: &w.story}
	for _, c := range change {
		c(&o)
	}
	return fleet.Apply(w.t.Context(), o)
}

func dry(o *fleet.Options) { o.DryRun = true }

func states(res fleet.Result) string {
	var out []string
	for _, m := range res.Machines {
		one := string(m.State)
		for _, f := range m.Findings {
			if f.Severity == finding.Error {
				one += " " + f.Code
			}
		}
		out = append(out, m.Name+" "+one)
	}
	return strings.Join(out, ", ")
}

func (w *world) want(res fleet.Result, err error, wanted string) {
	w.t.Helper()
	if got := states(res); got != wanted {
		w.t.Errorf("%s, want %s (%v)", got, wanted, err)
	}
	for _, m := range w.machines {
		if did := m.Did(); slices.Contains(did, "init") || slices.Contains(did, "join") {
			w.t.Errorf("%s was changed: %v", m.Name, did)
		}
	}
}

// TestDryRun plans for all machines, and leaves none changed.
func TestDryRun(t *testing.T) {
	w := newWorld(t)
	// Before there is a control plane, its check does not count.
	w.machines[1].Find(`{"code":"OCA-4101","check":"ControlPlane","severity":"error","what":"w","cause":"c","remedy":"r"}`)
	res, err := w.apply("", dry)
	w.want(res, err, "a planned, b planned, c planned")
	if err != nil {
		t.Error(err)
	}
	for _, m := range w.machines {
		if did := m.Did(); !slices.Equal(did, []string{"receive ocadm", "tidy"}) {
			t.Errorf("%s: %v", m.Name, did)
		}
	}
	if _, err := os.Stat(filepath.Join(w.dir, "state")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dry run wrote its directory: %v", err)
	}
	// The plan names the steps.
	if text := strings.Join(res.Machines[0].Changes, "\n"); !strings.Contains(text, "ocadm init") {
		t.Errorf("%s", text)
	}
}

// TestBadInput: what is wrong is found before anything is changed anywhere, with its code and what to do.
func TestBadInput(t *testing.T) {
	for name, tt := range map[string]struct {
		bad  func(*world)
		head string
		want string
	}{
		"another key": {func(w *world) {
			private, _ := sshserver.NewKey(w.t)
			w.write("key", string(private))
		}, "", "a failed OCA-7603, b failed OCA-7603, c failed OCA-7603"},
		"no key":          {func(w *world) { w.write("key", "none") }, "", "a failed OCA-7606, b failed OCA-7606, c failed OCA-7606"},
		"no file":         {func(*world) {}, "ssh: {keyFile: missing}\n", "a failed OCA-7606, b failed OCA-7606, c failed OCA-7606"},
		"no sudo":         {func(w *world) { w.more[1] = ", user: debian" }, "", "a planned, b failed OCA-7604, c planned"},
		"first node away": {func(w *world) { w.machines[0] = &fleetnode.Machine{Server: closed(w), Name: "a"} }, "", "a failed OCA-7601, b waiting, c waiting"},
		"a check fails": {func(w *world) {
			w.machines[2].Find(`{"code":"OCA-2001","check":"Ports","severity":"error","what":"Port 10250 is taken","cause":"c","remedy":"r"}`)
		}, "", "a planned, b planned, c failed OCA-2001"},
		"a check of the first node fails": {func(w *world) {
			w.machines[0].Find(`{"code":"OCA-1008","check":"CPU","severity":"error","what":"w","cause":"c","remedy":"r"}`)
		}, "", "a failed OCA-1008, b waiting, c waiting"},
		"another cluster":    {func(w *world) { w.machines[1].Say("authority", "foreign") }, "", "a planned, b failed OCA-7643, c planned"},
		"one machine twice":  {func(w *world) { w.machines[2].Say("machineid", "id-of-b") }, "", "a planned, b planned, c failed OCA-7642"},
		"other architecture": {func(w *world) { w.machines[2].Say("arch", "riscv64") }, "", "a planned, b planned, c failed OCA-7646"},
		"the pod network is lost one way": {func(w *world) {
			w.machines[2].Lose(func(from string, port, _ int) bool { return from == "b" && port == 8472 })
		}, "", "a planned, b planned, c failed OCA-7648"},
		"a firewall lets nothing in": {func(w *world) {
			w.machines[1].Lose(func(string, int, int) bool { return true })
		}, "", "a planned, b failed OCA-7648 OCA-7648, c planned"},
		"large packets are lost": {func(w *world) {
			w.machines[2].Lose(func(from string, _, size int) bool { return from == "b" && size > 1400 })
		}, "", "a planned, b failed OCA-7649, c planned"},
		"an hour off": {func(w *world) { w.machines[2].Say("clock", "1000.5") }, "", "a planned, b planned, c failed OCA-7644"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tt.bad(w)
			res, err := w.apply(tt.head, dry)
			w.want(res, err, tt.want)
			found := finding.Of(err)
			if len(found) != 1 || found[0].Code != "OCA-7641" || len(found[0].Evidence) == 0 {
				t.Fatalf("%v", err)
			}
			if strings.Contains(strings.Join(found[0].Evidence, ""), "Secret") {
				t.Errorf("a Secret is named where there is none: %v", found[0].Evidence)
			}
		})
	}
}

// TestIgnoreWays: a user who knows better goes on, and is warned.
func TestIgnoreWays(t *testing.T) {
	w := newWorld(t)
	w.machines[2].Lose(func(string, int, int) bool { return true })
	res, err := w.apply("", dry, func(o *fleet.Options) { o.Ignore = []string{"Ways"} })
	w.want(res, err, "a planned, b planned, c planned")
	if err != nil || len(res.Machines[2].Findings) != 2 || !strings.HasPrefix(res.Ways, "6 ways between 3 machines, each with each other; control-plane nodes: a") {
		t.Errorf("%v %q %+v", err, res.Ways, res.Machines[2].Findings)
	}
	for _, m := range w.machines {
		if did := m.Did(); !slices.Equal(did, []string{"receive ocadm", "tidy"}) {
			t.Errorf("%s: %v", m.Name, did)
		}
	}
}

// closed is a server that no longer listens.
func closed(w *world) *sshserver.Server {
	s := &sshserver.Server{}
	w.t.Run("server", func(t *testing.T) { s.Start(t) })
	return s
}

// TestHostKeys: the keys of the first contact are kept, and a changed one is refused before anything is sent.
func TestHostKeys(t *testing.T) {
	w := newWorld(t)
	w.machines[0].Find(`{"code":"OCA-1008","check":"CPU","severity":"error","what":"w","cause":"c","remedy":"r"}`) // so that nothing is begun
	res, err := w.apply("")
	w.want(res, err, "a failed OCA-1008, b waiting, c waiting")
	known, err := os.ReadFile(filepath.Join(w.dir, "state", "known_hosts"))
	if err != nil || strings.Count(string(known), "\n") != len(w.machines) {
		t.Fatalf("%s, %v", known, err)
	}
	w.machines[1].Reinstall(t)
	logins := w.machines[1].Logins()
	res, err = w.apply("")
	w.want(res, err, "a failed OCA-1008, b failed OCA-7602, c waiting")
	if w.machines[1].Logins() != logins {
		t.Error("it was logged in to")
	}
	if found := finding.Of(err); len(found) != 1 || !strings.Contains(strings.Join(found[0].Evidence, "\n"), "known_hosts") {
		t.Errorf("%v", err)
	}
}

// TestLock keeps two runs of one fleet apart.
func TestLock(t *testing.T) {
	w := newWorld(t)
	unlock, err := workflow.Lock(filepath.Join(w.dir, "state", "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	if _, err := w.apply(""); err == nil || finding.Of(err)[0].Code != "OCA-1050" {
		t.Errorf("%v", err)
	}
}

// TestSecrets: the password of the database reaches the first node, and only it, and no command line.
func TestSecrets(t *testing.T) {
	w := newWorld(t)
	const password = "pass-of-the-database"
	w.write("db", password+"\n")
	var learnt []string
	res, err := w.apply("ssh: {keyFile: key}\nsettings: {database: {host: 192.0.2.9, passwordFile: db}}\n", dry,
		func(o *fleet.Options) { o.Secret = func(s ...string) { learnt = append(learnt, s...) } })
	w.want(res, err, "a planned, b planned, c planned")
	for _, m := range w.machines {
		got := false
		for _, c := range m.Calls() {
			if strings.Contains(c.Line, password) {
				t.Errorf("%s: it is in the command line %s", m.Name, c.Line)
			}
			got = got || strings.Contains(c.Stdin, password)
		}
		if got != (m.Name == "a") {
			t.Errorf("%s got the password: %t", m.Name, got)
		}
	}
	if !slices.Contains(learnt, password) {
		t.Error("it is not taken out of logs")
	}
}
