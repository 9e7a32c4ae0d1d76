// SPDX-License-Identifier: Apache-2.0

package vip

import (
	"bytes"
	"encoding/pem"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"yunion.io/x/ocadm/test/require"
)

// The health of an API server does not depend on the agent's kubeconfig: without it, all nodes would give up the address.
func TestReady(t *testing.T) {
	serves := true
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch token := r.Header.Get("Authorization"); {
		case token != "" && token != "Bearer good":
			w.WriteHeader(http.StatusUnauthorized)
		case !serves:
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		token string // "" means no kubeconfig, "-" an empty file
		well  bool
	}{
		"an empty kubeconfig": {"-", true}, "it cannot serve, and the kubeconfig is empty": {"-", false},
		"well": {"good", true}, "credentials that have ended": {"ended", true}, "no kubeconfig": {"", true},
		"it cannot serve": {"good", false}, "it cannot serve, and they have ended": {"ended", false}, "it cannot serve, and there is none": {"", false},
	} {
		dir := t.TempDir()
		a := &Agent{Address: host, Port: number, Kubeconfig: filepath.Join(dir, "admin.conf")}
		if c.token == "-" {
			require.NoError(t, os.WriteFile(a.Kubeconfig, nil, 0o600))
		} else if c.token != "" {
			kc := clientcmdapi.Config{CurrentContext: "c", Contexts: map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "c"}},
				Clusters:  map[string]*clientcmdapi.Cluster{"c": {Server: "https://elsewhere.invalid", CertificateAuthorityData: ca}},
				AuthInfos: map[string]*clientcmdapi.AuthInfo{"c": {Token: c.token}}}
			require.NoError(t, clientcmd.WriteToFile(kc, a.Kubeconfig))
		}
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "pki"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "pki", "ca.crt"), ca, 0o600))
		serves = c.well
		if err := a.ready(t.Context()); (err == nil) != c.well {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A change that keepalived has not read is not lost with the agent, nor with a signal that could not be sent.
func TestReloadIsRepeated(t *testing.T) {
	s := Settings{Address: "10.0.0.9", RouterID: 7, Password: "canary88", Peers: []string{"10.0.0.2", "127.0.0.1"}}
	a := &Agent{Node: "cp1", Address: "127.0.0.1", Log: slog.New(slog.DiscardHandler), root: t.TempDir()}
	signals := make(chan os.Signal, 1) // this process stands for keepalived; a child would inherit from nohup that it ignores the signal
	signal.Notify(signals, syscall.SIGHUP)
	t.Cleanup(func() { signal.Stop(signals) })
	comm := filepath.Join(a.root, "proc", strconv.Itoa(os.Getpid()), "comm")
	for _, dir := range []string{Dir, RunDir, "proc/2147483647", filepath.Dir(strings.TrimPrefix(comm, a.root))} {
		require.NoError(t, os.MkdirAll(filepath.Join(a.root, dir), 0o700))
	}
	gone := filepath.Join(a.root, "proc/2147483647/comm")
	require.NoError(t, os.WriteFile(gone, []byte("keepalived\n"), 0o600))
	a.load()
	if err := a.apply(s); err == nil {
		t.Error("a signal to a process that does not exist was reported as sent")
	}
	require.NoError(t, errors.Join(os.Remove(gone), os.WriteFile(comm, []byte("keepalived\n"), 0o600)))
	next := &Agent{Node: a.Node, Address: a.Address, Log: a.Log, root: a.root}
	next.load()
	require.NoError(t, next.apply(s))
	select {
	case <-signals:
	case <-time.After(time.Minute):
		t.Error("the next agent sent no signal")
	}
	if next.load(); !bytes.Equal(next.known, s.Config(a.Node, a.Address, "lo")) {
		t.Error("the change is not complete after the signal")
	}
}
