// SPDX-License-Identifier: Apache-2.0

package vip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/kube"
)

const (
	followEvery = 2 * time.Second
	// askTimeout is the timeout of a check.
	askTimeout = silence * checkEvery
	// settling is how long a new node stays out of the group, so that the others add it as a peer before it could consider them lost.
	settling = 10 * time.Second
)

// changingFile exists while keepalived may not have read its current configuration.
const changingFile = RunDir + "/changing"

// healthy is the content of HealthFile while the API server answers.
const healthy = "0\n"

// Agent configures keepalived on a control-plane node and reports the health of its API server.
type Agent struct {
	// Node is the name, Address the address, and Port the API server port of this node.
	Node, Address string
	Port          int
	// Kubeconfig has access to the Secret with the settings. Requests go to the node's own API server, not to the one in the file.
	Kubeconfig string
	Log        *slog.Logger

	kept  string // why the settings could not be applied
	known []byte // the current configuration of keepalived
	root  string // precedes the paths of files; for tests
}

// load reads the configuration that keepalived has, and returns whether this node is new in the group.
func (a *Agent) load() (joins bool) {
	a.known, _ = os.ReadFile(a.root + ConfigFile) // if missing, it will be written
	was, _ := os.ReadFile(a.root + HealthFile)    // keepalived creates it with 1 if it starts first
	joins = string(was) != healthy && bytes.Contains(a.known, []byte("unicast_peer"))
	if _, err := os.Stat(a.root + changingFile); err == nil {
		a.known = nil // an earlier agent ended before the reload
	}
	return joins
}

// Run runs the agent until ctx ends.
func (a *Agent) Run(ctx context.Context) error {
	start := time.Now()
	joins := a.load()
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { wait.NonSlidingUntilWithContext(ctx, a.follow, followEvery) }) // separate from the checks: it waits for the API server
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	answers := make(chan error)
	check := func() {
		all.Go(func() {
			err := a.ready(ctx)
			select {
			case answers <- err:
			case <-ctx.Done():
			}
		})
	}
	var h health
	last := "unknown"
	for check(); ; {
		select {
		case <-ctx.Done():
			return nil
		case err := <-answers:
			h.answered(err)
		case <-tick.C:
			h.tick()
			check()
		}
		why := h.problem()
		if why == "" && joins && time.Since(start) < settling {
			why = "the other nodes must add this one first"
		}
		if err := a.report(why); err != nil {
			a.Log.Warn("the health of the API server cannot be reported", "error", err)
		}
		if why != last {
			a.Log.Info("the API server of this node", "why", why, "well", why == "")
			last = why
		}
	}
}

// follow applies the settings in the cluster, if its API server answers.
func (a *Agent) follow(ctx context.Context) {
	s, err := a.settings(ctx)
	if err == nil {
		err = a.apply(s)
	}
	why := ""
	if err != nil {
		why = err.Error()
	}
	if why != a.kept && why != "" && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) { // both occur until init has stored them
		a.Log.Warn("keepalived continues with its old configuration", "error", err)
	}
	a.kept = why
}

// ready asks this node's API server whether it can serve. Anonymous requests are allowed there: if the kubeconfig was deleted, is empty after a full
// disk, or its certificate has expired, the address must not leave a node that serves. A response of the server itself counts.
func (a *Agent) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := a.rest()
	if err == nil {
		var status int
		if status, err = kube.Readyz(ctx, c); status != 0 && status != http.StatusUnauthorized {
			return err
		}
	}
	anybody := &rest.Config{Host: a.host(), TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(filepath.Dir(a.Kubeconfig), "pki", "ca.crt")}}
	if _, aerr := kube.Readyz(ctx, anybody); aerr != nil {
		return errors.Join(err, aerr)
	}
	return nil
}

func (a *Agent) host() string { return "https://" + net.JoinHostPort(a.Address, strconv.Itoa(a.Port)) }

// rest loads the kubeconfig each time: kubeadm replaces it when it renews certificates.
func (a *Agent) rest() (*rest.Config, error) {
	c, err := clientcmd.BuildConfigFromFlags(a.host(), a.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	c.Timeout, c.UserAgent = askTimeout, "ocadm-vip"
	return c, nil
}

func (a *Agent) settings(ctx context.Context) (Settings, error) {
	c, err := a.rest()
	if err != nil {
		return Settings{}, err
	}
	k, err := kubernetes.NewForConfig(c)
	if err != nil {
		return Settings{}, fmt.Errorf("creating a client: %w", err)
	}
	secret, err := k.CoreV1().Secrets(SecretNamespace).Get(ctx, SecretName, metav1.GetOptions{})
	if err != nil {
		return Settings{}, fmt.Errorf("reading the settings: %w", err)
	}
	return Parse(secret.Data)
}

// apply writes keepalived's configuration if it has changed, and makes keepalived reload it. It determines the interface of the node's address each
// time: the host agent moves the address to a bridge.
func (a *Agent) apply(s Settings) error {
	iface, err := InterfaceOf(a.Address)
	if err != nil {
		return err
	}
	want := s.Config(a.Node, a.Address, iface)
	if bytes.Equal(want, a.known) {
		return nil
	}
	text, err := s.Text()
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		data []byte
	}{{changingFile, nil}, {SettingsFile, text}, {ConfigFile, want}} {
		if err := disk.Replace(a.root+f.name, f.data); err != nil {
			return fmt.Errorf("writing keepalived's configuration: %w", err)
		}
	}
	if err := reload(a.root + "/proc"); err != nil {
		return fmt.Errorf("reloading keepalived: %w", err)
	}
	a.known = want
	a.Log.Info("keepalived has a new configuration", "peers", strings.Join(s.Peers, ","), "interface", iface)
	return os.Remove(a.root + changingFile)
}

// report reports the health to keepalived. It overwrites the file in place: its length is constant, so keepalived never reads half of it.
func (a *Agent) report(why string) error {
	text := healthy
	if why != "" {
		text = "1\n"
	}
	if have, err := os.ReadFile(HealthFile); err == nil && string(have) == text {
		return nil
	}
	if err := os.MkdirAll(RunDir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(HealthFile, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// reload sends SIGHUP to the first process of keepalived, which passes it on. The containers of the pod share their processes.
func reload(proc string) error {
	names, err := filepath.Glob(proc + "/[0-9]*/comm")
	if err != nil {
		return err
	}
	first := 0
	for _, name := range names {
		raw, err := os.ReadFile(name)
		pid, perr := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err == nil && perr == nil && strings.TrimSpace(string(raw)) == "keepalived" && (first == 0 || pid < first) {
			first = pid
		}
	}
	if first == 0 {
		return nil // it reads the configuration at start
	}
	return syscall.Kill(first, syscall.SIGHUP)
}

// InterfaceOf returns the interface that has an address.
func InterfaceOf(address string) (string, error) {
	list, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("listing interfaces: %w", err)
	}
	for _, i := range list {
		addresses, err := i.Addrs()
		if err != nil {
			continue // it has just disappeared
		}
		for _, has := range addresses {
			if n, ok := has.(*net.IPNet); ok && n.IP.String() == address {
				return i.Name, nil
			}
		}
	}
	return "", fmt.Errorf("no interface has the address %s of this node", address)
}
