// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/standin/cloud"
	"yunion.io/x/ocadm/test/standin/config"
	"yunion.io/x/ocadm/test/standin/keystone"
	"yunion.io/x/ocadm/test/standin/profile"
	"yunion.io/x/ocadm/test/standin/service"
	"yunion.io/x/ocadm/test/standin/store"
)

// frontAddress is where the services of all clouds listen: an address of loopback that nothing else uses.
const frontAddress = "127.0.0.9"

// apis are the components that the operator may call, and ports all their ports.
func apis() (names []string, ports map[int32]bool) {
	ports = map[int32]bool{}
	for _, c := range catalog.All() {
		if c.Service == nil || len(c.Endpoints) == 0 {
			continue
		}
		names = append(names, c.Name)
		for _, p := range c.Service.Ports {
			ports[max(p.Port, p.NodePort)] = true
		}
	}
	return names, ports
}

// front plays the services of all clouds of a world. The name that a client asks for in TLS says which cloud and which service is meant;
// a cloud's services start when they are first asked, with the certificate and the passwords that the operator made.
type front struct {
	w       *world
	ctx     context.Context
	servers []*http.Server

	mu     sync.Mutex
	clouds map[string]*services
}

// services of one cloud.
type services struct {
	once        sync.Once
	err         error
	certificate tls.Certificate
	handlers    map[string]http.Handler
	end         func()
}

func startFront(ctx context.Context, w *world) (*front, error) {
	f := &front{w: w, ctx: ctx, clouds: map[string]*services{}}
	_, ports := apis()
	for port := range ports {
		socket, err := net.Listen("tcp", net.JoinHostPort(frontAddress, fmt.Sprint(port)))
		if err != nil {
			f.close()
			return nil, fmt.Errorf("listening for the services: %w", err)
		}
		s := &http.Server{Handler: f, ReadHeaderTimeout: 10 * time.Second, TLSConfig: &tls.Config{
			MinVersion: tls.VersionTLS12,
			GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
				_, s, err := f.find(hello.ServerName)
				if err != nil {
					return nil, err
				}
				return &s.certificate, nil
			},
		}}
		f.servers = append(f.servers, s)
		go func() { _ = s.ServeTLS(socket, "", "") }()
	}
	return f, nil
}

func (f *front) close() {
	for _, s := range f.servers {
		_ = s.Close()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.clouds {
		if s.end != nil {
			s.end()
		}
	}
}

// dial is the operator's way to the services; everything else is reached as it is.
func (f *front) dial(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(host, ".svc") {
		address = net.JoinHostPort(frontAddress, port)
	}
	return (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, network, address)
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	component, s, err := f.find(r.TLS.ServerName)
	if err != nil || s.handlers[component] == nil {
		http.Error(w, fmt.Sprint("no such service: ", r.TLS.ServerName, err), http.StatusNotFound)
		return
	}
	s.handlers[component].ServeHTTP(w, r)
}

// find takes a name such as default-keystone.cloud-1.svc apart.
func (f *front) find(name string) (string, *services, error) {
	object, rest, _ := strings.Cut(name, ".")
	ns, _, _ := strings.Cut(rest, ".")
	component, ok := strings.CutPrefix(object, cloudName+"-")
	if !ok {
		return "", nil, fmt.Errorf("%q is no service of a cloud", name)
	}
	f.mu.Lock()
	s := f.clouds[ns]
	if s == nil {
		s = &services{}
		f.clouds[ns] = s
	}
	f.mu.Unlock()
	s.once.Do(func() { s.err = f.begin(ns, s) })
	if s.err != nil {
		f.mu.Lock()
		delete(f.clouds, ns) // the next one tries again
		f.mu.Unlock()
	}
	return component, s, s.err
}

// begin starts the services of a cloud.
func (f *front) begin(ns string, s *services) error {
	var certs, creds, conf corev1.Secret
	for name, into := range map[string]*corev1.Secret{"certs": &certs, "credentials": &creds, "keystone-config": &conf} {
		if err := f.w.client.Get(f.ctx, client.ObjectKey{Namespace: ns, Name: cloudName + "-" + name}, into); err != nil {
			return err
		}
	}
	var err error
	if s.certificate, err = tls.X509KeyPair(certs.Data["service.crt"], certs.Data["service.key"]); err != nil {
		return err
	}
	options, err := config.Parse("keystone.conf", profile.Lookup("keystone").Schema(), conf.Data["keystone.conf"])
	if err != nil {
		return err
	}
	names, _ := apis()
	tables := keystone.Tables()
	for _, name := range names {
		tables = append(tables, profile.Lookup(name).Tables...)
	}
	db, err := f.open(strings.ReplaceAll("standin_"+ns, "-", "_"), tables)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(f.ctx)
	s.end = func() { cancel(); _ = db.Close() }
	identity, err := keystone.Start(ctx, db, options)
	if err != nil {
		return err
	}
	// The other services check tokens at keystone; this way in is theirs alone, and not counted.
	socket, err := net.Listen("tcp", net.JoinHostPort(frontAddress, "0"))
	if err != nil {
		return err
	}
	plain := &http.Server{Handler: identity.Routes(), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = plain.Serve(socket) }()
	s.end = func() { cancel(); _ = plain.Close(); _ = db.Close() }
	s.handlers = map[string]http.Handler{"keystone": identity.Routes()}
	for _, name := range names {
		if name == "keystone" {
			continue
		}
		session := cloud.New(cloud.Credentials{
			AuthURL: "http://" + socket.Addr().String() + "/v3", Region: "region0", Domain: "Default", Project: "system",
			User: "sysadmin", Password: string(creds.Data[component.BootstrapPassword]),
		})
		s.handlers[name] = service.Service{Profile: profile.Lookup(name), Options: options, Cloud: session, Store: db}.Routes(ctx)
	}
	return nil
}

// open makes a schema of its own for the stand-ins of a cloud; the ones that the operator makes stay empty.
func (f *front) open(name string, tables []string) (*store.Store, error) {
	c := mysql.NewConfig()
	c.User, c.Passwd, c.Net, c.Addr = "root", f.w.b.db.RootPassword, "tcp", f.w.b.db.Addr()
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	root := sql.OpenDB(connector)
	defer root.Close()
	if _, err := root.ExecContext(f.ctx, "CREATE DATABASE IF NOT EXISTS `"+name+"`"); err != nil {
		return nil, err
	}
	db, err := store.Open(f.ctx, fmt.Sprintf("mysql+pymysql://root:%s@%s/%s", f.w.b.db.RootPassword, f.w.b.db.Addr(), name))
	if err != nil {
		return nil, err
	}
	if err := db.Sync(f.ctx, tables); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// forget ends the services of a cloud that is gone.
func (f *front) forget(ns string) {
	f.mu.Lock()
	s := f.clouds[ns]
	delete(f.clouds, ns)
	f.mu.Unlock()
	if s != nil && s.end != nil {
		s.end()
	}
}
