// SPDX-License-Identifier: Apache-2.0

package restapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/metrics"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/require"
)

// Invalid tokens use up the limit of their address: a sender with a known token continues, at its own limit, and so does another address.
func TestGuard(t *testing.T) {
	asked := 0
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked++
		switch token := r.Header.Get("Authorization"); {
		case token == "Bearer good", strings.HasPrefix(token, "Bearer new"):
			w.WriteHeader(http.StatusNotFound)
		case token == "Bearer weak":
			w.WriteHeader(http.StatusForbidden)
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer api.Close()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
	s := &server{Options: Options{Config: &rest.Config{Host: api.URL}, Burst: 3, Rate: 0.001}, scheme: kube.Scheme(), mapper: mapper}
	h := s.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = of(r.Context()).Get(r.Context(), client.ObjectKey{Namespace: "n", Name: "a"}, &corev1.ConfigMap{})
	}))
	ask := func(token, from string) int {
		r := httptest.NewRequest(http.MethodGet, prefix+"/namespaces/n/clouds", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		r.RemoteAddr = from + ":1234"
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	const here, there = "192.0.2.1", "192.0.2.2"
	for _, token := range []string{"good", "weak"} {
		if code := ask(token, here); code != http.StatusOK {
			t.Fatalf("%s: %d", token, code)
		}
	}
	for i := range 10 * strangerBurst {
		ask(fmt.Sprintf("bad%d", i), here)
	}
	if asked >= 10*strangerBurst {
		t.Error("the API server was asked about each invalid token")
	}
	refused := 0
	for i := range strangerBurst { // on a slow machine, some are in time for the next one that the rate allows
		if ask(fmt.Sprintf("new%d", i), here) == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no token that was not seen before was refused, from the same address")
	}
	if code := ask("new", there); code != http.StatusOK {
		t.Errorf("a token not seen before, from elsewhere: %d", code)
	}
	for _, token := range []string{"good", "weak"} {
		for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
			if code := ask(token, here); code != want {
				t.Errorf("request %d of %s: %d, want %d", i+2, token, code, want)
			}
		}
	}
}

// The API server's refusals of users say nothing about the operator's roles.
func TestOnlyOwnRequestsCount(t *testing.T) {
	before := metrics.RequestResult
	defer func() { metrics.RequestResult = before }()
	var seen counted
	metrics.RequestResult = &seen
	CountOwnRequests()
	metrics.RequestResult.Increment(context.WithValue(t.Context(), sessionKey{}, fake.NewClientBuilder().Build()), "403", "GET", "")
	metrics.RequestResult.Increment(t.Context(), "409", "PATCH", "")
	if len(seen) != 1 || seen[0] != "409" {
		t.Errorf("%q", seen)
	}
}

type counted []string

func (c *counted) Increment(_ context.Context, code, _, _ string) { *c = append(*c, code) }

// The operator's role lists and watches clouds. It does not get one.
func TestReleasesNeedNoMoreThanTheOperatorsRole(t *testing.T) {
	cloud := &v1alpha1.OnecloudCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "c"}}
	user := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(cloud).Build()
	own := interceptor.NewClient(fake.NewClientBuilder().WithScheme(kube.Scheme()).Build(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "onecloudclusters"}, "c", nil)
		},
	})
	in := &Named{}
	in.Namespace, in.Name = "n", "c"
	if _, err := (&server{own: own}).releases(context.WithValue(t.Context(), sessionKey{}, user), in); err != nil {
		t.Error(err)
	}
}

// A slash in a name is the sender's mistake.
func TestEscapedSlash(t *testing.T) {
	h, _, err := New(Options{Config: &rest.Config{Host: "http://127.0.0.1:1"}, Local: "token"})
	require.NoError(t, err)
	for _, path := range []string{"a%2Fb/clouds/c", "a/clouds/b%2Fc", "a/clouds/b%25c", "a%2Fb/machines", "a/operations/b%2Fc/log"} {
		r := httptest.NewRequest(http.MethodGet, prefix+"/namespaces/"+path, nil)
		r.Header.Set("Authorization", "Bearer token")
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
