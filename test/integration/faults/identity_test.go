// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/fakecloud/rest"
	"yunion.io/x/ocadm/test/integration/instant"
	"yunion.io/x/ocadm/test/require"
)

// table opens a service's database, so that a test can make changes that the service's API would refuse.
func (w *faulty) table(t testing.TB, database string) *rest.Store {
	t.Helper()
	s, err := rest.Open(t.Context(), fmt.Sprintf("mysql+pymysql://root:%s@%s/%s?charset=utf8", w.DB.RootPassword, w.DB.Addr(), database))
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// answer returns the response of a service that refuses.
func answer(code int, class string) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Header: http.Header{"Content-Type": {"application/json"}}, ProtoMajor: 1, ProtoMinor: 1,
		Body: io.NopCloser(strings.NewReader(fmt.Sprintf(`{"code":%d,"class":%q,"details":"said by the test"}`, code, class))),
	}
}

func isLogin(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/auth/tokens") }

// TestIdentityOfRunningCloud checks that an identity service that does not answer is reported where it matters, holds up no other component, and is
// asked a few times a minute, and that edits in it are reverted.
func TestIdentityOfRunningCloud(t *testing.T) {
	w := use(t)
	o := w.install(t, w.minimal(), audits(time.Second))
	generations := w.generations(t)
	for _, fault := range []struct {
		name, says string
		service    func(*http.Request) (*http.Response, error)
	}{
		{"is down", "connection refused", func(*http.Request) (*http.Response, error) { return nil, instant.Refused("keystone") }},
		{"fails", "500", func(*http.Request) (*http.Response, error) { return answer(500, "InternalServerError"), nil }},
		{"refuses the administrator", "401", func(r *http.Request) (*http.Response, error) { return answer(401, "WrongPassword"), nil }},
		{"forbids everything", "policy", func(r *http.Request) (*http.Response, error) {
			if isLogin(r) {
				return nil, nil //nolint:nilnil // documented: the service answers itself
			}
			return answer(403, "ForbiddenError"), nil
		}},
	} {
		t.Run(fault.name, func(t *testing.T) {
			before, began := o.has(), time.Now()
			o.breaks(fault.service, nil, nil)
			w.until(t, o, func(cr *v1alpha1.OnecloudCluster) (bool, string) {
				c := env.Component(cr, "glance")
				return strings.Contains(c.Message, fault.says) && (c.State == v1alpha1.Degraded || c.State == v1alpha1.Waiting), env.States(cr)
			})
			w.drift(t, "default-web")
			w.untilHealed(t, o, "default-web")
			w.untilAre(t, o, v1alpha1.Available, "web", "host-deployer")
			time.Sleep(lasting(time.Second, time.Minute))
			asked, lasted := o.has().minus(before), time.Since(began)
			atMost(t, "logins", asked.logins, 12, 2, lasted)
			atMost(t, "requests to services", asked.services, 60, 20, lasted)
			atMost(t, "requests to the API server", asked.requests, 20, 4, lasted)
			o.heals()
			w.untilReady(t, o, -1)
		})
	}
	for _, code := range []int{http.StatusUnauthorized, http.StatusForbidden} { // the real service forbids
		t.Run(fmt.Sprintf("ends the session with %d", code), func(t *testing.T) {
			var lock sync.Mutex
			var ended string
			before := o.has()
			o.breaks(func(r *http.Request) (answered *http.Response, _ error) {
				lock.Lock()
				defer lock.Unlock()
				token := r.Header.Get("X-Auth-Token")
				if ended = cmp.Or(ended, token); token != "" && token == ended {
					answered = answer(code, "InvalidToken")
				}
				return answered, nil
			}, nil, nil)
			for end := time.Now().Add(3 * time.Minute); o.has().minus(before).logins == 0; {
				if time.Now().After(end) {
					t.Fatal("the operator does not log in again")
				}
				passed, _ := passes(t)
				untilQuiet(t, passed)
			}
			w.untilReady(t, o, -1)
			if logins := o.has().minus(before).logins; logins != 1 {
				t.Errorf("%d logins", logins)
			}
			o.heals()
		})
	}
	t.Run("has an endpoint that was edited", func(t *testing.T) {
		s := w.table(t, "keystone")
		r := w.endpoint(t, s, "glance", "internal")
		want := r.Text("url")
		if _, err := s.Update(t.Context(), "endpoints", r, rest.Record{"url": "https://elsewhere:1"}); err != nil {
			t.Fatal(err)
		}
		w.untilTold(t, o, "Repaired", "endpoints/glance")
		if now := w.endpoint(t, s, "glance", "internal").Text("url"); now != want {
			t.Errorf("it is %s, want %s", now, want)
		}
	})
	t.Run("has an endpoint twice", func(t *testing.T) {
		s := w.table(t, "keystone")
		r := w.endpoint(t, s, "yunionconf", "public")
		delete(r, "id")
		r["url"] = "https://elsewhere:2"
		if _, err := s.Insert(t.Context(), "endpoints", r, ""); err != nil {
			t.Fatal(err)
		}
		w.untilTold(t, o, "Repaired", "endpoints/yunionconf")
		if n := len(w.endpoints(t, s, "yunionconf", "public")); n != 1 {
			t.Errorf("there are %d", n)
		}
	})
	now := w.generations(t)
	for _, c := range []string{"keystone", "region", "glance", "yunionconf"} {
		if now[c] != generations[c] {
			t.Errorf("%s was changed", c)
		}
	}
}

// TestStandardPoliciesDelayNothing checks that, if the policies cannot be created, the identity service reports it and the cloud becomes Ready
// anyway. Missing ones are created as soon as possible.
func TestStandardPoliciesDelayNothing(t *testing.T) {
	w := use(t)
	o := w.run(t)
	o.breaks(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/v3/roles") {
			return answer(409, "NoRoles"), nil
		}
		return nil, nil //nolint:nilnil // documented: the service answers itself
	}, nil, nil)
	w.In(t).Create(w.minimal())
	w.until(t, o, func(cr *v1alpha1.OnecloudCluster) (bool, string) {
		k := env.Component(cr, "keystone")
		for _, name := range []string{"region", "glance", "yunionconf", "web"} {
			if env.Component(cr, name).State != v1alpha1.Available {
				return false, env.States(cr)
			}
		}
		return k.State == v1alpha1.Degraded && strings.Contains(k.Message, "setup/standard-policies: creating role"), env.States(cr)
	})
	o.heals()
	w.untilReady(t, o, -1)
	if roles, err := w.table(t, "keystone").List(t.Context(), "roles"); err != nil || len(roles) != 17 {
		t.Errorf("%d roles, %v", len(roles), err)
	}
}

// endpoints returns the endpoints of a service with an interface, as the identity service stores them.
func (w *faulty) endpoints(t testing.TB, s *rest.Store, service, iface string) []rest.Record {
	t.Helper()
	owner, err := s.Get(t.Context(), "services", service)
	require.NoError(t, err)
	all, err := s.List(t.Context(), "endpoints")
	require.NoError(t, err)
	var out []rest.Record
	for _, e := range all {
		if e.Text("service_id") == owner.Text("id") && e.Text("interface") == iface {
			out = append(out, e)
		}
	}
	return out
}

func (w *faulty) endpoint(t testing.TB, s *rest.Store, service, iface string) rest.Record {
	t.Helper()
	all := w.endpoints(t, s, service, iface)
	if len(all) != 1 {
		t.Fatalf("%d %s endpoints of %s", len(all), iface, service)
	}
	return all[0]
}
