// SPDX-License-Identifier: Apache-2.0

// Package harness runs a real etcd and a real kube-apiserver on loopback for tests, with RBAC and an audit log, and a real kube-controller-manager on
// request. There is no scheduler and no kubelet: an instant stand-in (Kubelet) reports their results. The lab is for tests that need real pods.
package harness

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"yunion.io/x/ocadm/internal/wait"
	"yunion.io/x/ocadm/test/child"
	"yunion.io/x/ocadm/test/freeport"
	"yunion.io/x/ocadm/test/lab/binaries"
	"yunion.io/x/ocadm/test/require"
)

// Options are the options of a cluster. The zero value is usable.
type Options struct {
	// Dir is the parent directory of all files; the default is the directory for temporary files. Close removes what Start created in it.
	Dir string
	// APIServerArgs are additional arguments of kube-apiserver.
	APIServerArgs []string
}

// Cluster is a running control plane.
type Cluster struct {
	// Dir holds certificates, logs and data.
	Dir string
	// Kubeconfig is the administrator's kubeconfig file.
	Kubeconfig string
	// URL is the URL of the API server.
	URL string

	options   Options
	token     string
	ca        []byte
	auditLog  string
	processes []*child.Process
}

// Admin is the user with all permissions.
const Admin = "admin"

// startTimeout is long: the machine may be busy with a build.
const startTimeout = 3 * time.Minute

// Start starts etcd and kube-apiserver and waits until they are ready. ctx limits only the start; Close stops them.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	dir, err := os.MkdirTemp(o.Dir, "apiserver-")
	if err != nil {
		return nil, fmt.Errorf("making a directory: %w", err)
	}
	c := &Cluster{Dir: dir, Kubeconfig: filepath.Join(dir, "kubeconfig"), options: o, token: rand.Text(), auditLog: filepath.Join(dir, "audit.log")}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Require starts a cluster for one test and closes it at its end.
func Require(t testing.TB, o Options) *Cluster {
	t.Helper()
	c, err := Start(t.Context(), o)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("stopping the API server: %v", err)
		}
	})
	return c
}

// Close kills every process and removes the directory. It may be called more than once.
func (c *Cluster) Close() error {
	for _, p := range slices.Backward(c.processes) {
		p.Kill()
	}
	c.processes = nil
	return os.RemoveAll(c.Dir)
}

func (c *Cluster) start(ctx context.Context) error {
	programs := map[string]string{}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		path, err := binaries.Path(ctx, name)
		if err != nil {
			return err
		}
		programs[name] = path
	}
	// The programs may have to be built. The time limit applies only to what follows.
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	var ports [3]int
	for i := range ports {
		var err error
		if ports[i], err = freeport.Take("127.0.0.1"); err != nil {
			return err
		}
	}
	c.URL = fmt.Sprintf("https://127.0.0.1:%d", ports[2])
	if err := c.writeCredentials(); err != nil {
		return err
	}
	etcd := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	if err := c.run(programs["etcd"], c.etcdArgs(etcd, fmt.Sprintf("http://127.0.0.1:%d", ports[1]))); err != nil {
		return err
	}
	if err := c.run(programs["kube-apiserver"], append(c.apiserverArgs(etcd, ports[2]), c.options.APIServerArgs...)); err != nil {
		return err
	}
	return c.waitReady(ctx)
}

// StartControllerManager starts a real kube-controller-manager, which creates ReplicaSets and Pods. Its garbage collector immediately knows only
// custom resources that are defined before. The arguments are added to its command line.
func (c *Cluster) StartControllerManager(ctx context.Context, args ...string) error {
	program, err := binaries.Path(ctx, "kube-controller-manager")
	if err != nil {
		return err
	}
	port, err := freeport.Take("127.0.0.1")
	if err != nil {
		return err
	}
	return c.run(program, append(c.controllerManagerArgs(port), args...))
}

// Kubectl runs the real kubectl as the administrator and returns its output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	program, err := binaries.Path(ctx, "kubectl")
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(ctx, program, append([]string{"--kubeconfig", c.Kubeconfig, "--cache-dir", filepath.Join(c.Dir, "kubectl")}, args...)...)
	out, err := command.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("running kubectl %q: %w: %s", args, err, out)
	}
	return string(out), nil
}

func (c *Cluster) etcdArgs(client, peer string) []string {
	return []string{
		"--name=test", "--data-dir=" + filepath.Join(c.Dir, "etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=test=" + peer,
	}
}

func (c *Cluster) file(name string) string { return filepath.Join(c.Dir, name) }

func (c *Cluster) apiserverArgs(etcd string, port int) []string {
	return []string{
		"--etcd-servers=" + etcd, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--cert-dir=" + c.Dir,
		"--tls-cert-file=" + c.file("apiserver.crt"), "--tls-private-key-file=" + c.file("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-signing-key-file=" + c.file("sa.key"), "--service-account-key-file=" + c.file("sa.key"),
		"--token-auth-file=" + c.file("tokens.csv"), "--enable-bootstrap-token-auth", "--authorization-mode=RBAC", "--anonymous-auth=false", "--allow-privileged=true",
		"--audit-policy-file=" + c.file("audit-policy.yaml"), "--audit-log-path=" + c.auditLog, "--audit-log-mode=blocking", "--audit-log-maxsize=4000",
		"--service-cluster-ip-range=10.96.0.0/12", "--endpoint-reconciler-type=none", "--profiling=false",
	}
}

func (c *Cluster) controllerManagerArgs(port int) []string {
	return []string{
		"--kubeconfig=" + c.Kubeconfig, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--cert-dir=" + c.Dir,
		"--service-account-private-key-file=" + c.file("sa.key"), "--root-ca-file=" + c.file("ca.crt"), "--leader-elect=false",
		"--kube-api-qps=200", "--kube-api-burst=400", "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller",
	}
}

func (c *Cluster) run(program string, args []string) error {
	p, err := child.Start(exec.Command(program, args...), filepath.Join(c.Dir, filepath.Base(program)+".log"))
	if err != nil {
		return err
	}
	c.processes = append(c.processes, p)
	return nil
}

// Signal sends a signal to a program of the control plane, "kube-apiserver" or "etcd": SIGSTOP hangs it, SIGCONT resumes it.
func (c *Cluster) Signal(program string, s syscall.Signal) error {
	p, err := c.find(program)
	if err != nil {
		return err
	}
	if err := p.Cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("sending %s to %s: %w", s, program, err)
	}
	return nil
}

// Kill kills a program of the control plane, as in a crash. Restart starts it again.
func (c *Cluster) Kill(program string) error {
	p, err := c.find(program)
	if err != nil {
		return err
	}
	p.Kill()
	return nil
}

// Restart starts a killed program again, with its arguments and data, and waits until it is ready.
func (c *Cluster) Restart(ctx context.Context, program string) error {
	p, err := c.find(program)
	if err != nil {
		return err
	}
	c.processes = slices.DeleteFunc(c.processes, func(q *child.Process) bool { return p == q })
	if err := c.run(p.Cmd.Path, p.Cmd.Args[1:]); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return c.waitReady(ctx)
}

func (c *Cluster) find(program string) (*child.Process, error) {
	for _, p := range c.processes {
		if filepath.Base(p.Cmd.Path) == program {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no %s is running here", program)
}

// waitReady polls /readyz until it returns ok or a process has ended.
func (c *Cluster) waitReady(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	for {
		if status, err := get(ctx, client, c.URL+"/readyz"); err == nil && status == http.StatusOK {
			return nil
		}
		for _, p := range c.processes {
			if err := p.Ended(); err != nil {
				return err
			}
		}
		if err := wait.Sleep(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("waiting for the API server: %w\n%s", err, c.processes[len(c.processes)-1].Tail())
		}
	}
}

// client returns a client for the harness' own requests.
func (c *Cluster) client() (*http.Client, error) {
	config := c.Config(Admin)
	config.UserAgent = harnessAgent
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	return client, nil
}

func get(ctx context.Context, client *http.Client, url string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}
