// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/test/require"
)

func TestTokenIsKeptAndRenewed(t *testing.T) {
	f := newFake(t)
	now := time.Now()
	c := f.client(func(o *Options) { o.Now = func() time.Time { return now } })
	call := func(want int) {
		t.Helper()
		if _, err := c.ListServices(t.Context()); err != nil {
			t.Fatal(err)
		}
		if f.logins != want {
			t.Errorf("%d logins, want %d", f.logins, want)
		}
	}
	call(1)
	call(1)
	f.token++ // The service lost the token: refused once, renewed, repeated.
	now = now.Add(time.Minute)
	call(2)
	f.visible = false // The administrator may not list services: a new token is not asked for at once, but later.
	for age, want := range []int{2, 3} {
		now = now.Add(time.Duration(age) * time.Minute)
		if _, err := c.ListServices(t.Context()); !IsForbidden(err) || f.logins != want {
			t.Errorf("after %d minutes: %v, %d logins, want %d", age, err, f.logins, want)
		}
	}
	f.visible = true
	now = now.Add(24*time.Hour - time.Minute) // It is about to expire.
	call(4)
}

func TestRefusedTwiceIsAnError(t *testing.T) {
	f := newFake(t)
	f.intercept = func(w http.ResponseWriter, r *http.Request, _ record) bool {
		if strings.HasSuffix(r.URL.Path, "/auth/tokens") {
			return false
		}
		refuse(w, http.StatusUnauthorized, "InvalidCredentialError", "no")
		return true
	}
	if _, err := f.client().ListServices(t.Context()); !IsUnauthorized(err) {
		t.Errorf("got %v", err)
	}
	if f.logins != 2 || len(f.requests) != 2 {
		t.Errorf("%d logins, %d requests; want one repetition", f.logins, len(f.requests))
	}
}

func TestAnswersWithoutLimitAreShort(t *testing.T) {
	f := newFake(t)
	for i := range 75 {
		f.add("services", record{"name": fmt.Sprint("s", i), "type": "t", "enabled": true})
	}
	f.maxPage = 30
	got, err := f.client().ListServices(t.Context())
	if err != nil || len(got) != 75 {
		t.Fatalf("%d services, %v", len(got), err)
	}
	if len(f.requests) != 3 {
		t.Errorf("%d requests, want 3 pages", len(f.requests))
	}
}

func TestSnapshotLeavesOtherDomainsOut(t *testing.T) {
	f := newFake(t)
	f.add("users", record{"id": "x", "name": "glance", "domain_id": "other", "enabled": true})
	if _, ok := f.snapshot(f.client()).User("glance"); ok {
		t.Error("a user of another domain was taken for ours")
	}
}

func TestSnapshotWithoutRoleAssignments(t *testing.T) {
	f := newFake(t)
	f.intercept = func(w http.ResponseWriter, r *http.Request, _ record) bool {
		if !strings.HasSuffix(r.URL.Path, "/role_assignments") {
			return false
		}
		refuse(w, http.StatusNotFound, "NotFoundError", "no such path")
		return true
	}
	f.snapshot(f.client())
}

// A fresh service does not show its role bindings, so the role itself decides.
func TestBindingsForbidden(t *testing.T) {
	f := newFake(t)
	f.intercept = func(w http.ResponseWriter, r *http.Request, _ record) bool {
		if !strings.HasSuffix(r.URL.Path, "/rolepolicies") {
			return false
		}
		refuse(w, http.StatusForbidden, "ForbiddenError", "not enough privilege")
		return true
	}
	for _, tc := range []struct {
		key     string
		value   any
		changed bool
	}{
		{"match_policies", []string{"sysadmin"}, false},
		{"policies", record{"system": []string{"sysadmin"}}, false},
		{"match_policies", []string{"other"}, true},
	} {
		f.tables["roles"] = []record{{"id": "r", "name": "admin", tc.key: tc.value}}
		f.tables["policies"] = []record{{"id": "pol-1", "name": "sysadmin", "scope": "system"}}
		if changed, err := f.client().EnsureRolePolicy(t.Context(), "admin", "system", "sysadmin"); changed != tc.changed || err != nil {
			t.Errorf("%s %v: changed %v, %v", tc.key, tc.value, changed, err)
		}
	}
}

func TestErrors(t *testing.T) {
	type is struct{ forbidden, unauthorized, notFound, conflict, unavailable bool }
	for _, tc := range []struct {
		name   string
		status int
		body   string
		class  string
		title  string
		is     is
	}{
		{"wrapped", 403, `{"error":{"code":403,"class":"ForbiddenError","details":"not enough privilege"}}`, "ForbiddenError", "not enough privilege", is{forbidden: true}},
		{"bare", 404, `{"code":404,"class":"ResourceNotFoundError","details":"zone x not found"}`, "ResourceNotFoundError", "zone x not found", is{notFound: true}},
		{"title", 409, `{"error":{"title":"Conflict","message":"taken"}}`, "Conflict", "taken", is{conflict: true}},
		{"details as an object", 400, `{"class":"E","details":{"a":1}}`, "E", `{"a":1}`, is{}},
		{"no JSON", 502, `<html>`, "", "Bad Gateway", is{unavailable: true}},
		{"wrong password", 401, `{"class":"WrongPassword","details":"Authenticate: usrExt.VerifyPassword: WrongPassword"}`, "WrongPassword",
			"Authenticate: usrExt.VerifyPassword: WrongPassword", is{unauthorized: true}},
		{"no role", 401, `{"class":"UnauthorizedError","details":"unauthorized getTokenV3: project \"dev\": [auth] user not in project"}`, "UnauthorizedError",
			`unauthorized getTokenV3: project "dev": [auth] user not in project`, is{unauthorized: true}},
		{"no password", 401, `{"class":"UnauthorizedError","details":"unauthorized Authenticate: get newest password object: sql: no rows in result set"}`,
			"UnauthorizedError", "unauthorized Authenticate: get newest password object: sql: no rows in result set", is{unauthorized: true}},
		{"no token", 401, `{"class":"UnauthorizedError","details":"InvalidToken"}`, "UnauthorizedError", "InvalidToken", is{unauthorized: true}},
		{"empty", 500, ``, "", "Internal Server Error", is{unavailable: true}},
		{"echo", 400, `{"class":"X","details":"the request was ` + secret + `, token-1"}`, "X", "the request was ***, ***", is{}},
		{"long", 400, `{"details":"` + strings.Repeat("x", 1000) + `"}`, "", strings.Repeat("x", maxTitle) + "...", is{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := newFake(t)
			f.intercept = func(w http.ResponseWriter, r *http.Request, _ record) bool {
				if strings.HasSuffix(r.URL.Path, "/auth/tokens") {
					return false
				}
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(tc.body))
				return true
			}
			_, err := f.client().ListEndpoints(t.Context())
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Status != tc.status || e.Class != tc.class || e.Title != tc.title || e.Op != "listing endpoints" {
				t.Fatalf("got %#v", err)
			}
			if got := (is{IsForbidden(err), IsUnauthorized(err), IsNotFound(err), IsConflict(err), IsUnavailable(err)}); got != tc.is {
				t.Errorf("got %+v, want %+v", got, tc.is)
			}
			noSecret(t, err)
		})
	}
}

// The identity service refuses a login in the same way for the account and for its own database. Only the former is a reason for advice about the account.
func TestRefusedLogin(t *testing.T) {
	for title, refused := range map[string]bool{
		`unauthorized getTokenV3: project "dev": [auth] user not in project`:            true,
		"unauthorized Authenticate: get newest password object: sql: no rows in result": true,
		"unauthorized Authenticate: UserExpired":                                        true,
		"unauthorized UserManager.FetchUserExtended: query: connection refused":         false,
	} {
		f := newFake(t)
		f.intercept = func(w http.ResponseWriter, _ *http.Request, _ record) bool {
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(map[string]string{"class": "UnauthorizedError", "details": title})
			return true
		}
		err := f.client().CheckLogin(t.Context(), "sysadmin", secret, "system")
		if IsLoginRefused(err, "sysadmin") != refused || IsUnauthorized(err) != refused || IsUnavailable(err) == refused {
			t.Errorf("%s: %v", title, err)
		}
	}
}

func noSecret(t *testing.T, err error) {
	t.Helper()
	if s := fmt.Sprintf("%v %+v %#v", err, err, err); strings.Contains(s, secret) || strings.Contains(s, "token-1") {
		t.Errorf("the secret is in %s", s)
	}
}

// The service quotes what it was sent; no error repeats it.
func TestNoSecretInErrors(t *testing.T) {
	f := newFake(t)
	c := f.client()
	require.NoError(t, c.Login(t.Context()))
	s := f.snapshot(c)
	for name, call := range map[string]func() error{
		"own login":   func() error { return f.client(func(o *Options) { o.Username = "nobody" }).Login(t.Context()) },
		"check login": func() error { return c.CheckLogin(t.Context(), admin, "x"+secret, "") },
		"user": func() error {
			f.mu.Lock()
			f.intercept = func(w http.ResponseWriter, _ *http.Request, body record) bool {
				refuse(w, http.StatusBadRequest, "WeakPasswordError", fmt.Sprint(body))
				return true
			}
			f.mu.Unlock()
			_, _, err := c.EnsureUser(t.Context(), s, "u", secret)
			f.mu.Lock()
			f.intercept = nil
			f.mu.Unlock()
			return err
		},
	} {
		err := call()
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		noSecret(t, err)
	}
}

func TestNetworkErrors(t *testing.T) {
	f := newFake(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := "https://" + l.Addr().String() + "/v3"
	_ = l.Close()
	plain := httptest.NewServer(f)
	defer plain.Close()
	dead := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer dead.Close()
	block := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-block }))
	defer slow.Close()
	defer close(block)

	for _, tc := range []struct {
		name, url   string
		class       string
		unavailable bool
	}{
		{"refused", closed, ClassUnavailable, true},
		{"no such host", "https://keystone.invalid:1/v3", ClassUnavailable, true},
		{"the other side hangs up", dead.URL, ClassUnavailable, true},
		{"no answer", slow.URL, ClassUnavailable, true},
		{"unknown authority", f.srv.URL + "/v3", ClassTLS, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			patience := time.Minute // for a busy machine
			if tc.name == "no answer" {
				patience = 300 * time.Millisecond
			}
			c, err := New(Options{AuthURL: tc.url, Username: admin, Password: secret, Timeout: patience})
			require.NoError(t, err)
			err = c.Login(t.Context())
			e, ok := errors.AsType[*Error](err)
			if !ok || e.Class != tc.class || IsUnavailable(err) != tc.unavailable || e.Status != 0 {
				t.Errorf("got %#v", e)
			}
			noSecret(t, err)
		})
	}
	t.Run("canceled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := f.client().Login(ctx)
		if !errors.Is(err, context.Canceled) || IsUnavailable(err) {
			t.Errorf("got %v", err)
		}
	})
}

func TestTLS(t *testing.T) {
	f := newFake(t)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.srv.Certificate().Raw})
	login := func(edit func(*Options)) error {
		o := Options{AuthURL: f.srv.URL + "/v3", Username: admin, Password: secret, CAPEM: ca}
		edit(&o)
		c, err := New(o)
		if err != nil {
			return err
		}
		return c.Login(t.Context())
	}
	if err := login(func(*Options) {}); err != nil {
		t.Error(err)
	}
	if err := login(func(o *Options) { o.ServerName = "example.com" }); err != nil {
		t.Errorf("a name of the certificate: %v", err)
	}
	err := login(func(o *Options) { o.ServerName = "other.test" })
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); !ok {
		t.Errorf("a name that the certificate lacks: %v", err)
	}
	if err := login(func(o *Options) { o.CAPEM = []byte("nonsense") }); err == nil {
		t.Error("nonsense was taken as a CA")
	}
}

func TestNewRefuses(t *testing.T) {
	for _, u := range []string{"", "keystone:5000/v3", "https://user:pw@keystone/v3", "::"} {
		if _, err := New(Options{AuthURL: u}); err == nil {
			t.Errorf("%q was taken", u)
		}
	}
}

func TestPing(t *testing.T) {
	f := newFake(t)
	if err := f.client().Ping(t.Context(), f.srv.URL+"/"); err != nil {
		t.Error(err)
	}
	if err := f.client(func(o *Options) { o.UserAgent = "curl" }).Ping(t.Context(), f.srv.URL); !IsForbidden(err) {
		t.Errorf("the fake does not filter: %v", err)
	}
	if f.logins > 0 {
		t.Error("a ping needs no login")
	}
}
