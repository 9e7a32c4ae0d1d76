// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"yunion.io/x/ocadm/test/require"
)

const (
	admin  = "sysadmin"
	secret = "c4n4ry-s3cr3t"
)

type record = map[string]any

// fake responds like the identity service: 200 everywhere, 403 to a token that is not valid and to everything but policies and roles until the
// administrator's policy is both bound and reloaded, 423 to the login of a disabled user, lists of twenty without a limit, system accounts hidden. It
// serves region and yunionconf too.
type fake struct {
	t   *testing.T
	srv *httptest.Server

	mu       sync.Mutex
	tables   map[string][]record
	password map[string]string
	configs  map[string]map[string]map[string]any
	token    int
	// visible is true if the policies were reloaded since one was bound.
	visible bool
	// requests are "METHOD /path" without the query; logins are counted separately.
	requests []string
	logins   int
	nextID   int
	maxPage  int
	// intercept may respond instead of the fake.
	intercept func(w http.ResponseWriter, r *http.Request, body record) bool
}

func newFake(t *testing.T) *fake {
	f := &fake{
		t: t, visible: true, maxPage: pageLimit, password: map[string]string{admin: secret}, configs: map[string]map[string]map[string]any{},
		tables: map[string][]record{
			"users":    {{"id": "u-admin", "name": admin, "domain_id": "default", "enabled": true, "is_system_account": false, "allow_web_console": false}},
			"roles":    {{"id": "r-admin", "name": "admin"}},
			"policies": {},
		},
	}
	f.srv = httptest.NewUnstartedServer(f)
	f.srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	f.srv.StartTLS()
	t.Cleanup(f.srv.Close)
	return f
}

func (f *fake) client(edit ...func(*Options)) *Client {
	f.t.Helper()
	o := Options{AuthURL: f.srv.URL + "/v3", Username: admin, Password: secret, Transport: f.srv.Client().Transport}
	for _, e := range edit {
		e(&o)
	}
	c, err := New(o)
	require.NoError(f.t, err)
	return c
}

func (f *fake) snapshot(c *Client) *Snapshot {
	f.t.Helper()
	s, err := c.Snapshot(f.t.Context())
	require.NoError(f.t, err)
	return s
}

// writes returns the requests that changed something, and clears all requests.
func (f *fake) writes() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := slices.DeleteFunc(f.requests, func(r string) bool { return strings.HasPrefix(r, "GET ") })
	f.requests = nil
	return out
}

func (f *fake) add(table string, r record) record {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.insert(table, r)
}

func (f *fake) insert(table string, r record) record {
	if r["id"] == nil {
		f.nextID++
		r["id"] = fmt.Sprintf("%s-%d", table, f.nextID)
	}
	f.tables[table] = append(f.tables[table], r)
	return r
}

func (f *fake) find(table, key string) record {
	for _, r := range f.tables[table] {
		if r["id"] == key || r["name"] == key {
			return r
		}
	}
	return nil
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, code int, class, details string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(record{"error": record{"code": code, "class": class, "details": details}})
}

var singulars = map[string]string{
	"policies": "policy", "roles": "role", "users": "user", "services": "service", "endpoints": "endpoint", "regions": "region",
	"rolepolicies": "rolepolicy", "zones": "zone", "wires": "wire", "schedtags": "schedtag", "dynamicschedtags": "dynamicschedtag",
	"parameters": "parameter", "servicecertificates": "servicecertificate",
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var body record
	if r.Body != nil {
		_ = json.NewDecoder(r.Body).Decode(&body)
	}
	path := strings.TrimPrefix(r.URL.Path, "/v3")
	if path == "/ping" {
		if !strings.Contains(r.UserAgent(), "yunioncloud-go/201708") {
			refuse(w, http.StatusForbidden, "ForbiddenError", "forbidden")
			return
		}
		_, _ = w.Write([]byte("pong"))
		return
	}
	if path == "/auth/tokens" {
		f.logins++
	} else {
		f.requests = append(f.requests, r.Method+" "+path)
	}
	if f.intercept != nil && f.intercept(w, r, body) {
		return
	}
	if path == "/auth/tokens" {
		f.login(w, body)
		return
	}
	if r.Header.Get("X-Auth-Token") != f.currentToken() {
		refuse(w, http.StatusForbidden, "ForbiddenError", "not enough privilege for "+r.Header.Get("X-Auth-Token"))
		return
	}
	parts := strings.Split(strings.Trim(path, "/"), "/")
	if !f.visible && parts[0] != "policies" && parts[0] != "roles" {
		refuse(w, http.StatusForbidden, "ForbiddenError", "not enough privilege")
		return
	}
	f.route(w, r, parts, body)
}

func (f *fake) currentToken() string { return "token-" + strconv.Itoa(f.token) }

func (f *fake) login(w http.ResponseWriter, body record) {
	data, _ := json.Marshal(body)
	var in struct {
		Auth struct {
			Identity struct {
				Password struct {
					User struct{ Name, Password string }
				}
			}
		}
	}
	_ = json.Unmarshal(data, &in)
	u := in.Auth.Identity.Password.User
	want, ok := f.password[u.Name]
	switch {
	case !ok:
		refuse(w, http.StatusNotFound, "UserNotFound", "no user with password "+u.Password)
	case f.find("users", u.Name)["enabled"] == false:
		refuse(w, http.StatusLocked, "UserDisabled", "UserDisabled")
	case want != u.Password:
		refuse(w, http.StatusUnauthorized, "WrongPassword", "wrong password "+u.Password)
	default:
		if u.Name == admin {
			f.token++
		}
		w.Header().Set("X-Subject-Token", f.currentToken())
		answer(w, record{"token": record{"expires_at": time.Now().Add(24 * time.Hour), "user": record{"id": "u-" + u.Name, "name": u.Name,
			"domain": record{"id": "default", "name": "Default"}}, "project": record{"id": "p-system", "name": "system"}}})
	}
}

func (f *fake) route(w http.ResponseWriter, r *http.Request, parts []string, body record) {
	table, method := parts[0], r.Method
	switch {
	case table == "role_assignments":
		answer(w, record{"role_assignments": f.tables["role_assignments"], "total": len(f.tables["role_assignments"])})
	case table == "projects" && len(parts) == 6 && method == http.MethodPut:
		f.insert("role_assignments", record{"user": record{"id": parts[3]}, "role": record{"id": "r-admin", "name": parts[5]},
			"scope": record{"project": record{"id": "p-system", "name": parts[1]}}})
		answer(w, record{})
	case table == "roles" && len(parts) == 3 && parts[2] == "add-policy":
		f.addPolicy(w, parts[1], body)
	case table == "services" && len(parts) == 3 && parts[2] == "config":
		f.config(w, method, f.find("services", parts[1]), body)
	case table == "zones" && len(parts) == 3:
		answer(w, record{"wire": f.insert("wires", body["wire"].(record))})
	case singulars[table] == "":
		refuse(w, http.StatusNotFound, "NotFoundError", "no such path")
	case len(parts) == 1 && method == http.MethodGet:
		f.list(w, r, table)
	case len(parts) == 1 && method == http.MethodPost:
		f.create(w, table, body)
	default:
		f.one(w, method, table, parts[1], body)
	}
}

// addPolicy binds by the ids of role, project ("" is all) and policy, whichever way they were given; binding twice has no further effect.
func (f *fake) addPolicy(w http.ResponseWriter, role string, body record) {
	in, _ := body["role"].(record)
	key, _ := in["policy_id"].(string)
	policy := f.find("policies", key)
	if policy == nil {
		refuse(w, http.StatusNotFound, "NotFoundError", "policy "+key)
		return
	}
	r := record{"role_id": role, "project_id": "", "policy_id": policy["id"], "policy": policy["name"]}
	if p := in["project_id"]; p == "system" || p == "p-system" {
		r["project_id"], r["project"] = "p-system", "system"
	}
	if !slices.ContainsFunc(f.tables["rolepolicies"], func(x record) bool {
		return x["role_id"] == role && x["project_id"] == r["project_id"] && x["policy_id"] == r["policy_id"]
	}) {
		f.insert("rolepolicies", r)
	}
	answer(w, record{"role": nil})
}

func (f *fake) list(w http.ResponseWriter, r *http.Request, table string) {
	q := r.URL.Query()
	found := []record{}
	for _, x := range f.tables[table] {
		if table == "users" && x["is_system_account"] == true && q.Get("system") != "true" {
			continue
		}
		if n := q.Get("name"); n == "" || n == x["name"] {
			found = append(found, x)
		}
	}
	limit, _ := strconv.Atoi(q.Get("limit"))
	if limit == 0 {
		limit = 20
	}
	offset, _ := strconv.Atoi(q.Get("offset"))
	total := len(found)
	found = found[min(offset, total):]
	answer(w, record{table: found[:min(limit, f.maxPage, len(found))], "total": total, "limit": limit, "offset": offset})
}

func (f *fake) create(w http.ResponseWriter, table string, body record) {
	in, ok := body[singulars[table]].(record)
	if !ok {
		refuse(w, http.StatusBadRequest, "InvalidInputError", "No request key: "+singulars[table])
		return
	}
	if name, ok := in["name"].(string); ok && f.find(table, name) != nil {
		refuse(w, http.StatusConflict, "DuplicateNameError", "Duplicate name "+name)
		return
	}
	r := maps.Clone(in)
	certified(r)
	switch table {
	case "users":
		f.password[r["name"].(string)] = r["password"].(string)
		delete(r, "password")
		r["domain_id"], r["enabled"] = "default", true
	case "parameters":
		f.nextID++
		r["id"], r["namespace"] = f.nextID, "service"
	}
	answer(w, record{singulars[table]: f.insert(table, r)})
}

func (f *fake) one(w http.ResponseWriter, method, table, key string, body record) {
	r := f.find(table, key)
	if n, err := strconv.Atoi(key); err == nil && table == "parameters" {
		for _, x := range f.tables[table] {
			if x["id"] == n {
				r = x
			}
		}
	}
	if r == nil {
		refuse(w, http.StatusNotFound, "ResourceNotFoundError", singulars[table]+" "+key+" not found")
		return
	}
	switch method {
	case http.MethodPut, http.MethodPatch:
		in, _ := body[singulars[table]].(record)
		in = maps.Clone(in)
		if p, ok := in["password"].(string); ok {
			f.password[r["name"].(string)] = p
			delete(in, "password")
		}
		certified(in)
		maps.Copy(r, in)
	case http.MethodDelete:
		for _, e := range f.tables["endpoints"] {
			if e["cert_id"] == r["id"] { // even a certificate in use
				delete(e, "cert_id")
			}
		}
		if r["enabled"] == true {
			refuse(w, http.StatusBadRequest, "InvalidStatusError", singulars[table]+" is enabled")
			return
		}
		f.tables[table] = slices.DeleteFunc(f.tables[table], func(x record) bool { return x["id"] == r["id"] })
	}
	answer(w, record{singulars[table]: r})
}

// certified renames a field: an endpoint takes a certificate in one and returns it in another.
func certified(endpoint record) {
	if id, given := endpoint["service_certificate"]; given {
		delete(endpoint, "service_certificate")
		endpoint["cert_id"] = id
	}
}

func (f *fake) config(w http.ResponseWriter, method string, service record, body record) {
	if service == nil {
		refuse(w, http.StatusNotFound, "ResourceNotFoundError", "service not found")
		return
	}
	id := service["id"].(string)
	if method == http.MethodPost {
		in, _ := body["service"].(record)
		if f.configs[id] == nil || in["action"] != "update" && in["action"] != "remove" {
			f.configs[id] = map[string]map[string]any{}
		}
		for section, values := range in["config"].(record) {
			if f.configs[id][section] == nil {
				f.configs[id][section] = map[string]any{}
			}
			if in["action"] == "remove" {
				maps.DeleteFunc(f.configs[id][section], func(k string, _ any) bool { _, drop := values.(record)[k]; return drop })
				continue
			}
			maps.Copy(f.configs[id][section], values.(record))
		}
	}
	conf := f.configs[id]
	if conf == nil {
		conf = map[string]map[string]any{}
	}
	answer(w, record{"service": record{"config": conf}})
}
