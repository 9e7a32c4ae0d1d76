// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"yunion.io/x/ocadm/internal/pki"
)

const (
	headerTimeout = 10 * time.Second
	// idleTimeout closes connections of idle clients. A download has no time limit: it may take hours over a slow link.
	idleTimeout = 2 * time.Minute
	// drainTimeout is how long running downloads may continue when the depot stops.
	drainTimeout = 10 * time.Second
)

// Listen serves until ctx ends. It closes l.
func Listen(ctx context.Context, l net.Listener, c *tls.Config, h http.Handler) error {
	server := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, ErrorLog: slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
	}
	drained := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
		defer cancel()
		drained <- server.Shutdown(ctx)
	})
	// No HTTP/2: its flow control makes large downloads slower.
	err := server.Serve(tls.NewListener(l, c))
	if stop() {
		return fmt.Errorf("serving the depot: %w", err)
	}
	if err := <-drained; err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("stopping the depot: %w", err)
	}
	return nil
}

// CertificateFiles returns a function for ServerTLS that reads the files again when they change, so a renewed certificate needs no restart. While
// they cannot be read, it returns the last certificate.
func CertificateFiles(cert, key string) func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	var mu sync.Mutex
	var last *tls.Certificate
	var read [2]stamp
	return func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		mu.Lock()
		defer mu.Unlock()
		now, err := stamps(cert, key)
		if err == nil && last != nil && now == read {
			return last, nil
		}
		var pair tls.Certificate
		if err == nil {
			pair, err = tls.LoadX509KeyPair(cert, key)
		}
		switch {
		case err == nil:
			last, read = &pair, now
		case last == nil:
			return nil, fmt.Errorf("reading the depot's certificate: %w", err)
		default:
			slog.Warn("the depot continues with its old certificate", "err", err)
		}
		return last, nil
	}
}

func stamps(files ...string) (out [2]stamp, _ error) {
	for i, f := range files {
		st, err := os.Stat(f)
		if err != nil {
			return out, err
		}
		out[i] = stamp{st.Size(), st.ModTime()}
	}
	return out, nil
}

// Authorities returns the certificates of a PEM file.
func Authorities(file string) (*x509.CertPool, error) {
	certs, err := authorities(file)
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool, err
}

// AuthorityPEM returns the certificates of a PEM file, normalized and without anything else, so that their digest is the same on all control-plane
// nodes.
func AuthorityPEM(file string) ([]byte, error) {
	certs, err := authorities(file)
	return pki.EncodeCerts(certs...), err
}

func authorities(file string) ([]*x509.Certificate, error) {
	raw, err := os.ReadFile(file)
	var certs []*x509.Certificate
	if err == nil {
		certs, err = pki.ParseCerts(raw)
	}
	if err != nil {
		return nil, fmt.Errorf("reading certificate authorities: %w", err)
	}
	return certs, nil
}
