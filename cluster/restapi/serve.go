// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"yunion.io/x/ocadm/internal/finding"
)

// Timeouts of the server. A client that sends or reads slowly is cut off; a stream sets a deadline of its own for each message.
const (
	headerTimeout = 10 * time.Second
	readTimeout   = 30 * time.Second
	writeTimeout  = time.Minute
	idleTimeout   = 2 * time.Minute
)

// Server returns an HTTP server with the timeouts of the API.
func Server(h http.Handler) *http.Server {
	const maxHeader = 64 << 10
	return &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader}
}

// endTimeout bounds the requests in progress when the operator ends. Streams end immediately.
const endTimeout = 5 * time.Second

// Serve serves the API over TLS until ctx ends. Without an address it returns immediately.
func Serve(ctx context.Context, o Options) error {
	if o.Address == "" {
		return nil
	}
	certificate, err := certwatcher.New(o.Certificate, o.Key)
	if err != nil {
		return finding.Errorf("OCA-7623", "The REST API has no certificate", "give --api-cert and --api-key, as docs/api.md describes", "%w", err)
	}
	over := func(l net.Listener) net.Listener {
		return tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate.GetCertificate, NextProtos: []string{"h2", "http/1.1"}})
	}
	return o.serve(ctx, over, func(net.Addr) {}, certificate.Start)
}

// serve serves the API until ctx ends. over wraps the listener, ready receives its address, and beside runs concurrently.
func (o Options) serve(ctx context.Context, over func(net.Listener) net.Listener, ready func(net.Addr), beside ...func(context.Context) error) error {
	h, run, err := New(o)
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", o.Address)
	if err != nil {
		return fmt.Errorf("listening for the REST API: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	s := Server(h)
	s.BaseContext = func(net.Listener) context.Context { return ctx } // streams end with it
	s.ErrorLog = slog.NewLogLogger(o.Log.Handler(), slog.LevelDebug)
	for _, f := range append(beside, run) {
		g.Go(func() error { return f(ctx) })
	}
	g.Go(func() error {
		if err := s.Serve(over(l)); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serving the REST API: %w", err)
		}
		return nil
	})
	g.Go(func() error { return shutDown(ctx, s) })
	ready(l.Addr())
	return g.Wait()
}

func shutDown(ctx context.Context, s *http.Server) error {
	<-ctx.Done()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return s.Shutdown(ending)
}
