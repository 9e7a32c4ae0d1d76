// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/test/lab/machine"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
	"yunion.io/x/ocadm/test/scenario"
)

const version = "v4.0.4"

// repository is the root of the checkout, relative to this package.
const repository = "../.."

type suite struct {
	*scenario.Scenario
	db *mariadb.Server
	// fresh is the state of the machines before anything.
	fresh map[int]map[string]string
	// joined is the state of node 2 after a killed and repeated join.
	joined map[string]string
	// left is a child of node 2's executor that outlives the cloud.
	left process
	// older is a snapshot of etcd on node 1, from when fewer nodes had joined.
	older string
	// running is the current test or step.
	running atomic.Pointer[testing.T]
}

func TestCloud(t *testing.T) {
	needRoot(t)
	s := setUp(t)
	s.walk(t, nil,
		step{"bad input changes nothing", s.badInput},
		step{"dry run touches nothing", s.dryRun},
		step{"preflight", s.preflight},
		step{"init is killed", s.killed},
		step{"init", s.init},
		step{"init again changes nothing", s.initAgain},
		step{"dry runs on a node touch nothing", s.dryRunAfter},
		step{"no secret is printed", s.noSecret},
		step{"join is killed", s.joinKilled},
		step{"join", s.join},
		step{"bad joins", s.badJoins},
		step{"cloud", s.cloud},
		step{"malformed clouds are refused", s.malformed},
		step{"web and login", s.web},
		step{"support and why", s.support},
		step{"a nightly backup has a snapshot of etcd", s.nightly},
		step{"agents run on the compute node", s.agents},
		step{"no update without images", s.noImages},
		step{"images", s.images},
		step{"virtual machines outlive agents and executor", s.servers},
		step{"delete the cloud", s.deleteCloud},
		step{"a volume goes with its claim", s.reclaim},
		step{"reset", s.reset},
		step{"init after reset", s.initAfterReset},
		step{"reset without an API server", s.resetWithoutAPIServer},
	)
}

func needRoot(t *testing.T) {
	t.Helper()
	if err := scenario.Root(); err != nil {
		if os.Getenv("OCADM_TEST_REQUIRE") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// machines creates a lab of fresh machines with ocadm and its bundle, and removes it at the end of the test.
func machines(t *testing.T, nodes int) *machine.Lab {
	t.Helper()
	log := logf(t)
	ocadm, bundle, err := scenario.Build(t.Context(), repository, version, "", log)
	require.NoError(t, err)
	return up(t, machine.Options{Nodes: nodes, Ocadm: ocadm, Bundle: bundle, Logf: log})
}

// up creates a lab of fresh machines, and removes it at the end of the test. The name in o distinguishes labs of one test.
func up(t *testing.T, o machine.Options) *machine.Lab {
	t.Helper()
	ctx := t.Context()
	o.Name = labName(t) + o.Name
	lock(t, o.Name, o.Logf)
	// Remove what an interrupted run left.
	if err := machine.Down(ctx, o.Name, o.Logf); err != nil && !errors.Is(err, machine.ErrNoLab) {
		t.Fatal(err)
	}
	l, err := machine.Up(ctx, o)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := machine.Down(context.Background(), o.Name, o.Logf); err != nil { // unless the test has removed it
			t.Error(err)
		}
	})
	return l
}

func setUp(t *testing.T) *suite {
	t.Helper()
	l := machines(t, 2)
	db, err := mariadb.Start(t.Context(), t.TempDir(), mariadb.Options{Addr: l.Host().String() + ":0"})
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	s := newSuite(t, l)
	s.db = db
	for i := range l.Nodes() {
		s.fresh[i+1] = s.look(t, i+1)
	}
	return s
}

// labName returns a lab name that is unique to this checkout, as others may use the same host, and to the test, as make e2e runs two at once.
func labName(t *testing.T) string {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	sum := sha256.Sum256([]byte(abs(t, ".") + " " + test))
	return "e2e-" + hex.EncodeToString(sum[:3])
}

// lock keeps runs of one test in one checkout from removing each other's machines. The kernel releases it with the process.
func lock(t *testing.T, lab string, log func(string, ...any)) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "ocadm-"+lab+".lock"), os.O_RDWR|os.O_CREATE, 0o600)
	require.NoError(t, err)
	if unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		log("waiting for another run in this checkout to end")
		require.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	}
	t.Cleanup(func() { _ = f.Close() })
}

func abs(t *testing.T, path string) string {
	t.Helper()
	p, err := filepath.Abs(filepath.Join(repository, path))
	require.NoError(t, err)
	return p
}

func newSuite(t *testing.T, l *machine.Lab) *suite {
	s := &suite{fresh: map[int]map[string]string{}}
	s.running.Store(t)
	s.Scenario = &scenario.Scenario{Lab: l, Story: testWriter{&s.running}}
	return s
}

// database returns the flags of the external database; the password is in a file.
func (s *suite) database(t *testing.T, node int) []string {
	t.Helper()
	const file = "/run/mysql-password"
	require.NoError(t, s.Lab.Node(node).Write(t.Context(), file, 0o600, strings.NewReader(s.db.RootPassword+"\n")))
	return []string{"--mysql-host", s.db.Host, "--mysql-port", strconv.Itoa(s.db.Port), "--mysql-user", "root", "--mysql-password-file", file}
}

func (s *suite) init(t *testing.T) {
	require.NoError(t, s.Init(t.Context(), s.database(t, 1)...))
	out, err := s.Kubectl(t.Context(), "get", "nodes", "-o", `jsonpath={.items[0].status.conditions[?(@.type=="Ready")].status}`)
	if err != nil || out != "True" {
		t.Fatalf("node 1 Ready = %q, %v", out, err)
	}
}

// initAgain runs the same command again: it must succeed and change nothing.
func (s *suite) initAgain(t *testing.T) {
	before := s.revision(t)
	require.NoError(t, s.Init(t.Context(), s.database(t, 1)...))
	if after := s.revision(t); after != before {
		t.Errorf("a second init changed objects:\nbefore %s\nafter  %s", before, after)
	}
}

// revision returns the generations of what init created.
func (s *suite) revision(t *testing.T) string {
	t.Helper()
	out, err := s.Kubectl(t.Context(), "get", "deployments,daemonsets,statefulsets", "-A", "--sort-by=.metadata.uid",
		"-o", `jsonpath={range .items[*]}{.kind}/{.metadata.name}:{.metadata.uid}:{.metadata.generation} {end}`)
	require.NoError(t, err)
	return out
}

// join runs the same command twice: the second time there is nothing to do.
func (s *suite) join(t *testing.T) {
	networks := s.hostNetworks()
	for range 2 {
		require.NoError(t, s.Join(t.Context(), 2, networks...))
	}
	s.joined = settled(t, func() map[string]string { return s.machineState(t, 2) }, always)
	for command, want := range map[string]string{
		"systemctl is-active yunion-executor":                        "active",
		"systemctl is-enabled yunion-executor":                       "enabled",
		"systemctl show -p KillMode --value yunion-executor":         "process",
		"grep ^networks: /etc/yunion/host.conf":                      "networks: [" + networks[1] + "]",
		"grep disable_probe_kubelet: /etc/yunion/host.conf":          "disable_probe_kubelet: true",
		"test -S /var/run/onecloud/exec.sock && echo there":          "there",
		"command -v ovs-vsctl":                                       "/usr/local/bin/ovs-vsctl",
		"modprobe tun && modprobe ifb numifbs=0 && echo both":        "both",
		"ctr -n k8s.io images ls -q | grep -c -E '/(keystone|web):'": "0",
	} {
		out, err := s.On(t.Context(), 2, "sh", "-c", command+"; true")
		if got := strings.TrimSpace(out); err != nil || got != want {
			t.Errorf("%s on node 2 prints %q, want %q (%v)", command, got, want, err)
		}
	}
	out, err := s.Kubectl(t.Context(), "get", "node", "node2", "-o", `jsonpath={.metadata.labels.onecloud\.yunion\.io/host}`)
	if err != nil || out != "enable" {
		t.Fatalf("label onecloud.yunion.io/host of node 2 = %q, %v", out, err)
	}
}

func (s *suite) cloud(t *testing.T) {
	err := s.Timed("cluster create", func() error {
		_, err := s.On(t.Context(), 1, scenario.Ocadm, "cluster", "create", "--version", version, "--wait")
		return err
	})
	if err != nil {
		s.explain(t)
		t.Fatal(err)
	}
	s.available(t)
	out, err := s.Kubectl(t.Context(), "get", "oc", "-n", "onecloud")
	if err != nil || !strings.Contains(out, "keystone:"+version) {
		t.Errorf("kubectl get oc: %q, %v", out, err)
	}
	// Create it again: the same cloud, nothing changed.
	if _, err := s.On(t.Context(), 1, scenario.Ocadm, "cluster", "create", "--version", version, "--wait"); err != nil {
		t.Error(err)
	}
}

// available waits for every component: on a busy machine a probe may fail for a moment even after a command has waited for the cloud.
func (s *suite) available(t *testing.T) {
	t.Helper()
	s.until(t, "all components", func(ctx context.Context) (bool, string, error) {
		err := s.AllAvailable(ctx)
		return err == nil, "", err
	})
}

// explain prints details about a cloud that does not become available.
func (s *suite) explain(t *testing.T) {
	for _, argv := range [][]string{
		{"get", "pods", "-A", "-o", "wide"}, {"-n", "onecloud", "get", "oc", "default", "-o", "jsonpath={.status}"},
		{"-n", "onecloud", "logs", "-l", "app=onecloud-operator", "--prefix", "--tail=60"}, {"-n", "onecloud", "get", "events", "--sort-by=.lastTimestamp"},
	} {
		out, err := s.Kubectl(context.WithoutCancel(t.Context()), argv...)
		t.Logf("$ kubectl %s\n%s%v", strings.Join(argv, " "), out, err)
	}
}

func (s *suite) web(t *testing.T) {
	page, err := s.Web(t.Context())
	require.NoError(t, err)
	if !strings.Contains(strings.ToLower(page), "<html") {
		t.Errorf("the console answers %.80q", page)
	}
	if to, err := s.Ingress(t.Context()); err != nil || !strings.HasPrefix(to, "https://") {
		t.Errorf("port 80 sends browsers to %q, %v", to, err)
	}
	token, err := s.Login(t.Context())
	require.NoError(t, err)
	if token == "" {
		t.Error("the token is empty")
	}
}

func (s *suite) deleteCloud(t *testing.T) {
	err := s.Timed("cluster delete", func() error {
		_, err := s.On(t.Context(), 1, scenario.Ocadm, "cluster", "delete", "--yes", "--wait")
		return err
	})
	if err != nil {
		s.explain(t)
		t.Fatal(err)
	}
	// The garbage collector removes Services and others after the cloud itself is gone.
	_, err = s.Kubectl(t.Context(), "-n", "onecloud", "wait", "--for=delete", "deployments,statefulsets,daemonsets,services",
		"-l", "app.kubernetes.io/name=onecloud-cluster", "--timeout=600s")
	if err != nil {
		t.Errorf("left of the cloud: %v", err)
	}
}

// reset resets both machines, the control plane first: what the executor of the other node has started keeps running. TestResetKeepsForeign resets the worker first.
func (s *suite) reset(t *testing.T) {
	s.lives(t, s.left, "the cloud is deleted")
	s.resetsCleanly(t, 1)
	s.lives(t, s.left, "the other node is reset")
	// Nothing else stops the server, and its files are data, which reset keeps.
	if _, err := s.On(t.Context(), 2, "sh", "-c", "kill "+s.left.pid+" && rm -r /opt/cloud/workspace/servers/left"); err != nil {
		t.Fatal(err)
	}
	s.resetsCleanly(t, 2)
}

// resetsCleanly resets a machine, twice. Then it must be as it was before it became a node.
func (s *suite) resetsCleanly(t *testing.T, node int) {
	t.Helper()
	for range 2 {
		err := s.Timed(fmt.Sprintf("reset node %d", node), func() error {
			_, err := s.On(t.Context(), node, scenario.Ocadm, "reset", "--yes")
			return err
		})
		require.NoError(t, err)
	}
	compare(t, fmt.Sprintf("node %d after reset", node), s.fresh[node], s.look(t, node))
}

// initAfterReset creates another cluster on the same machines without a restart, this time with the embedded database.
func (s *suite) initAfterReset(t *testing.T) {
	require.NoError(t, s.Init(t.Context()))
	out, err := s.Kubectl(t.Context(), "-n", "onecloud", "get", "statefulset", "ocadm-mysql", "-o", "jsonpath={.status.readyReplicas}")
	if err != nil || out != "1" {
		t.Errorf("the embedded database has %q ready pods, %v", out, err)
	}
	require.NoError(t, s.Join(t.Context(), 2, s.hostNetworks()...))
	s.sameAsUndisturbed(t, 2)
}

// resetWithoutAPIServer resets both machines when the API server no longer answers.
func (s *suite) resetWithoutAPIServer(t *testing.T) {
	const stop = `rm /etc/kubernetes/manifests/kube-apiserver.yaml; while ss -Hltn 'sport = :6443' | grep -q .; do sleep 0.2; done`
	if _, err := s.On(t.Context(), 1, "sh", "-c", stop); err != nil {
		t.Fatal(err)
	}
	for _, node := range []int{1, 2} {
		s.resetsCleanly(t, node)
	}
}
