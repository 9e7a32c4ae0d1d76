// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/test/fakecloud/fakecloudtest"
	"yunion.io/x/ocadm/test/require"
)

const adminPassword = "Admin@123"

// rest is a plain client of the cloud's services, as the author of an operator would write it.
type rest struct {
	t     *testing.T
	http  *http.Client
	token string
}

func newREST(t *testing.T, c *fakecloudtest.Cloud) *rest {
	pool := x509.NewCertPool()
	pool.AddCert(c.CA.Cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	t.Cleanup(transport.CloseIdleConnections)
	return &rest{t: t, http: &http.Client{Transport: transport, Timeout: time.Minute}}
}

// in returns the same session for another test.
func (r *rest) in(t *testing.T) *rest { return &rest{t: t, http: r.http, token: r.token} }

func (r *rest) call(method, url, body string) (int, map[string]any, http.Header) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.t.Context(), method, url, strings.NewReader(body))
	require.NoError(r.t, err)
	request.Header.Set("X-Auth-Token", r.token)
	request.Header.Set("Content-Type", "application/json")
	return r.send(request)
}

func (r *rest) send(request *http.Request) (int, map[string]any, http.Header) {
	r.t.Helper()
	response, err := r.http.Do(request)
	require.NoError(r.t, err)
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	require.NoError(r.t, err)
	var answer map[string]any
	_ = json.Unmarshal(data, &answer)
	return response.StatusCode, answer, response.Header
}

func (r *rest) want(status int, method, url, body string) map[string]any {
	r.t.Helper()
	got, answer, _ := r.call(method, url, body)
	if got != status {
		r.t.Fatalf("%s %s: got %d %v, want %d", method, url, got, answer, status)
	}
	return answer
}

func (r *rest) login(auth, user, password string) int {
	r.t.Helper()
	return r.enter(auth, user, password, "system")
}

// enter logs in to a project, or without a scope if project is empty.
func (r *rest) enter(auth, user, password, project string) int {
	r.t.Helper()
	scope := ""
	if project != "" {
		scope = fmt.Sprintf(`,"scope":{"project":{"name":%q,"domain":{"name":"Default"}}}`, project)
	}
	body := fmt.Sprintf(`{"auth":{"context":{"source":"operator"},"identity":{"methods":["password"],"password":{"user":{"name":%q,
		"password":%q,"domain":{"name":"Default"}}}}%s}}`, user, password, scope)
	status, _, header := r.call(http.MethodPost, auth+"/auth/tokens", body)
	r.token = header.Get("X-Subject-Token")
	return status
}

func inner(answer map[string]any, path ...string) any {
	var at any = answer
	for _, key := range path {
		object, _ := at.(map[string]any)
		at = object[key]
	}
	return at
}

// bootstrap performs an operator's first steps on a fresh keystone, until it has all permissions.
func (r *rest) bootstrap(auth string) {
	r.t.Helper()
	if got := r.login(auth, "sysadmin", adminPassword); got != http.StatusOK {
		r.t.Fatalf("first login: %d", got)
	}
	for _, kind := range []string{"services", "endpoints", "regions", "users"} {
		answer := r.want(http.StatusForbidden, http.MethodGet, auth+"/"+kind, "")
		if answer["class"] != "ForbiddenError" || !strings.Contains(fmt.Sprint(answer["details"]), "not enough privilege") {
			r.t.Errorf("refusal of %s: %v", kind, answer)
		}
	}
	r.want(http.StatusBadRequest, http.MethodPost, auth+"/policies", `{"policy":{"name":"x","type":"x","scope":"system","policy":{"*":"allow"}}}`)
	r.want(http.StatusBadRequest, http.MethodPost, auth+"/policies", `{"policy":{"name":"x","scope":"system","blob":{"policy":{"*":"allow"}}}}`)
	r.want(http.StatusOK, http.MethodPost, auth+"/policies", `{"policy":{"name":"sysadmin","type":"sysadmin","scope":"system",
		"enabled":true,"is_system":true,"is_public":true,"blob":{"policy":{"*":"allow"}}}}`)
	roles := r.want(http.StatusOK, http.MethodGet, auth+"/roles?name=admin", "")["roles"].([]any)
	role := roles[0].(map[string]any)["id"].(string)
	r.want(http.StatusOK, http.MethodPost, auth+"/roles/"+role+"/add-policy", `{"role":{"project_id":"system","policy_id":"sysadmin"}}`)
	r.want(http.StatusOK, http.MethodPost, auth+"/roles/admin/add-policy", `{"role":{"project_id":"system","policy_id":"sysadmin"}}`)

	deadline := time.Now().Add(time.Minute)
	for {
		status, _, _ := r.call(http.MethodGet, auth+"/services", "")
		if status == http.StatusOK {
			break
		}
		if status != http.StatusForbidden || time.Now().After(deadline) {
			r.t.Fatalf("waiting for the policy: %d", status)
		}
		time.Sleep(100 * time.Millisecond)
	}
	r.want(http.StatusOK, http.MethodPost, auth+"/regions", `{"region":{"id":"region0"}}`)
	r.want(http.StatusConflict, http.MethodPost, auth+"/regions", `{"region":{"id":"region0"}}`)
}

// register creates a service with an internal endpoint and returns its id.
func (r *rest) register(auth, name, kind, url string) string {
	r.t.Helper()
	service := r.want(http.StatusOK, http.MethodPost, auth+"/services",
		fmt.Sprintf(`{"service":{"name":%q,"type":%q,"enabled":true}}`, name, kind))
	id := inner(service, "service", "id").(string)
	if url != "" {
		body := fmt.Sprintf(`{"endpoint":{"service_id":%q,"region_id":"region0","interface":"internal","url":%q,"enabled":true}}`, id, url)
		r.want(http.StatusOK, http.MethodPost, auth+"/endpoints", body)
		r.want(http.StatusConflict, http.MethodPost, auth+"/endpoints", body)
	}
	return id
}

// account creates a service's user with the role admin in the project system.
func (r *rest) account(auth, name, password string) {
	r.t.Helper()
	user := r.want(http.StatusOK, http.MethodPost, auth+"/users",
		fmt.Sprintf(`{"user":{"name":%q,"password":%q,"is_system_account":true,"allow_web_console":false}}`, name, password))
	if inner(user, "user", "password") != nil {
		r.t.Error("the answer shows the password")
	}
	r.want(http.StatusOK, http.MethodPut, fmt.Sprintf("%s/projects/system/users/%s/roles/admin", auth, inner(user, "user", "id")), `{}`)
}
