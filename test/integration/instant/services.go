// SPDX-License-Identifier: Apache-2.0

// Package instant plays the API services of clouds in this process: it runs the code of package test/fakecloud behind an http.RoundTripper or a
// listener. A service is up when its Deployment is available. It reads the configuration file that the operator wrote for it, logs in to its database
// and to the identity service with the passwords in that file, and restarts when its pods would. It is for tests that install a cloud hundreds of
// times.
package instant

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/catalog"
	"yunion.io/x/ocadm/test/fakecloud/keystone"
	"yunion.io/x/ocadm/test/fakecloud/program"
	"yunion.io/x/ocadm/test/fakecloud/rest"
	"yunion.io/x/ocadm/test/fakecloud/servicespec"
	"yunion.io/x/ocadm/test/integration/harness"
)

// Services holds the services of all clouds in a cluster. A cloud is identified by its namespace; its name is "default".
type Services struct {
	// Client must be able to read everything.
	Client client.Reader
	// Measured makes services respond as real ones do, for measurements: permissions granted by the identity service take effect after some seconds,
	// and the state of a running service is checked once a second. Otherwise both happen immediately.
	Measured bool

	mu     sync.Mutex
	clouds map[string]*services
}

type services struct {
	*Services
	namespace string

	mu      sync.Mutex
	running map[string]*running
	// identity is keystone. Services use it even while another one is starting.
	identity atomic.Pointer[keystone.Server]
	// stale reports whether keystone's permissions have changed since it read its policies. policies guards it.
	policies sync.Mutex
	stale    bool
}

// running is a service since its last start.
type running struct {
	// pods identifies the pods of this start.
	pods    string
	seen    time.Time
	handler http.Handler
	store   *rest.Store
	stop    context.CancelFunc
}

const (
	identity = "keystone"
	prefix   = "default-"
)

// Transport returns the transport to the services.
func (s *Services) Transport() http.RoundTripper { return harness.RoundTrip(s.serve) }

// Close stops every service. Stored data stays.
func (s *Services) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clouds {
		c.close()
	}
	s.clouds = nil
}

// Forget stops the services of a deleted cloud.
func (s *Services) Forget(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clouds[namespace]; c != nil {
		c.close()
		delete(s.clouds, namespace)
	}
}

func (s *services) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.running {
		r.close()
	}
	s.running = map[string]*running{}
	s.identity.Store(nil)
}

// of splits a name such as default-keystone.cloud-1.svc.
func (s *Services) of(host string) (*services, string) {
	object, rest, _ := strings.Cut(host, ".")
	namespace, _, _ := strings.Cut(rest, ".")
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clouds[namespace]
	if c == nil {
		c = &services{Services: s, namespace: namespace, running: map[string]*running{}}
		if s.clouds == nil {
			s.clouds = map[string]*services{}
		}
		s.clouds[namespace] = c
	}
	return c, strings.TrimPrefix(object, prefix)
}

// Listen serves at an address until ctx ends, with TLS and the operator's certificates, on the ports of all services that the operator may call.
func (s *Services) Listen(ctx context.Context, address string) error {
	ports := map[int32]bool{}
	for _, c := range catalog.All() {
		if c.Service == nil || c.Account == nil && c.Name != identity { // etcd and others are not played
			continue
		}
		for _, p := range c.Service.Ports {
			ports[max(p.Port, p.NodePort)] = true
		}
	}
	answer := func(w http.ResponseWriter, r *http.Request) {
		c, component := s.of(r.TLS.ServerName)
		handler, err := c.get(r.Context(), component)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		handler.ServeHTTP(w, r)
	}
	for port := range ports {
		socket, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(address, fmt.Sprint(port)))
		if err != nil {
			return fmt.Errorf("listening for the services: %w", err)
		}
		server := &http.Server{Handler: http.HandlerFunc(answer), ReadHeaderTimeout: 10 * time.Second,
			TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: s.certificate}}
		go func() { _ = server.ServeTLS(socket, "", "") }()
		context.AfterFunc(ctx, func() { _ = server.Close() })
	}
	return nil
}

// certificate returns the certificate of the cloud whose service a client requests.
func (s *Services) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	c, _ := s.of(hello.ServerName)
	var secret corev1.Secret
	if err := s.Client.Get(hello.Context(), client.ObjectKey{Namespace: c.namespace, Name: prefix + "certs"}, &secret); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(secret.Data["service.crt"], secret.Data["service.key"])
	return &pair, err
}

// Refused returns the error that a caller gets from a service that is down.
func Refused(component string) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s: %w", component, syscall.ECONNREFUSED)}
}

func (s *Services) serve(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	c, component := s.of(r.URL.Hostname())
	handler, err := c.get(r.Context(), component)
	if err != nil {
		return nil, err
	}
	if component == identity {
		return c.beside(r)
	}
	return ask(handler, r), nil
}

func ask(handler http.Handler, r *http.Request) *http.Response {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, r)
	return answer.Result()
}

// beside sends a request to the identity service. Changed permissions take effect with the next request that does not change them.
func (s *services) beside(r *http.Request) (*http.Response, error) {
	server := s.identity.Load()
	if server == nil {
		return nil, Refused(identity)
	}
	changes := r.Method != http.MethodGet && (strings.HasSuffix(r.URL.Path, "-policy") || strings.Contains(r.URL.Path, "/policies"))
	if err := s.fresh(r.Context(), server, changes); err != nil {
		return nil, err
	}
	answer := ask(server.Routes(), r)
	if changes {
		s.policies.Lock()
		s.stale = true
		s.policies.Unlock()
	}
	return answer, nil
}

func (s *services) fresh(ctx context.Context, server *keystone.Server, changes bool) error {
	s.policies.Lock()
	defer s.policies.Unlock()
	if changes || !s.stale {
		return nil
	}
	s.stale = false
	return server.Refresh(ctx)
}

// get returns the service according to its current Deployment.
func (s *services) get(ctx context.Context, component string) (http.Handler, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if component != identity {
		if _, err := s.ensure(ctx, identity); err != nil {
			return nil, err
		}
	}
	r, err := s.ensure(ctx, component)
	if err != nil {
		return nil, err
	}
	return r.handler, nil
}

func (s *services) ensure(ctx context.Context, component string) (*running, error) {
	if r := s.running[component]; r != nil && s.Measured && time.Since(r.seen) < time.Second {
		return r, nil
	}
	d := &appsv1.Deployment{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: prefix + component}, d); err != nil || d.Status.AvailableReplicas == 0 {
		return nil, Refused(component)
	}
	version := servicespec.Version(d.Spec.Template.Spec.Containers[0].Image)
	pods := string(d.UID) + d.Spec.Template.Annotations[v1alpha1.AnnotationConfigHash] + version
	if r := s.running[component]; r != nil {
		if r.pods == pods {
			r.seen = time.Now()
			return r, nil
		}
		r.close()
		delete(s.running, component)
	}
	r, err := s.start(ctx, component, version, pods)
	if err != nil {
		return nil, errors.Join(Refused(component), err)
	}
	s.running[component] = r
	return r, nil
}

func (r *running) close() {
	r.stop()
	if r.store != nil {
		r.store.Close()
	}
}

// start starts a program from the file in its Secret, as its process would. It outlives the request that found it down.
func (s *services) start(ctx context.Context, component, version, pods string) (*running, error) {
	p := servicespec.Lookup(component)
	options, err := s.options(ctx, p)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	r := &running{pods: pods, seen: time.Now(), stop: func() {}}
	if p.Database == servicespec.OwnDatabase {
		if r.store, err = openStore(ctx, component, version, options); err != nil {
			return nil, err
		}
	}
	if p.Role == servicespec.Identity {
		err = s.playIdentity(ctx, r, p, options)
	} else {
		err = s.play(ctx, r, p, options)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// openStore connects to the database of a service and migrates its tables to the service's version.
func openStore(ctx context.Context, component, version string, options servicespec.Values) (*rest.Store, error) {
	store, err := rest.Open(ctx, options.Text("sql_connection", ""))
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx, component, version, false); err != nil {
		store.Close()
		return nil, err
	}
	return store, nil
}

func (s *services) options(ctx context.Context, p servicespec.Spec) (servicespec.Values, error) {
	secret := &corev1.Secret{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: prefix + p.Name + "-config"}, secret); err != nil {
		return nil, fmt.Errorf("reading the configuration of %s: %w", p.Name, err)
	}
	return servicespec.Parse(p.Name+".conf", p.Schema(), secret.Data[p.Name+".conf"])
}

func (s *services) playIdentity(ctx context.Context, r *running, p servicespec.Spec, options servicespec.Values) error {
	if err := r.store.Sync(ctx, keystone.Tables()); err != nil {
		return err
	}
	options, err := keystone.MergeOptions(ctx, r.store, options, p)
	if err != nil {
		return err
	}
	alive, stop := context.WithCancel(ctx)
	r.stop = stop
	server, err := keystone.Start(alive, r.store, options)
	if err != nil {
		return err
	}
	r.handler = server.Routes()
	s.identity.Store(server)
	return nil
}

func (s *services) play(ctx context.Context, r *running, p servicespec.Spec, options servicespec.Values) error {
	session := program.New(program.Credentials{
		AuthURL: strings.TrimSuffix(options.Text("auth_url", ""), "/"),
		User:    options.Text("admin_user", ""), Password: options.Text("admin_password", ""), Domain: "Default", Project: "system",
		Transport: harness.RoundTrip(s.beside),
	})
	if r.store != nil {
		if err := r.store.Sync(ctx, append([]string{"records"}, p.Tables...)); err != nil {
			return err
		}
	}
	if _, err := session.Login(ctx); err != nil {
		return err
	}
	r.handler = program.Service{Profile: p, Options: options, Cloud: session, Store: r.store}.Routes(ctx)
	return nil
}
