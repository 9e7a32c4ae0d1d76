// SPDX-License-Identifier: Apache-2.0

//go:build linux

package virtualaddress

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"yunion.io/x/ocadm/internal/vip"
	"yunion.io/x/ocadm/test/require"
)

// machineVariable turns this program into a machine; its value is the address.
const machineVariable = "OCADM_TEST_VIRTUAL_ADDRESS_MACHINE"

// The files in the root of a machine by which the test controls its API server.
const (
	modeFile   = "/test-mode"
	secretFile = "/test-secret.json"
)

// The behaviours of an API server.
const (
	answers  = "answers"
	refuses  = "refuses"
	silent   = "silent"
	noQuorum = "no-quorum" // of etcd: it tries for two seconds, and refuses
)

func TestMain(m *testing.M) {
	if address := os.Getenv(machineVariable); address != "" {
		if err := beMachine(address); err != nil {
			fmt.Fprintln(os.Stderr, "machine:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// beMachine is the first process of a machine. It runs keepalived, and restarts it as the kubelet does, the real agent, and a stand-in for the API server.
func beMachine(address string) error {
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	if err := serve(address); err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // the test has ended
	}()
	kill := make(chan os.Signal, 1)
	signal.Notify(kill, syscall.SIGUSR1)
	agent := vip.Agent{Node: "node-" + address, Address: address, Port: 6443, Kubeconfig: "/kubeconfig", Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	go func() { _ = agent.Run(context.Background()) }() // it ends with this process
	for {
		for {
			if _, err := os.Stat(vip.ConfigFile); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond) // the agent writes it first, as init does
		}
		stale, _ := filepath.Glob("/run/*.pid") // a container has a new root
		for _, f := range stale {
			_ = os.Remove(f)
		}
		k := exec.Command("/usr/sbin/keepalived", "--dont-fork", "--log-console", "--vrrp", "--use-file="+vip.ConfigFile)
		k.Stdout, k.Stderr, k.SysProcAttr = os.Stderr, os.Stderr, &syscall.SysProcAttr{Setpgid: true}
		if err := k.Start(); err != nil {
			return err
		}
		ended := make(chan struct{})
		go func() { defer close(ended); _ = k.Wait() }()
		select {
		case <-kill:
			_ = syscall.Kill(-k.Process.Pid, syscall.SIGKILL)
			<-ended
		case <-ended:
		}
		time.Sleep(time.Second)
	}
}

// serve stands in for the API server: /readyz, and the Secret with the settings.
func serve(address string) error {
	listener, err := net.Listen("tcp4", address+":6443")
	if err != nil {
		return err
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mode, _ := os.ReadFile(modeFile) // the test has written it
		switch string(mode) {
		case answers:
			if strings.HasPrefix(r.URL.Path, "/api/") {
				raw, _ := os.ReadFile(secretFile)
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write(raw)
			}
			return
		case silent:
			<-r.Context().Done()
			return
		case noQuorum:
			time.Sleep(2 * time.Second)
		}
		w.WriteHeader(http.StatusInternalServerError)
	}))
	server.Listener = listener
	server.StartTLS()
	return nil
}

// machine is a machine in the network of the test, with its own root, network and processes.
type machine struct {
	name, address, root string
	cmd                 *exec.Cmd
	// on means powered on, connected that it reaches the others; mode is that of its API server.
	on, connected bool
	mode          string
	// holds reports whether it has the virtual address.
	holds func() bool
}

// hub is the network that connects the machines.
const hub = "ocadm-vip-hub"

func ip(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func newMachine(t *testing.T, n int, tree string, s vip.Settings) *machine {
	t.Helper()
	m := &machine{name: fmt.Sprintf("ocadm-vip-%d", n), address: fmt.Sprintf("10.213.0.%d", n), root: t.TempDir(), mode: answers}
	port := fmt.Sprintf("port%d", n)
	namespace(t, m.name)
	ip(t, "link", "add", port, "netns", hub, "type", "veth", "peer", "name", "eth0", "netns", m.name)
	ip(t, "-n", hub, "link", "set", port, "up")
	ip(t, "-n", m.name, "link", "set", "lo", "up")
	if out, err := exec.Command("cp", "-a", tree+"/.", m.root).CombinedOutput(); err != nil {
		t.Fatalf("copying keepalived: %v: %s", err, out)
	}
	for _, dir := range []string{vip.Dir, vip.RunDir, "/proc", "/dev", "/tmp"} {
		require.NoError(t, os.MkdirAll(m.root+dir, 0o755))
	}
	require.NoError(t, unix.Mknod(m.root+"/dev/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	program, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	secret := s.Secret()
	secret.TypeMeta = metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Secret"}
	raw, err := json.Marshal(secret)
	require.NoError(t, err)
	m.write(t, secretFile, raw, 0o600)
	m.write(t, "/machine", program, 0o755)
	m.write(t, "/kubeconfig", []byte("apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n"+
		"clusters: [{name: x, cluster: {server: 'https://127.0.0.1', insecure-skip-tls-verify: true}}]\nusers: [{name: x, user: {}}]\n"), 0o600)
	m.holds = watch(t, m.name, s.Address)
	return m
}

func (m *machine) write(t testing.TB, name string, data []byte, mode os.FileMode) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(m.root, name+".new"), data, mode))
	require.NoError(t, os.Rename(filepath.Join(m.root, name+".new"), filepath.Join(m.root, name)))
}

// boot starts the machine as after a power failure: its disk stays, its network has lost its addresses.
func (m *machine) boot(t *testing.T, log io.Writer) {
	t.Helper()
	m.write(t, modeFile, []byte(m.mode), 0o600)
	_ = os.RemoveAll(m.root + vip.HealthFile) // in memory
	ip(t, "-n", m.name, "address", "flush", "dev", "eth0")
	ip(t, "-n", m.name, "address", "add", m.address+"/24", "dev", "eth0")
	ip(t, "-n", m.name, "link", "set", "eth0", "up")
	m.cmd = exec.Command("/machine", "-test.run=^$")
	m.cmd.Dir, m.cmd.Env, m.cmd.Stderr = "/", []string{machineVariable + "=" + m.address, "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: m.root, Cloneflags: syscall.CLONE_NEWPID, Unshareflags: syscall.CLONE_NEWNS}
	if _, err := m.cmd.StdinPipe(); err != nil { // it ends with this process
		t.Fatal(err)
	}
	if err := within(m.name, m.cmd.Start); err != nil {
		t.Fatalf("starting %s: %v", m.name, err)
	}
	m.on = true
	m.connect(t, true)
}

// connect plugs or unplugs the cable at the far end: the machine's own link stays up.
func (m *machine) connect(t testing.TB, to bool) {
	t.Helper()
	port := "port" + strings.TrimPrefix(m.name, "ocadm-vip-")
	if to {
		ip(t, "-n", hub, "link", "set", port, "master", "br0")
	} else {
		ip(t, "-n", hub, "link", "set", port, "nomaster")
	}
	m.connected = to
}

func (m *machine) cutPower(t testing.TB) {
	t.Helper()
	m.connect(t, false)
	m.on = false
	_ = m.cmd.Process.Kill() // its first process: the others end with it
	_ = m.cmd.Wait()
}

func namespace(t *testing.T, name string) {
	t.Helper()
	_ = exec.Command("ip", "netns", "delete", name).Run() // left by a killed test
	ip(t, "netns", "add", name)
	t.Cleanup(func() { ip(t, "netns", "delete", name) })
}

// within calls do on a thread in the network of a machine. What it starts stays there.
func within(name string, do func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		f, err := os.Open("/run/netns/" + name)
		if err == nil {
			defer f.Close()
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		}
		if err == nil {
			err = do()
		}
		result <- err
	}()
	return <-result
}

// watch returns a function that reports whether a machine has an address. It checks on a thread that stays in the machine's network.
func watch(t *testing.T, name, address string) func() bool {
	t.Helper()
	ask, answer := make(chan struct{}), make(chan bool)
	go func() {
		_ = within(name, func() error {
			for range ask {
				_, err := vip.InterfaceOf(address)
				answer <- err == nil
			}
			return nil
		})
	}()
	t.Cleanup(func() { close(ask) })
	return func() bool {
		ask <- struct{}{}
		return <-answer
	}
}
