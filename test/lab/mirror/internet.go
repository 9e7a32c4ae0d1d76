// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"yunion.io/x/ocadm/internal/lists"
	"yunion.io/x/ocadm/internal/pki"
)

// Names returns the hosts that an installation with default settings contacts.
func Names() []string {
	return []string{"registry.k8s.io", "ghcr.io", "docker.io", dockerHub, "index.docker.io", "registry.cn-beijing.aliyuncs.com", "github.com", "dl.k8s.io"}
}

// dockerHub is the host from which containerd pulls images of docker.io.
const dockerHub = "registry-1.docker.io"

// Internet serves the images and files of its options for Names, on the HTTP and HTTPS ports, with a certificate of its own CA.
type Internet struct {
	// CA is the PEM-encoded CA certificate.
	CA []byte

	server      *Server
	http        []*http.Server
	connections atomic.Int64

	mu   sync.Mutex
	lack []string
}

// StartInternet serves on an address until Close. Names must resolve to that address.
func StartInternet(on netip.Addr, o Options) (*Internet, error) {
	server, err := newServer(o)
	if err != nil {
		return nil, err
	}
	i := &Internet{server: server}
	t, err := i.certificate()
	if err != nil {
		return nil, fmt.Errorf("making a certificate for the mirror: %w", err)
	}
	for port, config := range map[string]*tls.Config{"443": t, "80": nil} {
		l, err := net.Listen("tcp", net.JoinHostPort(on.String(), port))
		if err != nil {
			return nil, fmt.Errorf("starting the mirror: %w", err)
		}
		l = counting{l, &i.connections}
		if config != nil {
			l = tls.NewListener(l, config)
		}
		s := &http.Server{Handler: i, ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0)}
		i.http = append(i.http, s)
		go func() { _ = s.Serve(l) }() // it returns when the listener is closed
	}
	return i, nil
}

func (i *Internet) certificate() (*tls.Config, error) {
	now := time.Now()
	ca, err := pki.NewCA(now, "the lab's internet", nil)
	if err != nil {
		return nil, err
	}
	leaf, err := pki.Issue(ca, pki.Request{CommonName: "lab", Names: Names(), Usage: pki.Server, NotBefore: now, Small: true})
	i.CA = ca.CertPEM()
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{leaf.Cert.Raw}, PrivateKey: leaf.Key}}}, err
}

// Close stops serving.
func (i *Internet) Close() error {
	return errors.Join(lists.Map(i.http, (*http.Server).Close)...)
}

// Connections returns the number of connections, whatever their result.
func (i *Internet) Connections() int64 { return i.connections.Load() }

// Lacking returns the requested addresses that do not exist.
func (i *Internet) Lacking() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.lack)
}

func (i *Internet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, _ := strings.Cut(r.Host, ":")
	if file := i.server.o.Files[host+r.URL.Path]; file != "" {
		http.ServeFile(w, r, file)
		return
	}
	if host == dockerHub || host == "index.docker.io" {
		host = "docker.io"
	}
	seen := &counter{ResponseWriter: w, status: http.StatusOK}
	if rest, ok := strings.CutPrefix(r.URL.Path, "/v2/"); !ok {
		http.NotFound(seen, r)
	} else {
		if rest != "" {
			r.URL.Path = "/v2/" + host + "/" + rest
		}
		i.server.blobs.ServeHTTP(seen, r)
	}
	if seen.status >= http.StatusBadRequest {
		i.mu.Lock()
		defer i.mu.Unlock()
		i.lack = append(i.lack, fmt.Sprintf("%s %s%s: %d", r.Method, r.Host, r.URL.Path, seen.status))
	}
}

type counting struct {
	net.Listener
	n *atomic.Int64
}

func (c counting) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.n.Add(1)
	}
	return conn, err
}
