// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/test/fakecloud/fakecloudtest"
	"yunion.io/x/ocadm/test/mariadb"
	"yunion.io/x/ocadm/test/require"
)

func TestCloud(t *testing.T) {
	c := fakecloudtest.New(t, mariadb.Require(t, mariadb.Options{}))
	options := c.Keystone(adminPassword)
	conf := c.Config("keystone", options)

	fresh := c.Start("keystone", "--config", conf)
	if code := fresh.Wait(); code != 1 || !strings.Contains(fresh.Output(), "database schema not in sync!") {
		t.Fatalf("empty database without sync: exit %d, %s", code, fresh.Output())
	}
	initial := c.Start("keystone", "--config", conf, "--auto-sync-table", "--exit-after-db-init")
	if code := initial.Wait(); code != 0 {
		t.Fatalf("database init: exit %d, %s", code, initial.Output())
	}
	keystone := c.Start("keystone", "--config", conf).Listening(t, options["port"].(int))
	auth := c.AuthURL()
	r := newREST(t, c)

	t.Run("errors", func(t *testing.T) {
		r := newREST(t, c)
		for _, tc := range []struct {
			user, password, class string
			status                int
		}{
			{"sysadmin", "wrong", "WrongPassword", http.StatusUnauthorized},
			{"nobody", "x", "UserNotFound", http.StatusNotFound},
		} {
			if got := r.login(auth, tc.user, tc.password); got != tc.status {
				t.Errorf("login as %s: got %d, want %d", tc.user, got, tc.status)
			}
		}
		r.want(http.StatusForbidden, http.MethodGet, auth+"/services", "")
		r.want(http.StatusNotFound, http.MethodGet, auth+"/nothing", "")
		r.want(http.StatusNotFound, http.MethodPatch, auth+"/auth/tokens", "")
	})
	r.bootstrap(auth)
	r.register(auth, "keystone", "identity", auth)
	common := r.register(auth, "common", "common", "")
	r.want(http.StatusOK, http.MethodPost, auth+"/services/common/config", `{"service":{"config":{"default":{"api_server":"https://lb"}}}}`)
	r.want(http.StatusNotFound, http.MethodGet, auth+"/services/none", "")
	if list := r.want(http.StatusOK, http.MethodGet, auth+"/services?name=none", ""); len(list["services"].([]any)) != 0 {
		t.Errorf("filter by name: %v", list)
	}
	if got := inner(r.want(http.StatusOK, http.MethodGet, auth+"/services/"+common+"/config", ""), "service", "config", "default", "api_server"); got != "https://lb" {
		t.Errorf("stored api_server is %v", got)
	}
	t.Run("ping", func(t *testing.T) { testPing(t, c, fmt.Sprintf("https://localhost:%d", options["port"])) })
	t.Run("region", func(t *testing.T) { testRegion(t, c, r) })
	t.Run("others", func(t *testing.T) { testOthers(t, c, r) })
	t.Run("nodes", func(t *testing.T) { testNodes(t, c, r) })
	t.Run("releases", func(t *testing.T) { testReleases(t, c, r) })
	t.Run("refusals", func(t *testing.T) { testRefusals(t, c) })

	t.Run("restart and replica", func(t *testing.T) {
		second := c.Keystone(adminPassword + "2")
		second["port"] = fakecloudtest.FreePort(t)
		c.Start("keystone", "--config", c.Config("second", second)).Listening(t, second["port"].(int))
		other := fmt.Sprintf("https://localhost:%d/v3", second["port"])
		r.want(http.StatusOK, http.MethodGet, other+"/services", "")
		if got := newREST(t, c).login(auth, "sysadmin", adminPassword); got != http.StatusUnauthorized {
			t.Errorf("old password after reset: %d", got)
		}
		if got := newREST(t, c).login(other, "sysadmin", adminPassword+"2"); got != http.StatusOK {
			t.Errorf("new password after reset: %d", got)
		}
		began := time.Now()
		if code := keystone.Stop(); code != 0 || !strings.Contains(keystone.Output(), "Service stopped.") {
			t.Errorf("SIGTERM: exit %d, %s", code, keystone.Output())
		}
		t.Logf("stopped in %s", time.Since(began))
	})
}

func testPing(t *testing.T, c *fakecloudtest.Cloud, base string) {
	r := newREST(t, c)
	r.want(http.StatusForbidden, http.MethodGet, base+"/ping", "")
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, base+"/ping", nil)
	require.NoError(t, err)
	request.Header.Set("User-Agent", "kube-probe/1.36")
	response, err := r.http.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); response.StatusCode != http.StatusOK || string(body) != "pong" {
		t.Errorf("probe: %d %s", response.StatusCode, body)
	}
}

func testRegion(t *testing.T, c *fakecloudtest.Cloud, r *rest) {
	r = r.in(t)
	auth, port := c.AuthURL(), fakecloudtest.FreePort(t)
	base := fmt.Sprintf("https://localhost:%d", port)
	r.account(auth, "regionadmin", "region-pw")
	options := c.Certificate("region")
	dsn := map[string]any{"port": port, "sql_connection": c.Database("yunioncloud", "rg@pw"), "auto_sync_table": true, "default_bandwidth": 1000}
	conf := c.Config("region", options, c.Account("regionadmin", "region-pw"), dsn)
	early := c.Start("region", "--config", conf)
	if code := early.Wait(); code != 1 || !strings.Contains(early.Output(), "No such service compute_v2") {
		t.Fatalf("region before its service: exit %d, %s", code, early.Output())
	}
	r.register(auth, "region2", "compute_v2", base)
	first := c.Start("region", "--config", conf, "--auto-sync-table", "--exit-after-db-init")
	if code := first.Wait(); code != 0 {
		t.Fatalf("region init: exit %d, %s", code, first.Output())
	}
	region := c.Start("region", "--config", conf).Listening(t, port)
	r.want(http.StatusOK, http.MethodPost, base+"/zones", `{"zone":{"name":"zone0"}}`)
	r.want(http.StatusConflict, http.MethodPost, base+"/zones", `{"zone":{"name":"zone0"}}`)
	r.want(http.StatusOK, http.MethodPost, base+"/zones/zone0/wires", `{"wire":{"name":"bcast0","bandwidth":1000,"vpc":"default"}}`)
	tag := r.want(http.StatusOK, http.MethodPost, base+"/schedtags", `{"schedtag":{"name":"same_project","default_strategy":"prefer"}}`)
	r.want(http.StatusOK, http.MethodPost, base+"/dynamicschedtags", fmt.Sprintf(`{"dynamicschedtag":{"name":"same_cloudprovider_project",
		"schedtag":%q,"condition":"host.cloudprovider.tenant_id == server.owner_tenant_id","enabled":true}}`, inner(tag, "schedtag", "id")))
	newREST(t, c).want(http.StatusForbidden, http.MethodGet, base+"/zones", "")
	if code := region.Stop(); code != 0 {
		t.Errorf("SIGTERM: exit %d", code)
	}

	dsn["default_bandwidth"] = 2000
	again := c.Start("region", "--config", c.Config("region", options, c.Account("regionadmin", "region-pw"), dsn)).Listening(t, port)
	if !strings.Contains(again.Output(), `Options changed: {"default_bandwidth":[2000,1000]}`) {
		t.Errorf("stored options do not win: %s", again.Output())
	}
	if zones := r.want(http.StatusOK, http.MethodGet, base+"/zones", "")["zones"].([]any); len(zones) != 1 {
		t.Errorf("zones after a restart: %v", zones)
	}
	scheduler := fakecloudtest.FreePort(t)
	r.register(auth, "scheduler", "scheduler", fmt.Sprintf("https://localhost:%d", scheduler))
	delete(dsn, "default_bandwidth")
	c.Start("scheduler", "--exit-after-db-init", "--config", c.Config("scheduler", c.Certificate("scheduler"), c.Account("regionadmin", "region-pw"),
		dsn, map[string]any{"port": nil, "auto_sync_table": nil, "scheduler_port": scheduler})).Listening(t, scheduler)
	id := inner(r.want(http.StatusOK, http.MethodPost, base+"/servers", `{"server":{"name":"vm0"}}`), "server", "id")
	deadline := time.Now().Add(30 * time.Second)
	for {
		status := inner(r.want(http.StatusOK, http.MethodGet, fmt.Sprintf("%s/servers/%s", base, id), ""), "server", "status")
		if status == "sched_fail" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("server stays %v: %s", status, again.Output())
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func testOthers(t *testing.T, c *fakecloudtest.Cloud, r *rest) {
	r = r.in(t)
	auth := c.AuthURL()
	database := func(name string) map[string]any {
		return map[string]any{"sql_connection": c.Database(name, name+"-pw"), "auto_sync_table": true}
	}
	run := func(name, component, service, kind, suffix string, options ...map[string]any) string {
		port := fakecloudtest.FreePort(t)
		base := fmt.Sprintf("https://localhost:%d%s", port, suffix)
		r.register(auth, service, kind, base)
		r.account(auth, component+"-user", "pw-"+component)
		groups := append([]map[string]any{c.Certificate(component), c.Account(component+"-user", "pw-"+component), {"port": port}}, options...)
		c.Start(name, "--config", c.Config(name, groups...)).Listening(t, port)
		return base
	}
	glance := run("glance", "glance", "glance", "image", "/v1", database("glance"), map[string]any{"filesystem_store_datadir": filepath.Join(c.Dir, "images")})
	r.want(http.StatusOK, http.MethodPost, glance+"/images", `{"image":{"name":"cirros"}}`)
	logger := run("logger", "logger", "log", "log", "", database("yunionlogger"))
	r.want(http.StatusOK, http.MethodGet, logger+"/actions?limit=1", "")
	conf := run("yunionconf", "yunionconf", "yunionconf", "yunionconf", "", database("yunionconf"))
	parameter := `{"parameter":{"name":"global-settings","service_id":"yunionagent","value":{"setupKeys":["default"]}}}`
	r.want(http.StatusOK, http.MethodPost, conf+"/parameters", parameter)
	r.want(http.StatusConflict, http.MethodPost, conf+"/parameters", parameter)
	list := r.want(http.StatusOK, http.MethodGet, conf+"/parameters?name=global-settings&scope=system", "")
	if len(list["parameters"].([]any)) != 1 {
		t.Errorf("parameters: %v", list)
	}

	gateway := run("apigateway", "apigateway", "yunionapi", "yunionapi", "", map[string]any{"ws_port": fakecloudtest.FreePort(t), "show_captcha": true})
	regions := r.want(http.StatusOK, http.MethodGet, gateway+"/api/v1/auth/regions", "")
	if regions["api_server"] != "https://lb" || fmt.Sprint(regions["regions"]) != "[region0]" {
		t.Errorf("regions: %v", regions)
	}
	login := func(user, password string) (int, map[string]any, http.Header) {
		return r.call(http.MethodPost, gateway+"/api/v1/auth/login", fmt.Sprintf(`{"username":%q,"password":%q}`, user,
			base64.StdEncoding.EncodeToString([]byte(password))))
	}
	if status, answer, _ := login("sysadmin", adminPassword); status != http.StatusForbidden || answer["details"] != "user forbidden login from web" {
		t.Errorf("sysadmin at the gateway: %d %v", status, answer)
	}
	if status, _, _ := login("sysadmin", "wrong"); status != http.StatusUnauthorized {
		t.Errorf("wrong password at the gateway: %d", status)
	}
	testGatewayPasswords(t, r, gateway)
	testTemplates(t, r, run("devtool", "devtool", "devtool", "devtool", "", database("devtool")))
	r.want(http.StatusBadRequest, http.MethodPost, auth+"/users", `{"user":{"name":"alice","password":"Alice"}}`)
	user := r.want(http.StatusOK, http.MethodPost, auth+"/users", `{"user":{"name":"alice","password":"Alice@1"}}`)
	r.want(http.StatusOK, http.MethodPut, fmt.Sprintf("%s/projects/system/users/%s/roles/admin", auth, inner(user, "user", "id")), `{}`)
	status, answer, _ := login("alice", "Alice@1")
	if status != http.StatusOK || answer["token"] == nil {
		t.Fatalf("alice at the gateway: %d %v", status, answer)
	}
	alice := newREST(t, c)
	alice.want(http.StatusUnauthorized, http.MethodGet, gateway+"/api/v2/images", "")
	alice.token = answer["token"].(string)
	if images := alice.want(http.StatusOK, http.MethodGet, gateway+"/api/v2/images", "")["images"].([]any); len(images) != 1 {
		t.Errorf("images through the gateway: %v", images)
	}
	env := []string{"OS_AUTH_URL=" + auth, "OS_USERNAME=sysadmin", "OS_PASSWORD=" + adminPassword, "OS_PROJECT_NAME=system",
		"OS_REGION_NAME=region0", "YUNION_INSECURE=true"}
	c.StartEnv(env, "climc", "sleep").Says(t, "climc is up").Stop()
	climc := c.StartEnv(append(env, "OS_REGION_NAME=nowhere"), "climc", "sleep")
	if code := climc.Wait(); code == 0 || !strings.Contains(climc.Output(), "no endpoint of compute_v2") {
		t.Errorf("climc stays up without region: exit %d\n%s", code, climc.Output())
	}
}

func testRefusals(t *testing.T, c *fakecloudtest.Cloud) {
	account := c.Account("logger-user", "pw-logger")
	database := map[string]any{"sql_connection": c.Database("yunionlogger", "yunionlogger-pw"), "auto_sync_table": true, "port": 1}
	for _, tc := range []struct {
		name, program string
		options       []map[string]any
		args          []string
		want          string
	}{
		{"certificate of another", "logger", []map[string]any{c.Certificate("glance"), account, database}, nil, "does not name default-logger, default-logger.onecloud, default-logger.onecloud.svc"},
		{"unknown key", "logger", []map[string]any{c.Certificate("logger"), account, database, {"requst_worker_count": 8}}, nil, `unknown option "requst_worker_count"`},
		{"wrong type", "logger", []map[string]any{account, database, {"port": "many"}}, nil, "Parse configuration file: Misformated line: address: 127.0.0.1"},
		{"no key file", "logger", []map[string]any{c.Certificate("logger"), account, database, {"ssl_keyfile": "/nowhere/service.key"}}, nil, "/nowhere/service.key: no such file"},
		{"wrong password", "logger", []map[string]any{account, database, c.Certificate("logger"), {"admin_password": "x"}}, nil, "401 WrongPassword"},
		{"no such user", "logger", []map[string]any{account, database, c.Certificate("logger"), {"admin_user": "x"}}, nil, "404 UserNotFound"},
		{"keystone down", "logger", []map[string]any{account, database, c.Certificate("logger"), {"auth_url": "https://localhost:1/v3"}}, nil, "connection refused"},
		{"unverified keystone", "logger", []map[string]any{account, database, {"ssl_ca_certs": ""}}, nil, "certificate signed by unknown authority"},
		{"wrong database password", "logger", []map[string]any{account, database, c.Certificate("logger"), {"sql_connection": strings.Replace(database["sql_connection"].(string), "-pw@", "-px@", 1)}}, nil, "database schema not in sync!"},
		{"colon in password", "logger", []map[string]any{account, database, c.Certificate("logger"), {"sql_connection": strings.Replace(database["sql_connection"].(string), "-pw@", "-p:w@", 1)}}, nil, "cannot be split"},
		{"no database, sync", "apigateway", []map[string]any{account}, []string{"--auto-sync-table"}, "Unknown optional argument --auto-sync-table"},
		{"small key", "apigateway", []map[string]any{account, c.SmallCertificate("apigateway")}, nil, "decodePrivateKey: not an RSA key"},
		{"no datadir", "glance", []map[string]any{account, database, c.Certificate("glance")}, nil, "missing FilesystemStoreDatadir"},
		{"monitor without tsdb", "monitor", []map[string]any{account, database, c.Certificate("monitor")}, nil, "no endpoint of victoria-metrics or influxdb"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := c.Start(tc.program, append([]string{"--config", c.Config("refused", tc.options...)}, tc.args...)...)
			if code := p.Wait(); code != 1 || !strings.Contains(p.Output(), tc.want) {
				t.Errorf("exit %d, want 1 with %q:\n%s", code, tc.want, p.Output())
			}
		})
	}
	options := map[string]any{"port": 1, "sql_connection": c.Database("yunioncloud", "rg@pw"), "auto_sync_table": true}
	conf := c.Config("refused", options, c.Account("regionadmin", "region-pw"), c.Certificate("region"))
	unable := exec.CommandContext(t.Context(), "setpriv", "--bounding-set=-net_raw", "--inh-caps=-all", filepath.Join(c.Dir, "region"), "--config", conf)
	unable.Env = append(os.Environ(), "STANDIN_CLUSTER="+fakecloudtest.Cluster, "STANDIN_NAMESPACE="+fakecloudtest.Namespace)
	if out, err := unable.CombinedOutput(); os.Geteuid() == 0 && (err == nil || !strings.Contains(string(out), "which needs NET_RAW")) {
		t.Errorf("region without NET_RAW: %v\n%s", err, out)
	}
	missing := c.Start("logger", "--config", "/nowhere/logger.conf")
	if code := missing.Wait(); code != 1 {
		t.Errorf("missing file: exit %d", code)
	}
}
