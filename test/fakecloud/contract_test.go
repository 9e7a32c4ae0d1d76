// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/test/fakecloud/fakecloudtest"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

// servicesVariable names a directory with programs of the real services, keystone and region. If it is set, the test checks these instead of the stand-ins.
const servicesVariable = "OCADM_TEST_SERVICES"

// request is a row of the contract: a request, and the answer of the services of v4.0.4-20260820.0.
type request struct {
	// as is the sender: "" the administrator, "none" a sender without a token, otherwise the name of a saved token.
	as string
	// call is the method, the service and the path. $NAME$ stands for a saved value.
	call, body string
	// status is 200 if it is not set; refusal is the class of the error.
	status  int
	refusal string
	// holds are values in the answer, as PATH=VALUE.
	holds []string
	// save is the name under which the token or the id of the record is saved.
	save string
}

// contract is a session with the services.
type contract struct {
	*rest
	base, saved map[string]string
}

func (c *contract) fill(text string) string {
	for name, value := range c.saved {
		text = strings.ReplaceAll(text, "$"+name+"$", value)
	}
	return text
}

func (c *contract) check(t *testing.T, rows []request) {
	t.Helper()
	for _, row := range rows {
		method, target, _ := strings.Cut(c.fill(row.call), " ")
		service, path, _ := strings.Cut(target, ":")
		r := c.in(t)
		if row.as != "" {
			r.token = c.saved[row.as]
		}
		status, answer, header := r.call(method, c.base[service]+path, c.fill(row.body))
		if want := max(row.status, 200); status != want || want > 299 && answer["class"] != row.refusal {
			t.Errorf("%s %s, sender %q: got %d %v, want %d %s: %v", row.call, row.body, row.as, status, answer["class"], want, row.refusal, answer["details"])
		}
		for _, want := range row.holds {
			at, value, _ := strings.Cut(c.fill(want), "=")
			if got := fmt.Sprint(reach(answer, strings.Split(at, "."))); got != value {
				t.Errorf("%s %s: %s is %s, want %s", row.call, row.body, at, got, value)
			}
		}
		if row.save != "" {
			c.saved[row.save] = header.Get("X-Subject-Token")
			for _, record := range answer {
				if id, ok := inner(map[string]any{"record": record}, "record", "id").(string); ok {
					c.saved[row.save] = id
				}
			}
		}
	}
}

// reach returns the value at a path through objects and lists; "#" is the length of a list.
func reach(at any, path []string) any {
	for _, key := range path {
		list, is := at.([]any)
		var i int
		switch _, err := fmt.Sscan(key, &i); {
		case is && key == "#":
			at = len(list)
		case is && err == nil && i < len(list):
			at = list[i]
		default:
			at = inner(map[string]any{"at": at}, "at", key)
		}
	}
	return at
}

// loginBody is a login with a password. Without a domain or project, the request has none.
func loginBody(user, password, domain, project string) string {
	type object = map[string]any
	account, auth := object{"name": user, "password": password}, object{}
	if domain != "" {
		account["domain"] = object{"name": domain}
	}
	auth["identity"] = object{"methods": []string{"password"}, "password": object{"user": account}}
	if project != "" {
		auth["scope"] = object{"project": object{"name": project, "domain": object{"name": "Default"}}}
	}
	return encoded("auth", auth)
}

func encoded(key string, value map[string]any) string {
	b, _ := json.Marshal(map[string]any{key: value}) // only strings and maps
	return string(b)
}

// TestContract checks the answers on which the operator relies, among them to requests that are wrong or not allowed.
func TestContract(t *testing.T) {
	db := mariadb.Require(t, mariadb.Options{})
	cloud := fakecloudtest.New(t, db)
	if dir := os.Getenv(servicesVariable); dir != "" {
		for _, name := range []string{"keystone", "region"} {
			require.NoError(t, os.Symlink(filepath.Join(dir, name), filepath.Join(cloud.Dir, name)))
		}
	}
	options := cloud.Keystone(adminPassword)
	cloud.Start("keystone", "--auto-sync-table", "--config", cloud.Config("keystone", options)).Listening(t, options["port"].(int))
	c := &contract{rest: newREST(t, cloud), base: map[string]string{"keystone": cloud.AuthURL()}, saved: map[string]string{"unknown": "gAAAAAwrong"}}
	c.login(cloud.AuthURL(), "sysadmin", adminPassword)
	c.check(t, freshRows)
	for end := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if status, _, _ := c.call("GET", cloud.AuthURL()+"/services", ""); status == 200 || time.Now().After(end) {
			break
		}
	}
	other, err := pki.NewCA(time.Now(), "other", nil)
	require.NoError(t, err)
	one := string(cloud.CA.CertPEM())
	for name, cas := range map[string]string{"cert-one": one, "cert-two": one, "two-cas": one + string(other.CertPEM())} {
		pair, err := pki.Issue(cloud.CA, pki.Request{CommonName: name, NotBefore: time.Now(), Usage: pki.Client, Small: true})
		require.NoError(t, err)
		key, err := pair.KeyPEM()
		require.NoError(t, err)
		c.saved[name] = encoded("servicecertificate", map[string]any{
			"name": "etcd-" + name, "certificate": string(pair.CertPEM()), "private_key": string(key), "ca_certificate": cas,
		})
	}
	c.check(t, catalogRows)
	c.check(t, accountRows)
	t.Run("region", func(t *testing.T) {
		port := fakecloudtest.FreePort(t)
		c.base["region"] = fmt.Sprintf("https://localhost:%d", port)
		r := c.in(t)
		r.account(cloud.AuthURL(), "regionadmin", "region-pw")
		r.register(cloud.AuthURL(), "region2", "compute_v2", c.base["region"])
		cloud.Start("region", "--config", cloud.Config("region", cloud.Certificate("region"), cloud.Account("regionadmin", "region-pw"),
			map[string]any{"port": port, "sql_connection": cloud.Database("yunioncloud", "rg@pw"), "auto_sync_table": true})).Listening(t, port)
		c.check(t, regionRows)
	})
	require.NoError(t, db.Close())
	c.check(t, outageRows)
}

// freshRows are answers of a fresh identity service, in which the administrator may only write policies and roles.
var freshRows = []request{
	{as: "unknown", call: "GET keystone:/roles?name=admin", status: 403, refusal: "ForbiddenError"},
	{call: "GET keystone:/services", status: 403, refusal: "ForbiddenError"},
	{call: "GET keystone:/endpoints?limit=2048", status: 403, refusal: "ForbiddenError"},
	{call: "GET keystone:/users?system=true&admin=true&scope=system", status: 403, refusal: "ForbiddenError"},
	{call: "GET keystone:/role_assignments"},
	{call: "POST keystone:/regions", body: `{"region":{"id":"region0"}}`, status: 403, refusal: "ForbiddenError"},
	{call: "GET keystone:/policies/sysadmin", status: 404, refusal: "ResourceNotFoundError"},
	{call: "GET keystone:/roles?name=admin", holds: []string{"roles.#=1", "roles.0.name=admin"}},
	{call: "GET keystone:/roles?name=nothing", holds: []string{"roles.#=0"}},
	{call: "GET keystone:/rolepolicies?scope=system", status: 403, refusal: "ForbiddenError"},
	{call: "POST keystone:/policies", body: `{"policy":{"name":"sysadmin","type":"sysadmin","scope":"system","enabled":true,"is_system":true,"is_public":true,"blob":{"policy":{"*":"allow"}}}}`},
	{call: "POST keystone:/roles/admin/add-policy", body: `{"role":{"project_id":"system","policy_id":"sysadmin"}}`},
	{call: "POST keystone:/roles/admin/add-policy", body: `{"role":{"project_id":"system","policy_id":"sysadmin"}}`},
}

// catalogRows are answers about regions, services, endpoints, certificates, options, policies and roles.
var catalogRows = []request{
	{call: "POST keystone:/regions", body: `{"region":{"id":"region0"}}`},
	{call: "POST keystone:/regions", body: `{"region":{"id":"region0"}}`, status: 409, refusal: "DuplicateNameError"},
	{call: "POST keystone:/regions", body: `{"region":{}}`, status: 400, refusal: "InputParameterError"},
	{call: "GET keystone:/regions?limit=2048", holds: []string{"total=1", "regions.0.id=region0"}},
	{as: "none", call: "GET keystone:/services", status: 403, refusal: "ForbiddenError"},
	{as: "unknown", call: "GET keystone:/services", status: 403, refusal: "ForbiddenError"},
	{as: "unknown", call: "POST keystone:/services", body: `{"service":{"name":"glance","type":"image"}}`, status: 403, refusal: "ForbiddenError"},
	{call: "POST keystone:/services", body: `{"service":{"name":"glance","type":"image","enabled":true}}`, save: "glance"},
	{call: "POST keystone:/services", body: `{"service":{"name":"glance","type":"image","enabled":true}}`, status: 409, refusal: "DuplicateNameError"},
	{call: "POST keystone:/services", body: `{"service":{"name":"untyped"}}`, status: 400, refusal: "InputParameterError"},
	{call: "POST keystone:/services", body: `{"service":{"type":"unnamed"}}`, status: 400, refusal: "InputParameterError"},
	{call: "POST keystone:/services", body: `{"name":"bare","type":"image"}`, status: 400, refusal: "InputParameterError"},
	{call: "POST keystone:/services", body: `{"service":{"name":"glance2","type":"image"}}`, holds: []string{"service.enabled=true"}},
	{call: "GET keystone:/services/glance", holds: []string{"service.id=$glance$", "service.type=image"}},
	{call: "GET keystone:/services/$glance$", holds: []string{"service.name=glance"}},
	{call: "GET keystone:/services/nothing", status: 404, refusal: "ResourceNotFoundError"},
	{call: "GET keystone:/services/%C3%BCber%20x'%25", status: 404, refusal: "ResourceNotFoundError"},
	{call: "GET keystone:/services?name=glance", holds: []string{"services.#=1"}},
	{call: "GET keystone:/services?name=glan", holds: []string{"services.#=0"}},
	{call: "GET keystone:/services?name=gl%25", holds: []string{"services.#=0"}},
	{call: "GET keystone:/services?name='", holds: []string{"services.#=0"}},
	{call: "GET keystone:/services?limit=1", holds: []string{"services.#=1", "total=2"}},
	{call: "GET keystone:/services?limit=2048&offset=1", holds: []string{"services.#=1", "total=2"}},
	{call: "GET keystone:/services?limit=2048&offset=99", holds: []string{"services.#=0"}},
	{call: "PUT keystone:/services/$glance$", body: `{"service":{"enabled":false}}`, holds: []string{"service.enabled=false"}},
	{call: "PUT keystone:/services/$glance$", body: `{"service":{"enabled":true}}`, holds: []string{"service.enabled=true"}},
	{call: "PUT keystone:/services/nothing", body: `{"service":{"enabled":true}}`, status: 404, refusal: "ResourceNotFoundError"},
	{call: "DELETE keystone:/services/glance2", status: 400, refusal: "InvalidStatusError"},
	{call: "PUT keystone:/services/glance2", body: `{"service":{"enabled":false}}`},
	{call: "DELETE keystone:/services/glance2"},
	{call: "DELETE keystone:/services/glance2", status: 404, refusal: "ResourceNotFoundError"},
	{call: "PATCH keystone:/auth/tokens", status: 404, refusal: "NotFoundError"},
	{call: "GET keystone:/nothing", status: 404, refusal: "NotFoundError"},
	{call: "POST keystone:/endpoints", body: `{"endpoint":{"service_id":"$glance$","region_id":"region0","interface":"public","url":"https://a","enabled":true}}`, holds: []string{"endpoint.name=image-public"}, save: "public"},
	{call: "POST keystone:/endpoints", body: `{"endpoint":{"service_id":"$glance$","region_id":"region0","interface":"public","url":"https://a","enabled":true}}`, status: 409, refusal: "DuplicateNameError"},
	{call: "POST keystone:/endpoints", body: `{"endpoint":{"service_id":"$glance$","region_id":"elsewhere","interface":"public","url":"https://a","enabled":true}}`, status: 409, refusal: "DuplicateNameError"},
	{call: "POST keystone:/endpoints", body: `{"endpoint":{"service_id":"$glance$","region_id":"elsewhere","interface":"public","url":"https://a","enabled":false,"name":"second"}}`},
	{call: "POST keystone:/endpoints", body: `{"endpoint":{"service_id":"nothing","region_id":"region0","interface":"internal","url":"https://a"}}`, status: 404, refusal: "ResourceNotFoundError"},
	{call: "POST keystone:/endpoints", body: `{"endpoint":{"service_id":"glance","interface":"internal","url":"https://a"}}`, status: 400, refusal: "InputParameterError"},
	{call: "POST keystone:/endpoints", body: `{"endpoint":{"service_id":"glance","region_id":"region0","interface":"internal"}}`, status: 400, refusal: "InputParameterError"},
	{call: "POST keystone:/endpoints", body: `{"endpoint":{"service_id":"glance","region_id":"region0","url":"https://a"}}`, status: 400, refusal: "InputParameterError"},
	{call: "PUT keystone:/endpoints/$public$", body: `{"endpoint":{"url":"https://b"}}`, holds: []string{"endpoint.url=https://b", "endpoint.enabled=true"}},
	{call: "DELETE keystone:/endpoints/$public$", status: 400, refusal: "InvalidStatusError"},
	{call: "DELETE keystone:/services/glance", status: 406, refusal: "NotEmptyError"},
	{call: "PUT keystone:/endpoints/$public$", body: `{"endpoint":{"enabled":false}}`},
	{call: "DELETE keystone:/endpoints/$public$"},
	{call: "DELETE keystone:/endpoints/$public$", status: 404, refusal: "ResourceNotFoundError"},
	{call: "POST keystone:/services", body: `{"service":{"name":"etcd","type":"etcd","enabled":true}}`},
	{call: "POST keystone:/servicecertificates", body: `$cert-one$`, save: "one"},
	{call: "POST keystone:/servicecertificates", body: `$cert-one$`, status: 409, refusal: "DuplicateNameError"},
	{call: "POST keystone:/servicecertificates", body: `$cert-two$`, save: "two"},
	{call: "POST keystone:/servicecertificates", body: `{"servicecertificate":{"name":"bad","certificate":"x","private_key":"y","ca_certificate":"z"}}`, status: 400, refusal: "InputParameterError"},
	{call: "POST keystone:/servicecertificates", body: `$two-cas$`, status: 400, refusal: "InputParameterError"},
	{call: "GET keystone:/servicecertificates/etcd-cert-one", holds: []string{"servicecertificate.id=$one$"}},
	{call: "GET keystone:/servicecertificates/nothing", status: 404, refusal: "ResourceNotFoundError"},
	{call: "GET keystone:/servicecertificates?limit=2048", holds: []string{"total=2"}},
	{call: "POST keystone:/endpoints", body: `{"endpoint":{"service_id":"etcd","region_id":"region0","interface":"internal","url":"https://a","enabled":true,"service_certificate":"$one$"}}`, save: "etcd"},
	{call: "GET keystone:/endpoints/$etcd$", holds: []string{"endpoint.cert_id=$one$", "endpoint.service_certificate_id=<nil>"}},
	{call: "PUT keystone:/endpoints/$etcd$", body: `{"endpoint":{"service_certificate":"$two$"}}`, holds: []string{"endpoint.cert_id=$two$"}},
	{call: "GET keystone:/endpoints?name=etcd-internal&limit=2048", holds: []string{"endpoints.#=1", "endpoints.0.cert_id=$two$"}},
	{call: "DELETE keystone:/servicecertificates/$one$"},
	{call: "DELETE keystone:/servicecertificates/$one$", status: 404, refusal: "ResourceNotFoundError"},
	{call: "DELETE keystone:/servicecertificates/$two$"},
	{call: "GET keystone:/endpoints/$etcd$", holds: []string{"endpoint.enabled=true"}},
	{call: "GET keystone:/services/nothing/config", status: 404, refusal: "ResourceNotFoundError"},
	{call: "GET keystone:/services/glance/config", holds: []string{"service.config.default=<nil>"}},
	{call: "POST keystone:/services/glance/config", body: `{"service":{"action":"update","config":{"default":{"a":"1","port":"1","time_zone":"UTC"}}}}`, holds: []string{"service.config.default=map[a:1]"}},
	{call: "POST keystone:/services/glance/config", body: `{"service":{"action":"update","config":{"default":{"b":2}}}}`, holds: []string{"service.config.default=map[a:1 b:2]"}},
	{call: "GET keystone:/services/glance/config", holds: []string{"service.config.default=map[a:1 b:2]"}},
	{call: "POST keystone:/services/glance/config", body: `{"service":{"action":"remove","config":{"default":{"a":"1","nothing":"1"}}}}`, holds: []string{"service.config.default=map[b:2]"}},
	{call: "POST keystone:/services/glance/config", body: `{"service":{"config":{"default":{"c":true}}}}`, holds: []string{"service.config.default=map[c:true]"}},
	{call: "POST keystone:/services/nothing/config", body: `{"service":{"config":{"default":{"c":true}}}}`, status: 404, refusal: "ResourceNotFoundError"},
	{call: "POST keystone:/services", body: `{"service":{"name":"common","type":"common","enabled":true}}`},
	{call: "POST keystone:/services/common/config", body: `{"service":{"action":"update","config":{"default":{"a":"1","port":"1","api_server":"https://a"}}}}`, holds: []string{"service.config.default=map[api_server:https://a]"}},
	{call: "GET keystone:/policies/sysadmin", holds: []string{"policy.blob=map[policy:map[*:allow]]", "policy.scope=system"}},
	{call: "POST keystone:/policies", body: `{"policy":{"name":"p1","type":"p1","scope":"project","enabled":true,"is_system":true,"is_public":true,"blob":{"policy":{"compute":{"servers":"allow"}}}}}`, save: "p1"},
	{call: "POST keystone:/policies", body: `{"policy":{"name":"p1","type":"p1","scope":"project","blob":{"policy":{"compute":{"servers":"allow"}}}}}`, status: 409, refusal: "DuplicateNameError"},
	{call: "POST keystone:/policies", body: `{"policy":{"name":"p4","type":"p4","blob":{"policy":{"compute":7}}}}`, status: 400, refusal: "InputParameterError"},
	{call: "PUT keystone:/policies/$p1$", body: `{"policy":{"blob":{"policy":{"compute":{"servers":{"list":"allow"}}}}}}`, holds: []string{"policy.blob=map[policy:map[compute:map[servers:map[list:allow]]]]"}},
	{call: "PUT keystone:/policies/$p1$", body: `{"policy":{"scope":"system"}}`, holds: []string{"policy.scope=system"}},
	{call: "PUT keystone:/policies/nothing", body: `{"policy":{"scope":"system"}}`, status: 404, refusal: "ResourceNotFoundError"},
	{call: "POST keystone:/roles", body: `{"role":{"name":"r1","description":"d","is_public":true}}`, save: "r1"},
	{call: "POST keystone:/roles", body: `{"role":{"name":"r1"}}`, status: 409, refusal: "DuplicateNameError"},
	{call: "POST keystone:/roles", body: `{"role":{}}`, status: 400, refusal: "InputParameterError"},
	{call: "PUT keystone:/roles/$r1$", body: `{"role":{"description":"e"}}`, holds: []string{"role.description=e"}},
	{call: "POST keystone:/roles/$r1$/add-policy", body: `{"role":{"project_id":"","policy_id":"$p1$"}}`},
	{call: "POST keystone:/roles/$r1$/add-policy", body: `{"role":{"project_id":"","policy_id":"$p1$"}}`},
	{call: "POST keystone:/roles/nothing/add-policy", body: `{"role":{"policy_id":"$p1$"}}`, status: 404, refusal: "ResourceNotFoundError"},
	{call: "GET keystone:/rolepolicies?scope=system", holds: []string{"total=2"}},
}

// accountRows are answers about logins, users and their roles.
var accountRows = []request{
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("sysadmin", adminPassword, "Default", "system"), holds: []string{"token.user.name=sysadmin", "token.user.domain.id=default", "token.project.name=system"}},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("sysadmin", adminPassword, "", "system")},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("sysadmin", "wrong", "Default", "system"), status: 401, refusal: "WrongPassword"},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("sysadmin", "", "Default", "system"), status: 401, refusal: "WrongPassword"},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("nobody", adminPassword, "Default", "system"), status: 404, refusal: "UserNotFound"},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("sysadmin", adminPassword, "Nowhere", "system"), status: 404, refusal: "UserNotFound"},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("sysadmin", adminPassword, "Default", "nothing"), status: 401, refusal: "UnauthorizedError"},
	{as: "none", call: "POST keystone:/auth/tokens", body: `{}`, status: 401, refusal: "UnauthorizedError"},
	{as: "none", call: "POST keystone:/auth/tokens", body: `{"auth":{"identity":{"methods":["token"],"token":{"id":"wrong"}}}}`, status: 401, refusal: "UnauthorizedError"},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("sysadmin", adminPassword, "Default", ""), holds: []string{"token.project.id=<nil>"}, save: "unscoped"},
	{as: "unscoped", call: "GET keystone:/services", status: 403, refusal: "ForbiddenError"},
	{call: "POST keystone:/users", body: `{"user":{"name":"alice","password":"Alice@1234"}}`, holds: []string{"user.enabled=true", "user.allow_web_console=true", "user.domain_id=default", "user.password=<nil>"}, save: "alice"},
	{call: "POST keystone:/users", body: `{"user":{"name":"alice","password":"Alice@1234"}}`, status: 409, refusal: "DuplicateNameError"},
	{call: "POST keystone:/users", body: `{"user":{"name":"weak","password":"abc"}}`, status: 400, refusal: "WeakPasswordError"},
	{call: "POST keystone:/users", body: `{"user":{"password":"Alice@1234"}}`, status: 400, refusal: "InputParameterError"},
	{call: "POST keystone:/users", body: `{"user":{"name":"glance","password":"Alice@1234","is_system_account":true,"allow_web_console":false}}`, save: "account"},
	{call: "POST keystone:/users", body: `{"user":{"name":"unset"}}`},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("unset", "Alice@1234", "Default", ""), status: 401, refusal: "UnauthorizedError"},
	{call: "GET keystone:/users/glance", holds: []string{"user.id=$account$", "user.is_system_account=true"}},
	{call: "GET keystone:/users/nobody", status: 404, refusal: "ResourceNotFoundError"},
	{call: "GET keystone:/users", holds: []string{"total=2"}},
	{call: "GET keystone:/users?system=true&admin=true&scope=system", holds: []string{"total=4"}},
	{call: "PUT keystone:/users/$account$", body: `{"user":{"is_system_account":false,"allow_web_console":true}}`, holds: []string{"user.is_system_account=false", "user.allow_web_console=true"}},
	{call: "PUT keystone:/users/$account$", body: `{"user":{"is_system_account":true,"allow_web_console":false,"enabled":true,"password":"Other@1234"}}`},
	{call: "PATCH keystone:/users/$account$", body: `{"user":{"allow_web_console":true}}`, holds: []string{"user.allow_web_console=true"}},
	{call: "PUT keystone:/users/nobody", body: `{"user":{"enabled":true}}`, status: 404, refusal: "ResourceNotFoundError"},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("glance", "Alice@1234", "Default", ""), status: 401, refusal: "WrongPassword"},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("glance", "Other@1234", "Default", "")},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("glance", "Other@1234", "Default", "system"), status: 401, refusal: "UnauthorizedError"},
	{call: "PUT keystone:/projects/system/users/$account$/roles/admin", body: `{}`},
	{call: "PUT keystone:/projects/system/users/$account$/roles/admin", body: `{}`},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("glance", "Other@1234", "Default", "system")},
	{call: "PUT keystone:/projects/system/users/nobody/roles/admin", body: `{}`, status: 404, refusal: "ResourceNotFoundError"},
	{call: "PUT keystone:/projects/system/users/$account$/roles/nothing", body: `{}`, status: 404, refusal: "ResourceNotFoundError"},
	{call: "PUT keystone:/projects/nothing/users/$account$/roles/admin", body: `{}`, status: 404, refusal: "ResourceNotFoundError"},
	{call: "GET keystone:/role_assignments?include_system=true&include_names=true&limit=2048", holds: []string{"total=2", "role_assignments.0.role.name=admin", "role_assignments.0.scope.project.name=system"}},
	{call: "POST keystone:/projects", body: `{"project":{"name":"dev"}}`},
	{call: "POST keystone:/projects", body: `{"project":{"name":"dev"}}`, status: 409, refusal: "DuplicateNameError"},
	{call: "PUT keystone:/projects/dev/users/$alice$/roles/$r1$", body: `{}`},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("alice", "Alice@1234", "Default", "dev"), save: "member"},
	{as: "member", call: "GET keystone:/services", status: 403, refusal: "ForbiddenError"},
	{as: "member", call: "POST keystone:/users", body: `{"user":{"name":"mallory","password":"Alice@1234"}}`, status: 403, refusal: "ForbiddenError"},
	{as: "member", call: "PUT keystone:/users/$account$", body: `{"user":{"enabled":false}}`, status: 403, refusal: "ForbiddenError"},
	{as: "member", call: "GET keystone:/services/glance/config", status: 403, refusal: "ForbiddenError"},
	{as: "member", call: "POST keystone:/services/glance/config", body: `{"service":{"config":{"default":{"x":"1"}}}}`, status: 403, refusal: "ForbiddenError"},
	{as: "member", call: "POST keystone:/endpoints", body: `{"endpoint":{"service_id":"glance","region_id":"region0","interface":"internal","url":"https://a"}}`, status: 403, refusal: "ForbiddenError"},
	{call: "PUT keystone:/users/$alice$", body: `{"user":{"enabled":false}}`},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("alice", "Alice@1234", "Default", "dev"), status: 423, refusal: "UserDisabled"},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("alice", "wrong", "Default", "dev"), status: 423, refusal: "UserDisabled"},
	{as: "member", call: "GET keystone:/services", status: 403, refusal: "ForbiddenError"},
	{call: "POST keystone:/domains", body: `{"domain":{"name":"d1","enabled":true}}`, save: "d1"},
	{call: "POST keystone:/users", body: `{"user":{"name":"carol","password":"Alice@1234","domain_id":"$d1$"}}`, holds: []string{"user.domain_id=$d1$"}},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("carol", "Alice@1234", "d1", "")},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("carol", "Alice@1234", "Default", ""), status: 404, refusal: "UserNotFound"},
	{call: "PUT keystone:/domains/$d1$", body: `{"domain":{"enabled":false}}`},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("carol", "Alice@1234", "d1", ""), status: 401, refusal: "UnauthorizedError"},
}

// regionRows are answers of region.
var regionRows = []request{
	{as: "none", call: "GET region:/zones", status: 403, refusal: "ForbiddenError"},
	{as: "unknown", call: "GET region:/zones", status: 403, refusal: "ForbiddenError"},
	{as: "member", call: "POST region:/zones", body: `{"zone":{"name":"zone9"}}`, status: 403, refusal: "ForbiddenError"},
	{call: "GET region:/zones?limit=1", holds: []string{"zones.#=0"}},
	{call: "GET region:/zones/zone0", status: 404, refusal: "ResourceNotFoundError"},
	{call: "POST region:/zones", body: `{"zone":{"name":"zone0"}}`},
	{call: "POST region:/zones", body: `{"zone":{"name":"zone0"}}`, status: 409, refusal: "DuplicateNameError"},
	{call: "POST region:/zones", body: `{"zone":{}}`, status: 400, refusal: "InputParameterError"},
	{call: "GET region:/zones/zone0", holds: []string{"zone.name=zone0"}},
	{call: "GET region:/wires/bcast0", status: 404, refusal: "ResourceNotFoundError"},
	{call: "POST region:/zones/zone0/wires", body: `{"wire":{"name":"bcast0","bandwidth":1000,"vpc":"default"}}`},
	{call: "POST region:/zones/zone0/wires", body: `{"wire":{"name":"bcast0","bandwidth":1000,"vpc":"default"}}`, status: 409, refusal: "DuplicateNameError"},
	{call: "POST region:/zones/zone9/wires", body: `{"wire":{"name":"bcast1","bandwidth":1000,"vpc":"default"}}`, status: 404, refusal: "ResourceNotFoundError"},
	{call: "POST region:/zones/zone0/wires", body: `{"wire":{"name":"bcast2","bandwidth":1000,"vpc":"nothing"}}`, status: 404, refusal: "ResourceNotFoundError"},
	{call: "POST region:/zones/zone0/wires", body: `{"wire":{"name":"bcast3","vpc":"default"}}`, status: 400, refusal: "InputParameterError"},
	{call: "GET region:/wires/bcast0", holds: []string{"wire.name=bcast0"}},
	{call: "POST region:/schedtags", body: `{"schedtag":{"name":"same_project","default_strategy":"prefer","description":"x"}}`, save: "tag"},
	{call: "POST region:/schedtags", body: `{"schedtag":{"name":"same_project","default_strategy":"prefer","description":"x"}}`, status: 409, refusal: "DuplicateNameError"},
	{call: "POST region:/dynamicschedtags", body: `{"dynamicschedtag":{"name":"d","schedtag":"$tag$","condition":"a == b","enabled":true}}`},
	{call: "POST region:/dynamicschedtags", body: `{"dynamicschedtag":{"name":"e","schedtag":"nothing","condition":"a == b"}}`, status: 404, refusal: "ResourceNotFoundError"},
	{call: "POST region:/hosts", body: `{"host":{"name":"n1","access_ip":"10.1.2.3","manager_uri":"https://10.1.2.3:8885"}}`, status: 400, refusal: "InputParameterError"},
	{call: "POST region:/hosts", body: `{"host":{"name":"n1","access_ip":"10.1.2.3","access_mac":"00:22:0a:01:02:03","manager_uri":"https://10.1.2.3:8885"}}`,
		holds: []string{"host.enabled=false", "host.access_mac=00:22:0a:01:02:03"}},
	{call: "POST region:/hosts", body: `{"host":{"name":"n2","access_ip":"10.1.2.4","access_mac":"00:22:0a:01:02:03","manager_uri":"https://10.1.2.4:8885"}}`, status: 409, refusal: "ConflictError"},
	{call: "POST region:/hosts", body: `{"host":{"name":"n2","access_ip":"10.1.2.4","access_mac":"00:22:0a:01:02:04","manager_uri":"https://10.1.2.3:8885"}}`, status: 409, refusal: "ConflictError"},
	{call: "GET region:/hosts?any_mac=00:22:0a:01:02:03", holds: []string{"hosts.#=1", "hosts.0.name=n1"}},
	{call: "GET region:/hosts?any_mac=00:22:0a:01:02:04", holds: []string{"hosts.#=0"}},
	{call: "GET region:/nothing", status: 404, refusal: "NotFoundError"},
}

// outageRows are answers of an identity service that cannot reach its database.
var outageRows = []request{
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("sysadmin", adminPassword, "Default", "system"), status: 401, refusal: "UnauthorizedError"},
	{as: "none", call: "POST keystone:/auth/tokens", body: loginBody("sysadmin", "wrong", "Default", "system"), status: 401, refusal: "UnauthorizedError"},
	{call: "GET keystone:/services", status: 403, refusal: "ForbiddenError"},
}
