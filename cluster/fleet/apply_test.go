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
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/sshserver"
)

// story records the events of a run.
type story struct {
	mu     sync.Mutex
	events []workflow.Event
}

func (s *story) Event(e workflow.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

// fixture holds three machines and the file that names them.
type fixture struct {
	t        *testing.T
	dir      string
	key      gossh.PublicKey
	machines []*fleetnode.Machine
	// more holds additional fields of the machines, planes is the number of control-plane nodes; 0 means one.
	more   [3]string
	planes int
	story  story
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	fx := &fixture{t: t, dir: t.TempDir()}
	private, public := sshserver.NewKey(t)
	fx.key = public
	fx.write("key", string(private))
	fx.write("ocadm", "a program")
	for _, name := range []string{"a", "b", "c"} {
		fx.machines = append(fx.machines, fleetnode.Start(t, name, public, fleetnode.Hooks{}))
	}
	return fx
}

func (fx *fixture) write(name, text string) {
	fx.t.Helper()
	require.NoError(fx.t, os.WriteFile(filepath.Join(fx.dir, name), []byte(text), 0o600))
}

// spec reads the file: machine a is the first node.
func (fx *fixture) spec(head string) *fleet.Spec {
	fx.t.Helper()
	text := "apiVersion: ocadm.yunion.io/v1\nkind: Fleet\nprograms: {amd64: ocadm, arm64: ocadm}\n"
	if head == "" {
		head = "ssh: {keyFile: key}\n"
	}
	text += head
	for i, m := range fx.machines {
		switch i {
		case 0:
			text += "controlPlanes:\n"
		case max(1, fx.planes):
			text += "workers:\n"
		}
		text += fmt.Sprintf("- {name: %s, address: 127.0.0.1, ssh: {port: %d%s}}\n", m.Name, m.Port(), fx.more[i])
	}
	s, err := fleet.Read(filepath.Join(fx.dir, "fleet.yaml"), []byte(text))
	if err != nil {
		fx.t.Fatal(err, finding.Of(err))
	}
	return s
}

func (fx *fixture) apply(head string, change ...func(*fleet.Options)) (fleet.Result, error) {
	fx.t.Helper()
	o := fleet.Options{Spec: fx.spec(head), Dir: filepath.Join(fx.dir, "state"), Parallel: 4, Sink: &fx.story}
	for _, c := range change {
		c(&o)
	}
	return fleet.Apply(fx.t.Context(), o)
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

func (fx *fixture) want(res fleet.Result, err error, wanted string) {
	fx.t.Helper()
	if got := states(res); got != wanted {
		fx.t.Errorf("%s, want %s (%v)", got, wanted, err)
	}
	for _, m := range fx.machines {
		if did := m.Did(); slices.Contains(did, "init") || slices.Contains(did, "join") {
			fx.t.Errorf("%s was changed: %v", m.Name, did)
		}
	}
}

// TestDryRun checks that a dry run plans for all machines and changes none.
func TestDryRun(t *testing.T) {
	fx := newFixture(t)
	// Without a control plane, its check does not count yet.
	fx.machines[1].Find(`{"code":"OCA-4101","check":"ControlPlane","severity":"error","what":"w","cause":"c","remedy":"r"}`)
	res, err := fx.apply("", dry)
	fx.want(res, err, "a planned, b planned, c planned")
	if err != nil {
		t.Error(err)
	}
	for _, m := range fx.machines {
		if did := m.Did(); !slices.Equal(did, []string{"receive ocadm", "tidy"}) {
			t.Errorf("%s: %v", m.Name, did)
		}
	}
	if _, err := os.Stat(filepath.Join(fx.dir, "state")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a dry run wrote its directory: %v", err)
	}
	// The plan names the steps.
	if text := strings.Join(res.Machines[0].Changes, "\n"); !strings.Contains(text, "ocadm init") {
		t.Errorf("%s", text)
	}
}

// TestOtherNodeFirst checks that control-plane nodes remain what they are in their cluster, whichever the file lists first.
func TestOtherNodeFirst(t *testing.T) {
	fx := newFixture(t)
	fx.planes = 3
	for i, m := range fx.machines {
		m.Say("authority", "ours")
		m.Say("administrator", "yes")
		m.Say("joined", []string{"yes", "", "yes"}[i])
	}
	const head = "ssh: {keyFile: key}\nsettings: {cluster: {controlPlaneEndpoint: lb.example.org}}\n"
	res, err := fx.apply(head, dry)
	fx.want(res, err, "a planned, b planned, c planned")
	for i, word := range []string{"precheck-join", "precheck-init", "precheck-join"} {
		if !slices.ContainsFunc(fx.machines[i].Calls(), func(c fleetnode.Call) bool { return strings.Contains(c.Line, word) }) {
			t.Errorf("%s: no %s", res.Machines[i].Name, word)
		}
	}
	fetches := func(m fleet.MachineResult) bool { return strings.Contains(strings.Join(m.Changes, "\n"), "kubeconfig") }
	if a, b := res.Machines[0], res.Machines[1]; a.Role != "control-plane" || b.Role != "first" || fetches(a) || !fetches(b) {
		t.Errorf("%+v", res.Machines)
	}
	fx.machines[1].Say("joined", "yes") // the node that init made is lost, and its line deleted
	res, err = fx.apply(head, dry)
	if a, b := res.Machines[0], res.Machines[1]; err != nil || a.Role != "control-plane" || b.Role != "control-plane" || !fetches(a) || fetches(b) {
		t.Errorf("%+v, %v", res.Machines, err)
	}
}

// TestWithoutFirstNode checks that no other machine is changed if the node that init makes fails, whichever the file lists first.
func TestWithoutFirstNode(t *testing.T) {
	fx := newFixture(t)
	fx.planes = 3
	fx.machines[1] = fleetnode.Start(t, "b", fx.key, fleetnode.Hooks{Join: func(string) error { return errors.New("the disk is full") }})
	for i, m := range fx.machines[:2] {
		m.Say("authority", "ours")
		m.Say("administrator", "yes")
		m.Say("joined", []string{"yes", ""}[i])
	}
	res, err := fx.apply("ssh: {keyFile: key}\nsettings: {cluster: {controlPlaneEndpoint: lb.example.org}}\n")
	if got := states(res); got != "a waiting, b failed OCA-7607, c waiting" || err == nil {
		t.Errorf("%s, %v", got, err)
	}
	if did := slices.Concat(fx.machines[0].Did(), fx.machines[2].Did()); slices.Contains(did, "join") {
		t.Errorf("joined without a first node: %v", did)
	}
}

// TestBadInput checks that errors are found before anything is changed anywhere, with a code and a remedy.
func TestBadInput(t *testing.T) {
	for name, tt := range map[string]struct {
		bad  func(*fixture)
		head string
		want string
	}{
		"another key": {func(fx *fixture) {
			private, _ := sshserver.NewKey(fx.t)
			fx.write("key", string(private))
		}, "", "a failed OCA-7603, b failed OCA-7603, c failed OCA-7603"},
		"no key":          {func(fx *fixture) { fx.write("key", "none") }, "", "a failed OCA-7606, b failed OCA-7606, c failed OCA-7606"},
		"no file":         {func(*fixture) {}, "ssh: {keyFile: missing}\n", "a failed OCA-7606, b failed OCA-7606, c failed OCA-7606"},
		"no sudo":         {func(fx *fixture) { fx.more[1] = ", user: debian" }, "", "a planned, b failed OCA-7604, c planned"},
		"first node away": {func(fx *fixture) { fx.machines[0] = &fleetnode.Machine{Server: closed(fx), Name: "a"} }, "", "a failed OCA-7601, b waiting, c waiting"},
		"a check fails": {func(fx *fixture) {
			fx.machines[2].Find(`{"code":"OCA-2001","check":"Ports","severity":"error","what":"Port 10250 is taken","cause":"c","remedy":"r"}`)
		}, "", "a planned, b planned, c failed OCA-2001"},
		"a check of the first node fails": {func(fx *fixture) {
			fx.machines[0].Find(`{"code":"OCA-1008","check":"CPU","severity":"error","what":"w","cause":"c","remedy":"r"}`)
		}, "", "a failed OCA-1008, b waiting, c waiting"},
		"another cluster":    {func(fx *fixture) { fx.machines[1].Say("authority", "foreign") }, "", "a planned, b failed OCA-7643, c planned"},
		"one machine twice":  {func(fx *fixture) { fx.machines[2].Say("machineid", "id-of-b") }, "", "a planned, b planned, c failed OCA-7642"},
		"other architecture": {func(fx *fixture) { fx.machines[2].Say("arch", "riscv64") }, "", "a planned, b planned, c failed OCA-7646"},
		"the pod network is lost one way": {func(fx *fixture) {
			fx.machines[2].Lose(func(from string, port, _ int) bool { return from == "b" && port == 8472 })
		}, "", "a planned, b planned, c failed OCA-7648"},
		"a firewall lets nothing in": {func(fx *fixture) {
			fx.machines[1].Lose(func(string, int, int) bool { return true })
		}, "", "a planned, b failed OCA-7648 OCA-7648, c planned"},
		"large packets are lost": {func(fx *fixture) {
			fx.machines[2].Lose(func(from string, _, size int) bool { return from == "b" && size > 1400 })
		}, "", "a planned, b failed OCA-7649, c planned"},
		"an hour off": {func(fx *fixture) { fx.machines[2].Say("clock", "1000.5") }, "", "a planned, b planned, c failed OCA-7644"},
	} {
		t.Run(name, func(t *testing.T) {
			fx := newFixture(t)
			tt.bad(fx)
			res, err := fx.apply(tt.head, dry)
			fx.want(res, err, tt.want)
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

// TestIgnoreWays checks that a user can ignore an error and gets a warning.
func TestIgnoreWays(t *testing.T) {
	fx := newFixture(t)
	fx.machines[2].Lose(func(string, int, int) bool { return true })
	res, err := fx.apply("", dry, func(o *fleet.Options) { o.Ignore = []string{"Ways"} })
	fx.want(res, err, "a planned, b planned, c planned")
	if err != nil || len(res.Machines[2].Findings) != 2 || !strings.HasPrefix(res.Ways, "6 connections between 3 machines, each with every other; control-plane nodes: a") {
		t.Errorf("%v %q %+v", err, res.Ways, res.Machines[2].Findings)
	}
	for _, m := range fx.machines {
		if did := m.Did(); !slices.Equal(did, []string{"receive ocadm", "tidy"}) {
			t.Errorf("%s: %v", m.Name, did)
		}
	}
}

// closed returns a server that no longer listens.
func closed(fx *fixture) *sshserver.Server {
	s := &sshserver.Server{}
	fx.t.Run("server", func(t *testing.T) { s.Start(t) })
	return s
}

// TestHostKeys checks that keys are stored on first contact, and that a changed key is refused before anything is sent.
func TestHostKeys(t *testing.T) {
	fx := newFixture(t)
	fx.machines[0].Find(`{"code":"OCA-1008","check":"CPU","severity":"error","what":"w","cause":"c","remedy":"r"}`) // so that nothing is begun
	res, err := fx.apply("")
	fx.want(res, err, "a failed OCA-1008, b waiting, c waiting")
	known, err := os.ReadFile(filepath.Join(fx.dir, "state", "known_hosts"))
	if err != nil || strings.Count(string(known), "\n") != len(fx.machines) {
		t.Fatalf("%s, %v", known, err)
	}
	fx.machines[1].Reinstall(t)
	logins := fx.machines[1].Logins()
	res, err = fx.apply("")
	fx.want(res, err, "a failed OCA-1008, b failed OCA-7602, c waiting")
	if fx.machines[1].Logins() != logins {
		t.Error("it was logged in to")
	}
	if found := finding.Of(err); len(found) != 1 || !strings.Contains(strings.Join(found[0].Evidence, "\n"), "known_hosts") {
		t.Errorf("%v", err)
	}
}

// TestLock checks that two runs of a fleet exclude each other.
func TestLock(t *testing.T) {
	fx := newFixture(t)
	unlock, err := workflow.Lock(filepath.Join(fx.dir, "state", "lock"))
	require.NoError(t, err)
	defer unlock()
	if _, err := fx.apply(""); err == nil || finding.Of(err)[0].Code != "OCA-1050" {
		t.Errorf("%v", err)
	}
	// A dry run would remove what the other run has sent to the machines.
	if _, err := fx.apply("", dry); err == nil || finding.Of(err)[0].Code != "OCA-1050" || len(fx.machines[0].Did()) > 0 {
		t.Errorf("dry run: %v, %v", err, fx.machines[0].Did())
	}
}

// TestSecrets checks that the database password reaches only the first node, and no command line.
func TestSecrets(t *testing.T) {
	fx := newFixture(t)
	const password = "pass-of-the-database"
	fx.write("db", password+"\n")
	var learnt []string
	res, err := fx.apply("ssh: {keyFile: key}\nsettings: {database: {host: 192.0.2.9, passwordFile: db}}\n", dry,
		func(o *fleet.Options) { o.Secret = func(s ...string) { learnt = append(learnt, s...) } })
	fx.want(res, err, "a planned, b planned, c planned")
	for _, m := range fx.machines {
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
