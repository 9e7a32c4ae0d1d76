// SPDX-License-Identifier: Apache-2.0

// Package restapi serves clouds, components, releases, operations and machines over HTTP, for programs and for a web page. Every request goes to the
// API server with the token of its sender, so permissions and audit are those of Kubernetes. The OpenAPI document is generated from the handlers.
package restapi

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/prometheus/client_golang/prometheus"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/cluster/restapi/page"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/internal/version"
)

// Options of the API.
type Options struct {
	// Config is the operator's access to the API server. Its credentials are only used to read releases, for users who may read the cloud.
	Config *rest.Config
	Log    *slog.Logger
	// Address to listen on, "" for none. Certificate and Key are PEM files.
	Address, Certificate, Key string
	// Metrics is the source of the page's plots, nil for none.
	Metrics prometheus.Gatherer
	// Local is a token that grants the credentials of Config, "" for none. It is for a server that only its user can reach.
	Local string
	// Rate is the number of requests per second allowed for a token, Burst how many at once. 0 means the default.
	Rate  float64
	Burst int
}

// prefix of all paths except those of the document and the probe.
const prefix = "/api/v1"

// maxBody is the maximum request size in bytes. Kubernetes accepts no larger object.
const maxBody = 1 << 20

// server holds what the handlers share.
type server struct {
	Options
	scheme  *runtime.Scheme
	mapper  meta.RESTMapper
	own     client.WithWatch
	samples *samples
	open    openStreams
}

// New returns the handler of the API and the page. run does the background work, until its context ends.
func New(o Options) (h http.Handler, run func(context.Context) error, err error) {
	s := &server{Options: o, scheme: kube.Scheme(), mapper: mapperOf(), samples: &samples{from: o.Metrics}}
	if s.own, err = s.client(kube.Unlimited(o.Config)); err != nil {
		return nil, nil, err
	}
	if h, err = s.handler(); err != nil {
		return nil, nil, err
	}
	return h, func(ctx context.Context) error { return s.samples.run(ctx, o.Log) }, nil
}

func (s *server) handler() (http.Handler, error) {
	mux := http.NewServeMux()
	document, err := json.Marshal(s.register(mux))
	if err != nil {
		return nil, fmt.Errorf("writing the document of the interface: %w", err)
	}
	mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/openapi+json")
		_, _ = w.Write(document) // the client has gone
	})
	files := page.Handler()
	mux.Handle("GET /{$}", files)
	mux.Handle("GET "+page.Prefix, files)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		write(w, problem(http.StatusNotFound, "there is no "+r.Method+" "+r.URL.Path))
	})
	return s.guard(mux), nil
}

// Document returns the OpenAPI 3.1 document of the API, as JSON.
func Document() ([]byte, error) {
	out, err := json.MarshalIndent((&server{}).register(http.NewServeMux()), "", "  ")
	return append(out, '\n'), err
}

// register adds the handlers and returns the document generated from them.
func (s *server) register(mux *http.ServeMux) *huma.OpenAPI {
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError { return problem(status, msg, errs...) }
	c := huma.DefaultConfig("OneCloud clusters", version.Version)
	c.OpenAPIPath, c.DocsPath, c.SchemasPath = "", "", ""
	c.CreateHooks = nil // no $schema in answers
	c.RejectUnknownQueryParameters = true
	c.Info.Description = "Clouds, their components, releases, operations and machines. Log in with a Kubernetes token; its permissions apply."
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer", Description: "token of a Kubernetes service account or user"}}
	c.Security = []map[string][]string{{"token": {}}}
	api := humago.New(mux, c)
	for _, k := range kinds {
		s.resource(api, k)
	}
	s.clouds(api)
	s.operations(api)
	s.machines(api)
	s.streams(api)
	s.views(api)
	return api.OpenAPI()
}

// describe returns the part of the description that all handlers share.
func describe(id, method, path, tag, summary string) huma.Operation {
	return huma.Operation{OperationID: id, Method: method, Path: prefix + path, Tags: []string{tag}, Summary: summary, MaxBodyBytes: maxBody,
		Errors: []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusTooManyRequests}}
}

// mapperOf returns a static mapper: discovery for every token would double the requests.
func mapperOf() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	core := schema.GroupVersion{Version: "v1"}
	for _, gvk := range []schema.GroupVersionKind{core.WithKind("ConfigMap"), core.WithKind("Secret")} {
		m.Add(gvk, meta.RESTScopeNamespace)
	}
	for _, k := range kinds {
		m.Add(k.gvk, meta.RESTScopeNamespace)
	}
	m.Add(authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), meta.RESTScopeRoot)
	m.Add(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), meta.RESTScopeRoot)
	return m
}

func (s *server) client(cfg *rest.Config) (client.WithWatch, error) {
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: s.scheme, Mapper: s.mapper})
	if err != nil {
		return nil, fmt.Errorf("creating a client for the API server: %w", err)
	}
	return c, nil
}

type sessionKey struct{}

// of returns the client of a request, which has the permissions of its sender.
func of(ctx context.Context) client.WithWatch {
	c, _ := ctx.Value(sessionKey{}).(client.WithWatch)
	return c
}

// sender returns the Kubernetes user name of the sender of a request.
func sender(ctx context.Context) (string, error) {
	who := &authenticationv1.SelfSubjectReview{}
	if err := of(ctx).Create(ctx, who); err != nil {
		return "", err
	}
	return who.Status.UserInfo.Username, nil
}
