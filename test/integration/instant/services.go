// SPDX-License-Identifier: Apache-2.0

// Package instant plays the API services of a cloud in this process: the stand-ins' own code (package test/standin) behind an
// http.RoundTripper, without network, TLS or processes. A service serves once its Deployment is available; it reads the configuration
// file that the operator composed for it, logs in to its database and at the identity service with the passwords in that file, and
// starts anew when its pods would. What the identity service grants counts at once. It is test code, for tests that install a cloud
// hundreds of times.
package instant

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/standin/cloud"
	"yunion.io/x/ocadm/test/standin/config"
	"yunion.io/x/ocadm/test/standin/keystone"
	"yunion.io/x/ocadm/test/standin/profile"
	"yunion.io/x/ocadm/test/standin/service"
	"yunion.io/x/ocadm/test/standin/store"
)

// Services are those of one cloud.
type Services struct {
	// Client reads as somebody who may read everything.
	Client           client.Reader
	Namespace, Cloud string

	mu      sync.Mutex
	running map[string]*running
	// identity is keystone's handler, for services that ask it while one is being started.
	identity atomic.Pointer[http.Handler]
}

// running is one service since its last start.
type running struct {
	// pods tells the pods of this start from those of another.
	pods    string
	handler http.Handler
	store   *store.Store
	stop    context.CancelFunc
	// refresh makes the identity service read its policies again.
	refresh func() error
}

const identity = "keystone"

// Transport is the way to the services.
func (s *Services) Transport() http.RoundTripper { return roundTrip(s.serve) }

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Close ends every service; what they stored stays.
func (s *Services) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.running {
		r.close()
	}
	s.running = map[string]*running{}
	s.identity.Store(nil)
}

// Refused is what a caller sees of a service that is not there.
func Refused(component string) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s: %w", component, syscall.ECONNREFUSED)}
}

func (s *Services) serve(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	component, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Hostname(), s.Cloud+"-"), ".")
	handler, err := s.get(r.Context(), component)
	if err != nil {
		return nil, err
	}
	answer := ask(handler, r)
	grants := strings.HasSuffix(r.URL.Path, "-policy") || strings.Contains(r.URL.Path, "/policies/")
	if component != identity || r.Method == http.MethodGet || !grants {
		return answer, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if up := s.running[identity]; up != nil {
		return answer, up.refresh()
	}
	return answer, nil
}

func ask(handler http.Handler, r *http.Request) *http.Response {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, r)
	return answer.Result()
}

// beside is serve for a service that asks the identity service.
func (s *Services) beside(r *http.Request) (*http.Response, error) {
	handler := s.identity.Load()
	if handler == nil {
		return nil, Refused(identity)
	}
	return ask(*handler, r), nil
}

// get is the service as its Deployment has it now.
func (s *Services) get(ctx context.Context, component string) (http.Handler, error) {
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

func (s *Services) ensure(ctx context.Context, component string) (*running, error) {
	d := &appsv1.Deployment{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.Cloud + "-" + component}, d); err != nil || d.Status.AvailableReplicas == 0 {
		return nil, Refused(component)
	}
	pods := string(d.UID) + d.Spec.Template.Annotations[v1alpha1.AnnotationConfigHash]
	if r := s.running[component]; r != nil {
		if r.pods == pods {
			return r, nil
		}
		r.close()
		delete(s.running, component)
	}
	r, err := s.start(ctx, component, pods)
	if err != nil {
		return nil, errors.Join(Refused(component), err)
	}
	if s.running == nil {
		s.running = map[string]*running{}
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

// start plays a program as its process would, from the file in its Secret. It outlives the request that found it down.
func (s *Services) start(ctx context.Context, component, pods string) (*running, error) {
	p := profile.Lookup(component)
	options, err := s.options(ctx, p)
	if err != nil {
		return nil, err
	}
	ctx = context.WithoutCancel(ctx)
	r := &running{pods: pods, stop: func() {}}
	if p.Database == profile.OwnDatabase {
		if r.store, err = store.Open(ctx, options.Text("sql_connection", "")); err != nil {
			return nil, err
		}
	}
	if p.Role == profile.Identity {
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

func (s *Services) options(ctx context.Context, p profile.Profile) (config.Values, error) {
	secret := &corev1.Secret{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: s.Cloud + "-" + p.Name + "-config"}, secret); err != nil {
		return nil, fmt.Errorf("reading the configuration of %s: %w", p.Name, err)
	}
	return config.Parse(p.Name+".conf", p.Schema(), secret.Data[p.Name+".conf"])
}

func (s *Services) playIdentity(ctx context.Context, r *running, p profile.Profile, options config.Values) error {
	if err := r.store.Sync(ctx, keystone.Tables()); err != nil {
		return err
	}
	options, err := keystone.MergeOptions(ctx, r.store, options, p)
	if err != nil {
		return err
	}
	// What a fresh server reads when it starts, one that runs reads every few seconds.
	r.refresh = func() error {
		r.stop()
		alive, stop := context.WithCancel(ctx)
		r.stop = stop
		server, err := keystone.Start(alive, r.store, options)
		if err != nil {
			return err
		}
		handler := http.Handler(server.Routes())
		r.handler = handler
		s.identity.Store(&handler)
		return nil
	}
	return r.refresh()
}

func (s *Services) play(ctx context.Context, r *running, p profile.Profile, options config.Values) error {
	session := cloud.New(cloud.Credentials{
		AuthURL: strings.TrimSuffix(options.Text("auth_url", ""), "/"), Region: options.Text("region", ""),
		User: options.Text("admin_user", ""), Password: options.Text("admin_password", ""), Domain: "Default", Project: "system",
		Transport: roundTrip(s.beside),
	})
	if r.store != nil {
		if err := r.store.Sync(ctx, append([]string{"records"}, p.Tables...)); err != nil {
			return err
		}
	}
	if _, err := session.Login(ctx); err != nil {
		return err
	}
	r.handler = service.Service{Profile: p, Options: options, Cloud: session, Store: r.store}.Routes(ctx)
	return nil
}
