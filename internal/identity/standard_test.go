// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"yunion.io/x/ocadm/test/require"
)

func rulesOf(service string) map[string]any {
	return map[string]any{"policy": map[string]any{service: "allow"}}
}

func standardOfTest() Standard {
	return Standard{
		Policies: []Policy{{Name: "p1", Scope: "project", Blob: rulesOf("compute")}, {Name: "p2", Scope: "system", Blob: rulesOf("image")}},
		Roles:    []Role{{Name: "r1", Public: true, Policies: []string{"p1", "p2"}}, {Name: "r2", Policies: []string{"p2"}, Project: "system"}},
	}
}

func ensureStandard(t *testing.T, c *Client, f *fake) []string {
	t.Helper()
	changed, err := c.EnsureStandard(t.Context(), standardOfTest())
	require.NoError(t, err)
	writes := f.writes()
	if changed != (len(writes) > 0) {
		t.Errorf("changed %v after %v", changed, writes)
	}
	slices.Sort(writes)
	return writes
}

func TestEnsureStandard(t *testing.T) {
	f := newFake(t)
	c := f.client()
	if got := ensureStandard(t, c, f); len(got) != 2+2+3+2 {
		t.Errorf("first: %q", got)
	}
	p1, r1, r2 := f.find("policies", "p1"), f.find("roles", "r1"), f.find("roles", "r2")
	if p1["scope"] != "project" || p1["description"] != "p1" || p1["is_system"] != true || p1["enabled"] != true || !sameJSON(p1["blob"], rulesOf("compute")) {
		t.Errorf("policy %v", p1)
	}
	if r1["is_public"] != true || r2["is_public"] != false || r1["description"] != "r1" {
		t.Errorf("roles %v, %v", r1, r2)
	}
	for _, b := range f.tables["rolepolicies"] {
		if want := map[any]string{r1["id"]: "", r2["id"]: "p-system"}[b["role_id"]]; b["project_id"] != want {
			t.Errorf("binding %v, want project %q", b, want)
		}
	}
	if got := ensureStandard(t, c, f); len(got) > 0 {
		t.Errorf("second: %q", got)
	}
}

// Changes by users stay: the rules of a policy, the description of a role, the policies of a role.
func TestStandardKeepsUserChanges(t *testing.T) {
	f := newFake(t)
	c := f.client()
	ensureStandard(t, c, f)
	f.mu.Lock()
	f.find("policies", "p1")["blob"], f.find("policies", "p2")["enabled"] = rulesOf("mine"), false
	f.find("roles", "r1")["description"] = "mine"
	r1, r2 := f.find("roles", "r1")["id"], f.find("roles", "r2")["id"]
	p2 := f.find("policies", "p2")["id"]
	f.tables["rolepolicies"] = slices.DeleteFunc(f.tables["rolepolicies"], func(b record) bool { return b["role_id"] == r1 && b["policy_id"] == p2 })
	f.mu.Unlock()
	if got := ensureStandard(t, c, f); len(got) > 0 {
		t.Errorf("a later version: %q", got)
	}
	// A role without any policy never had one.
	f.mu.Lock()
	f.tables["rolepolicies"] = slices.DeleteFunc(f.tables["rolepolicies"], func(b record) bool { return b["role_id"] == r2 })
	f.mu.Unlock()
	if got := ensureStandard(t, c, f); len(got) != 1 || !strings.HasSuffix(got[0], "/add-policy") {
		t.Errorf("after a cut: %q", got)
	}
}

// A role whose set-up was interrupted half-way gets the missing policies, and then its description.
func TestHalfARoleIsCompleted(t *testing.T) {
	f := newFake(t)
	served := 0
	f.intercept = func(w http.ResponseWriter, r *http.Request, _ record) bool {
		if !strings.HasSuffix(r.URL.Path, "/add-policy") {
			return false
		}
		if served++; served == 1 {
			return false
		}
		refuse(w, http.StatusInternalServerError, "InternalServerError", "broken")
		return true
	}
	first := f.client(func(o *Options) { o.Transport = o.Transport.(*http.Transport).Clone() })
	if _, err := first.EnsureStandard(t.Context(), standardOfTest()); !IsUnavailable(err) {
		t.Fatal(err)
	}
	// The first refusal cancels requests that the server may still process. None of them may reach the second run.
	f.srv.CloseClientConnections()
	f.mu.Lock()
	f.intercept = nil
	bound := len(f.tables["rolepolicies"])
	f.mu.Unlock()
	f.writes()
	if got := ensureStandard(t, f.client(), f); bound > 1 || len(got) != 3-bound+2 {
		t.Errorf("with %d of 3 bindings made: %q", bound, got)
	}
	if r1 := f.find("roles", "r1"); r1["description"] != "r1" || len(f.tables["rolepolicies"]) != 3 {
		t.Errorf("role %v, bindings %v", r1, f.tables["rolepolicies"])
	}
}

// A record of that name in another domain is a different record; one that is created meanwhile is used.
func TestStandardBesideOthers(t *testing.T) {
	f := newFake(t)
	c := f.client()
	f.add("policies", record{"name": "p1", "domain_id": "elsewhere"})
	// The fake has one domain: it refuses the name, as the real service does when another client has created the policy since the list was read.
	if got := ensureStandard(t, c, f); !slices.Contains(got, "POST /policies") {
		t.Errorf("%q", got)
	}
	other := f.find("policies", "p1")["id"]
	if !slices.ContainsFunc(f.tables["rolepolicies"], func(b record) bool { return b["policy_id"] == other }) {
		t.Error("the policy that was there already is not used")
	}
}

// A failure stops the run and is reported, and the next run continues from there.
func TestStandardGoesOn(t *testing.T) {
	f := newFake(t)
	c := f.client()
	f.intercept = func(w http.ResponseWriter, r *http.Request, _ record) bool {
		if !strings.HasSuffix(r.URL.Path, "/add-policy") {
			return false
		}
		refuse(w, http.StatusInternalServerError, "InternalServerError", "broken")
		return true
	}
	if changed, err := c.EnsureStandard(t.Context(), standardOfTest()); !changed || !IsUnavailable(err) {
		t.Errorf("changed %v, %v", changed, err)
	}
	f.mu.Lock()
	f.intercept = nil
	f.mu.Unlock()
	if _, err := c.EnsureStandard(t.Context(), standardOfTest()); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p, r, b := len(f.tables["policies"]), len(f.tables["roles"]), len(f.tables["rolepolicies"]); p != 2 || r != 3 || b != 3 {
		t.Errorf("%d policies, %d roles, %d bindings", p, r, b)
	}
}

// However many callers there are, at most maxParallel requests run at a time, and EnsureStandard uses half of them.
func TestParallelRequestsAreBounded(t *testing.T) {
	var now, most atomic.Int32
	release := make(chan struct{})
	f := newFake(t)
	c := f.client(func(o *Options) {
		base := o.Transport
		o.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			n := now.Add(1)
			defer now.Add(-1)
			for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
			}
			if strings.HasSuffix(r.URL.Path, "/slow") {
				<-release
			}
			return base.RoundTrip(r)
		})
	})
	require.NoError(t, c.Login(t.Context()))
	done := make(chan error)
	for range 3 * maxParallel {
		go func() { _, err := get[record](t.Context(), c, c.o.AuthURL, "policies", "policy", "slow"); done <- err }()
	}
	for end := time.Now().Add(time.Minute); now.Load() < maxParallel && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	close(release)
	for range 3 * maxParallel {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if got := most.Load(); got != maxParallel {
		t.Errorf("%d requests at once", got)
	}
	most.Store(0)
	var want Standard
	for i := range 40 {
		want.Policies = append(want.Policies, Policy{Name: "many" + string(rune('a'+i)), Scope: "project", Blob: rulesOf("compute")})
	}
	if _, err := c.EnsureStandard(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	if got := most.Load(); got > standardParallel {
		t.Errorf("%d requests at once for the standard policies", got)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The services read a body only with its length and content type.
func TestResponsesHaveLengthAndType(t *testing.T) {
	f := newFake(t)
	c := f.client(func(o *Options) {
		base := o.Transport
		o.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Body != nil && (r.ContentLength <= 0 || len(r.TransferEncoding) > 0 || r.Header.Get("Content-Type") != "application/json") {
				t.Errorf("%s %s: length %d, encoding %q, type %q", r.Method, r.URL.Path, r.ContentLength, r.TransferEncoding, r.Header.Get("Content-Type"))
			}
			return base.RoundTrip(r)
		})
	})
	ensureStandard(t, c, f)
	s := f.snapshot(c)
	if _, _, err := c.EnsureUser(t.Context(), s, "u", "p"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.EnsureUserRole(t.Context(), s, "u", "system", "admin"); err != nil {
		t.Fatal(err)
	}
}
