// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/operatorctl/policy"
	"yunion.io/x/ocadm/test/fakecloud/fakecloudtest"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// people is a cloud with the standard policies, and with region and glance to test them.
type people struct {
	t                    *testing.T
	cloud                *fakecloudtest.Cloud
	admin                *rest
	auth, region, glance string
}

func newPeople(t *testing.T) *people {
	c := fakecloudtest.New(t, mariadb.Require(t, mariadb.Options{}))
	options := c.Keystone(adminPassword)
	c.Start("keystone", "--auto-sync-table", "--config", c.Config("keystone", options)).Listening(t, options["port"].(int))
	p := &people{t: t, cloud: c, admin: newREST(t, c), auth: c.AuthURL()}
	p.admin.bootstrap(p.auth)
	p.admin.register(p.auth, "keystone", "identity", p.auth)
	p.standard()
	p.region = p.start("region", "region2", "compute_v2", "", map[string]any{"auto_sync_table": true, "sql_connection": c.Database("yunioncloud", "rg-pw")})
	p.glance = p.start("glance", "glance", "image", "/v1", map[string]any{"auto_sync_table": true, "sql_connection": c.Database("glance", "gl-pw"),
		"filesystem_store_datadir": filepath.Join(c.Dir, "images")})
	p.admin.want(http.StatusOK, http.MethodPost, p.auth+"/projects", `{"project":{"name":"dev"}}`)
	return p
}

func (p *people) standard() {
	p.t.Helper()
	id, err := identity.New(identity.Options{AuthURL: p.auth, Username: "sysadmin", Password: adminPassword, CAPEM: p.cloud.CA.CertPEM()})
	require.NoError(p.t, err)
	defer id.Close()
	table, err := policy.Standard()
	require.NoError(p.t, err)
	want := identity.Standard{}
	for _, x := range table.Policies {
		want.Policies = append(want.Policies, identity.Policy{Name: x.Name, Scope: x.Scope, Blob: x.Rules})
	}
	for _, x := range table.Roles {
		want.Roles = append(want.Roles, identity.Role{Name: x.Name, Policies: x.Policies, Project: x.Project, Public: x.Public})
	}
	if _, err := id.EnsureStandard(p.t.Context(), want); err != nil {
		p.t.Fatal(err)
	}
}

func (p *people) start(program, service, kind, suffix string, options map[string]any) string {
	p.t.Helper()
	port := fakecloudtest.FreePort(p.t)
	base := fmt.Sprintf("https://localhost:%d%s", port, suffix)
	p.admin.register(p.auth, service, kind, base)
	p.admin.account(p.auth, program+"-user", "pw-"+program)
	groups := []map[string]any{p.cloud.Certificate(program), p.cloud.Account(program+"-user", "pw-"+program), {"port": port}, options}
	p.cloud.Start(program, "--config", p.cloud.Config(program, groups...)).Listening(p.t, port)
	return base
}

// user creates a user with a role in project dev, or no role if empty, and logs in there.
func (p *people) user(name, role string) *rest {
	p.t.Helper()
	made := p.admin.want(http.StatusOK, http.MethodPost, p.auth+"/users", fmt.Sprintf(`{"user":{"name":%q,"password":"Alice@1"}}`, name))
	r, project := newREST(p.t, p.cloud), ""
	if role != "" {
		project = "dev"
		p.admin.want(http.StatusOK, http.MethodPut, fmt.Sprintf("%s/projects/dev/users/%s/roles/%s", p.auth, inner(made, "user", "id"), role), `{}`)
	}
	if got := r.enter(p.auth, name, "Alice@1", project); got != http.StatusOK {
		p.t.Fatalf("%s cannot log in: %d", name, got)
	}
	return r
}

func TestRoles(t *testing.T) {
	p := newPeople(t)
	owner := p.user("alice", "project_owner")
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		// Policies take effect after keystone has reloaded them.
		if status, _, _ := owner.call(http.MethodGet, p.region+"/servers", ""); status == http.StatusOK {
			break
		} else if status != http.StatusForbidden || time.Now().After(end) {
			t.Fatalf("a project_owner lists servers: %d", status)
		}
	}
	p.admin.want(http.StatusOK, http.MethodPost, p.region+"/servers", `{"server":{"name":"of-system"}}`)
	server := p.region + "/servers/" + inner(owner.want(http.StatusOK, http.MethodPost, p.region+"/servers", `{"server":{"name":"of-dev"}}`), "server", "id").(string)
	image := `{"image":{"name":"cirros"}}`
	table, err := policy.Standard()
	require.NoError(t, err)
	standard := map[string][]string{}
	for _, role := range table.Roles {
		standard[role.Name] = slices.Sorted(slices.Values(role.Policies))
	}
	for _, tc := range []struct {
		who, role         string
		list, all, create int
		get, rename       int
		image, user, zone int
	}{
		{"owner", "project_owner", 200, 403, 200, 200, 200, 200, 403, 403},
		{"editor", "project_editor", 200, 403, 403, 200, 200, 403, 403, 403},
		{"viewer", "project_viewer", 200, 403, 403, 200, 403, 403, 403, 403},
		{"normal", "normal_user", 200, 403, 200, 200, 200, 403, 403, 403},
		{"domain", "domainadmin", 200, 403, 200, 200, 200, 200, 200, 403},
		{"finance", "fa", 403, 403, 403, 403, 403, 403, 403, 403},
		{"ops", "sys_opsadmin", 200, 200, 200, 200, 200, 200, 200, 200},
		{"audit", "sys_adtadmin", 403, 403, 403, 403, 403, 403, 403, 403},
		{"nobody", "", 403, 403, 403, 403, 403, 403, 403, 403},
	} {
		t.Run(tc.who, func(t *testing.T) {
			r := (&people{t: t, cloud: p.cloud, admin: p.admin.in(t), auth: p.auth}).user(tc.who, tc.role)
			r.want(tc.list, http.MethodGet, p.region+"/servers", "")
			r.want(tc.all, http.MethodGet, p.region+"/servers?scope=system", "")
			r.want(tc.create, http.MethodPost, p.region+"/servers", `{"server":{"name":"vm-of-`+tc.who+`"}}`)
			r.want(tc.get, http.MethodGet, server, "")
			r.want(tc.rename, http.MethodPut, server, `{"server":{"name":"renamed"}}`)
			r.want(tc.image, http.MethodPost, p.glance+"/images", strings.Replace(image, "cirros", tc.who, 1))
			r.want(tc.user, http.MethodPost, p.auth+"/users", `{"user":{"name":"made-by-`+tc.who+`","password":"Alice@1"}}`)
			r.want(http.StatusOK, http.MethodGet, p.region+"/zones", "") // allowed for all
			r.want(tc.zone, http.MethodPost, p.region+"/zones", `{"zone":{"name":"mine"}}`)
			// Even a role with none of these permissions differs from no role: it has other policies.
			if got, want := policiesOf(r, p.auth), standard[tc.role]; !slices.Equal(got, want) {
				t.Errorf("policies %q, want %q", got, want)
			}
		})
	}
	t.Run("projects are apart", func(t *testing.T) { p.apart(t, owner.in(t), server) })
	t.Run("no role member", func(t *testing.T) { p.member(t) })
}

// policiesOf returns the names of a user's effective policies, sorted.
func policiesOf(r *rest, auth string) []string {
	var names []string
	scopes, _ := r.want(http.StatusOK, http.MethodGet, auth+"/auth/policies", "")["names"].(map[string]any)
	for _, list := range scopes {
		for _, name := range list.([]any) {
			names = append(names, name.(string))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// apart checks that a project's servers are visible there, and in a wider scope to users who have one.
func (p *people) apart(t *testing.T, owner *rest, server string) {
	count := func(r *rest, query string) int {
		return len(r.want(http.StatusOK, http.MethodGet, p.region+"/servers"+query, "")["servers"].([]any))
	}
	admin := p.admin.in(t)
	all, system, dev := count(admin, "?scope=system"), count(admin, ""), count(owner, "")
	if system != 1 || dev < 2 || all != system+dev {
		t.Errorf("%d servers in project system, %d in dev, %d in all", system, dev, all)
	}
	admin.want(http.StatusOK, http.MethodPost, p.auth+"/projects", `{"project":{"name":"other"}}`)
	other := (&people{t: t, cloud: p.cloud, admin: admin, auth: p.auth})
	stranger := other.user("stranger", "")
	user := admin.want(http.StatusOK, http.MethodGet, p.auth+"/users/stranger", "")
	admin.want(http.StatusOK, http.MethodPut, fmt.Sprintf("%s/projects/other/users/%s/roles/project_owner", p.auth, inner(user, "user", "id")), `{}`)
	if got := stranger.enter(p.auth, "stranger", "Alice@1", "dev"); got != http.StatusUnauthorized {
		t.Errorf("entering a project without a role: %d", got)
	}
	if got := stranger.enter(p.auth, "stranger", "Alice@1", "other"); got != http.StatusOK {
		t.Fatalf("entering the own project: %d", got)
	}
	if n := count(stranger, ""); n != 0 {
		t.Errorf("%d servers of others", n)
	}
	stranger.want(http.StatusNotFound, http.MethodGet, server, "")
	stranger.want(http.StatusNotFound, http.MethodDelete, server, "")
}

// member checks that there is no such standard role, and that a role of that name has no policies and permits nothing.
func (p *people) member(t *testing.T) {
	admin := p.admin.in(t)
	user := admin.want(http.StatusOK, http.MethodPost, p.auth+"/users", `{"user":{"name":"mia","password":"Alice@1"}}`)
	assign := fmt.Sprintf("%s/projects/dev/users/%s/roles/member", p.auth, inner(user, "user", "id"))
	admin.want(http.StatusNotFound, http.MethodPut, assign, `{}`)
	admin.want(http.StatusOK, http.MethodPost, p.auth+"/roles", `{"role":{"name":"member"}}`)
	admin.want(http.StatusOK, http.MethodPut, assign, `{}`)
	mia := newREST(t, p.cloud)
	if got := mia.enter(p.auth, "mia", "Alice@1", "dev"); got != http.StatusOK {
		t.Fatalf("mia cannot enter: %d", got)
	}
	mia.want(http.StatusForbidden, http.MethodGet, p.region+"/servers", "")
}

// unsized hides the length of a body, which is then sent in chunks.
type unsized struct{ io.Reader }

// TestBodiesThatAreNotRead checks that the services ignore a body without a length or the right type.
func TestBodiesThatAreNotRead(t *testing.T) {
	c := fakecloudtest.New(t, mariadb.Require(t, mariadb.Options{}))
	options := c.Keystone(adminPassword)
	c.Start("keystone", "--auto-sync-table", "--config", c.Config("keystone", options)).Listening(t, options["port"].(int))
	login := []byte(`{"auth":{"identity":{"methods":["password"],"password":{"user":{"name":"sysadmin","password":"` + adminPassword + `","domain":{"name":"Default"}}}}}}`)
	for _, tc := range []struct {
		name, kind string
		body       io.Reader
		want       int
	}{
		{"as it should be", "application/json", bytes.NewReader(login), http.StatusOK},
		{"with a charset", "application/json; charset=utf-8", bytes.NewReader(login), http.StatusOK},
		{"in chunks", "application/json", unsized{bytes.NewReader(login)}, http.StatusBadRequest},
		{"without a type", "", bytes.NewReader(login), http.StatusBadRequest},
		{"as a form", "application/x-www-form-urlencoded", bytes.NewReader(login), http.StatusBadRequest},
		{"none", "application/json", nil, http.StatusBadRequest},
	} {
		t.Run(tc.name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.AuthURL()+"/auth/tokens", tc.body)
			require.NoError(t, err)
			if tc.kind != "" {
				request.Header.Set("Content-Type", tc.kind)
			}
			status, answer, _ := newREST(t, c).send(request)
			if status != tc.want || status != http.StatusOK && answer["details"] != "fail to decode request body" {
				t.Errorf("%d %v, want %d", status, answer, tc.want)
			}
		})
	}
}

// testGatewayPasswords checks that the gateway first treats a password as AES-CBC ciphertext, and fails on lengths that are invalid for one.
func testGatewayPasswords(t *testing.T, r *rest, gateway string) {
	for length, want := range map[int]int{8: 401, 16: 401, 17: 500, 24: 500, 31: 500, 32: 401, 48: 401} {
		password := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("x"), length))
		status, answer, _ := r.in(t).call(http.MethodPost, gateway+"/api/v1/auth/login", fmt.Sprintf(`{"username":"sysadmin","password":%q}`, password))
		if status != want || status == http.StatusInternalServerError && answer["details"] != "crypto/cipher: input not full blocks" {
			t.Errorf("a password of %d bytes: %d %v, want %d", length, status, answer, want)
		}
	}
}

// testTemplates checks that devtool accepts the bytes of a file only as numbers.
func testTemplates(t *testing.T, r *rest, devtool string) {
	const template = `{"devtool_template":{"name":"t%d","playbook":{"inventory":{"hosts":[{"name":"h"}]},"modules":[{"name":"ping"}],"files":{"conf":%s}}}}`
	for i, tc := range []struct {
		files string
		want  int
	}{{`[104,105,10,255]`, 200}, {`[]`, 200}, {`"aGkK"`, 500}, {`[256]`, 500}, {`[1.5]`, 500}, {`["a"]`, 500}, {`{"a":1}`, 500}} {
		r.in(t).want(tc.want, http.MethodPost, devtool+"/devtool_templates", fmt.Sprintf(template, i, tc.files))
	}
}
