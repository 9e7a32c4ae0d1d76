// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster/restapi"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

func TestAPI(t *testing.T) {
	f := newAPITest(t, func(o *restapi.Options) { o.Rate, o.Burst = 1000, 1000 }) // TestAPIRate has the limit
	f.rights()
	f.once()
	f.versions()
	f.pages()
	f.secrets()
	f.verbs()
	f.follows()
	f.bad()
}

func (f *apiTest) rights() {
	f.Helper()
	if r := f.ask("", "GET", "clouds", "", 401, "OCA-7615"); r.header.Get("Www-Authenticate") != "Bearer" {
		f.Errorf("%v", r.header)
	}
	f.ask("", "GET", "clouds", "", 401, "OCA-7615", "Authorization", "Bearer x.y.z")
	for _, path := range []string{"clouds", "operations/x", "machines", "events", "operations/x/log", "clouds/default/releases"} {
		f.ask("stranger", "GET", path, "", 403, "OCA-7616")
	}
	f.ask("reader", "POST", "machines", machineBody("a"), 403, "OCA-7616")
	f.ask("reader", "POST", "clouds/default/rollback", `{}`, 403, "OCA-7616")
	f.ask("reader", "GET", "machines", "", 200, "")
	f.ask("reader", "GET", "clouds/none", "", 404, "OCA-7620")
}

// once checks that a request repeated with its key creates nothing more, and that a different request with that key is refused.
func (f *apiTest) once() {
	f.Helper()
	first := f.ask("writer", "POST", "machines", machineBody("one"), 201, "", "Idempotency-Key", "k1")
	again := f.ask("writer", "POST", "machines", machineBody("one"), 200, "", "Idempotency-Key", "k1")
	if first.Metadata.UID == "" || again.Metadata.UID != first.Metadata.UID || strings.Contains(first.text, "idempotency") {
		f.Errorf("%s\n%s", first.text, again.text)
	}
	if other := f.newToken("writer"); other == f.tokens["writer"] { // tokens are renewed
		f.Error("the token is no other one")
	} else if later := f.ask("", "POST", "machines", machineBody("one"), 200, "", "Idempotency-Key", "k1", "Authorization", "Bearer "+other); later.Metadata.UID != first.Metadata.UID {
		f.Errorf("with another token: %s", later.text)
	}
	f.ask("writer", "POST", "machines", machineBody("one"), 409, "OCA-7618")
	f.ask("writer", "POST", "machines", strings.Replace(machineBody("one"), "fleet", "other", 1), 409, "OCA-7618", "Idempotency-Key", "k1")
	f.ask("writer", "POST", "machines", machineBody("one"), 409, "OCA-7618", "Idempotency-Key", "k2")
}

func (f *apiTest) versions() {
	f.Helper()
	r := f.ask("reader", "GET", "machines/one", "", 200, "")
	etag := r.header.Get("Etag")
	f.ask("reader", "GET", "machines/one", "", 304, "", "If-None-Match", etag)
	labelled := strings.Replace(machineBody("one"), `"name":"one"`, `"labels":{"rack":"r1"}`, 1)
	f.ask("writer", "PUT", "machines/one", labelled, 428, "OCA-7617")
	changed := f.ask("writer", "PUT", "machines/one", labelled, 200, "", "If-Match", etag)
	if changed.header.Get("Etag") == etag || !strings.Contains(changed.text, `"rack":"r1"`) {
		f.Errorf("%v %s", changed.header, changed.text)
	}
	f.ask("writer", "PUT", "machines/one", machineBody("one"), 412, "OCA-7617", "If-Match", etag)
	patched := f.ask("writer", "PATCH", "machines/one", `{"metadata":{"labels":{"rack":null,"row":"7"}}}`, 200, "", "If-Match", changed.header.Get("Etag"))
	if !strings.Contains(patched.text, `"row":"7"`) || strings.Contains(patched.text, "r1") {
		f.Errorf("%s", patched.text)
	}
	f.ask("writer", "PATCH", "machines/one", `{"metadata":{"labels":{"row":"8"}}}`, 412, "OCA-7617", "If-Match", etag)
	for _, none := range []string{`"none"`, `"0"`, `"1", "2"`} { // no version of anything
		f.ask("writer", "PUT", "machines/one", labelled, 412, "OCA-7617", "If-Match", none)
		f.ask("writer", "PATCH", "machines/one", `{"metadata":{"labels":{"row":"8"}}}`, 412, "OCA-7617", "If-Match", none)
		f.ask("writer", "DELETE", "machines/one", "", 412, "OCA-7617", "If-Match", none)
	}
	// A misspelt field is not silently ignored.
	now := patched.header.Get("Etag")
	f.unknown(f.ask("writer", "PATCH", "machines/one", `{"spec":{"labels":{},"taint":[]}}`, 400, "OCA-7621"), "spec.taint")
	f.unknown(f.ask("writer", "PUT", "machines/one", strings.Replace(labelled, `"spec":{`, `"spec":{"taint":[],`, 1), 400, "OCA-7621", "If-Match", now), "spec.taint")
	f.unknown(f.ask("writer", "POST", "machines", strings.Replace(machineBody("two"), `"ssh":{`, `"ssh":{"nickname":"x",`, 1), 400, "OCA-7621"), "nickname")
	if got := f.ask("reader", "GET", "machines/one", "", 200, "").header.Get("Etag"); got != now {
		f.Errorf("a refused request has changed the machine: %s, was %s", got, now)
	}
	f.ask("writer", "PATCH", "machines/one", `{"spec":{"cloud":"***"}}`, 422, "OCA-7621")
	f.ask("writer", "PATCH", "machines/one", `{"spec":{"cloud":7}}`, 422, "OCA-7621")
	f.ask("writer", "PATCH", "machines/none", `{}`, 404, "OCA-7620")
	f.ask("reader", "PATCH", "machines/one", `{}`, 403, "OCA-7616")
	changed = patched
	f.ask("writer", "DELETE", "machines/one", "", 412, "OCA-7617", "If-Match", etag)
	f.ask("writer", "DELETE", "machines/one", "", 202, "", "If-Match", changed.header.Get("Etag"))
	f.ask("writer", "DELETE", "machines/one", "", 404, "OCA-7620")
}

func (f *apiTest) pages() {
	f.Helper()
	var want, got []string
	for _, name := range []string{"p1", "p2", "p3", "p4", "p5"} {
		f.ask("writer", "POST", "machines", machineBody(name), 201, "")
		want = append(want, name)
	}
	pages := 0
	for next := "start"; next != ""; pages++ {
		path := "machines?limit=2"
		if next != "start" {
			path += "&continue=" + next
		}
		r := f.ask("reader", "GET", path, "", 200, "")
		for _, i := range r.Items {
			got = append(got, i.Metadata.Name)
		}
		next = r.Continue
	}
	if pages != 3 || !slices.Equal(got, want) {
		f.Errorf("%d pages with %v", pages, got)
	}
	if r := f.ask("reader", "GET", "machines?name=p3", "", 200, ""); len(r.Items) != 1 || r.Items[0].Metadata.Name != "p3" || r.Version == "" {
		f.Errorf("%s", r.text)
	}
	f.ask("reader", "GET", "events?since=7", "", 422, "OCA-7621")
	f.ask("reader", "GET", "machines?limit=0", "", 422, "OCA-7621")
	f.ask("reader", "GET", "machines?limits=2", "", 422, "OCA-7621")
	f.ask("reader", "GET", "machines?selector=%3D%3D", "", 422, "OCA-7621")
	for _, token := range []string{"x", "%00", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi8uLi9zZWNyZXRzIn0", strings.Repeat("A", 4096)} {
		f.ask("reader", "GET", "machines?limit=2&continue="+token, "", 400, "OCA-7621")
	}
	f.ask("reader", "GET", "machines?continue="+strings.Repeat("A", 4097), "", 422, "OCA-7621")
}

// unknown expects the cause to name a field.
func (f *apiTest) unknown(r reply, field string) {
	f.Helper()
	if !strings.Contains(r.Detail, "unknown field") || !strings.Contains(r.Detail, field) {
		f.Errorf("it does not name %s: %s", field, r.text)
	}
}

// secrets checks that no response contains a secret, and that a cloud sent back with hidden secrets keeps them.
func (f *apiTest) secrets() {
	f.Helper()
	cr := f.CloudAt("127.0.0.1", 3306)
	cr.Spec.MySQL.Password = "correct horse"
	require.NoError(f, f.Client.Create(f.Context(), cr))
	r := f.ask("reader", "GET", "clouds/"+cloud, "", 200, "")
	mysql, _ := r.Spec["mysql"].(map[string]any)
	if strings.Contains(r.text, "correct horse") || mysql["password"] != "***" {
		f.Errorf("%s", r.text)
	}
	r.Spec["disableResourceManagement"] = true
	body, err := json.Marshal(map[string]any{"spec": r.Spec})
	require.NoError(f, err)
	f.ask("writer", "PUT", "clouds/"+cloud, string(body), 200, "", "If-Match", r.header.Get("Etag"))
	live := f.Cloud()
	if live.Spec.MySQL.Password != "correct horse" || !live.Spec.DisableResourceManagement {
		f.Errorf("%+v", live.Spec.MySQL)
	}
	f.ask("writer", "POST", "clouds", string(body), 422, "OCA-7621")
}

func (f *apiTest) verbs() {
	f.Helper()
	const key = "Idempotency-Key"
	first := f.ask("writer", "POST", "clouds/"+cloud+"/update", `{"update":{"version":"v4.0.4"},"onFailure":"pause"}`, 201, "", key, "u")
	again := f.ask("writer", "POST", "clouds/"+cloud+"/update", `{"update":{"version":"v4.0.4"},"onFailure":"pause"}`, 200, "", key, "u")
	if first.Metadata.Name == "" || first.Metadata.UID != again.Metadata.UID || first.Spec["requester"] != "system:serviceaccount:"+namespace+":writer" {
		f.Errorf("%s\n%s", first.text, again.text)
	}
	f.ask("writer", "POST", "clouds/"+cloud+"/update", `{"update":{"version":"v4.0.5"},"onFailure":"pause"}`, 409, "OCA-7618", key, "u")
	f.ask("writer", "POST", "clouds/"+cloud+"/update", `{"update":{"versions":"v4.0.5"}}`, 422, "OCA-7621")
	f.ask("writer", "POST", "clouds/"+cloud+"/update", `{"rollback":{"revision":1}}`, 422, "OCA-7621")
	f.ask("writer", "POST", "clouds/"+cloud+"/rollback", `{"rollback":{"revision":1}}`, 201, "")
	name := first.Metadata.Name
	for _, want := range []bool{true, false} {
		if r := f.ask("writer", "POST", "operations/"+name+"/pause", "", 200, ""); r.Changed != want {
			f.Errorf("%s", r.text)
		}
	}
	f.ask("writer", "POST", "operations/"+name+"/resume", "", 200, "")
	f.ask("writer", "POST", "operations/none/cancel", "", 404, "OCA-7054")
	saving := f.Operation("saving", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionBackup, Backup: &v1alpha1.BackupParameters{Place: "/backup"}})
	if r := f.ask("reader", "GET", "operations", "", 200, ""); !strings.Contains(r.text, `"saving"`) || !strings.Contains(r.text, `"place":"/backup"`) {
		f.Errorf("a backup is not listed: %s", r.text)
	}
	f.ask("reader", "GET", "operations/"+saving.Name, "", 200, "")
	f.ask("writer", "POST", "clouds/"+cloud+"/backups", "", 422, "OCA-7423")
	f.Edit(`{"spec":{"backup":{"disable":false}}}`)
	f.ask("reader", "POST", "clouds/"+cloud+"/backups", "", 403, "OCA-7616")
	if r := f.ask("writer", "POST", "clouds/"+cloud+"/backups", "", 201, "", key, "b"); r.Spec["action"] != v1alpha1.ActionBackup || r.Spec["backup"] != nil {
		f.Errorf("%s", r.text)
	}
	f.ask("writer", "POST", "clouds/"+cloud+"/backups", "", 200, "", key, "b")
	f.ask("writer", "POST", "operations/"+saving.Name+"/cancel", "", 200, "")
	f.ask("writer", "POST", "machines/p1/pause", "", 200, "")
	f.ask("writer", "POST", "machines/p1/precheck", "", 201, "")
	f.ask("writer", "POST", "machines/none/retry", "", 404, "OCA-7609")
	for _, changes := range []int{1, 0} {
		r := f.ask("writer", "POST", "clouds/"+cloud+"/components/region/scale", `{"replicas":3}`, 200, "")
		if strings.Count(r.text, "→") != changes {
			f.Errorf("%s", r.text)
		}
	}
	if n := f.Cloud().Spec.RegionServer.Replicas; n == nil || *n != 3 {
		f.Errorf("region has %v replicas", n)
	}
	f.ask("writer", "POST", "clouds/"+cloud+"/components/none/scale", `{"replicas":3}`, 404, "OCA-7620")
	f.ask("reader", "GET", "clouds/"+cloud+"/components", "", 200, "")
	f.ask("reader", "GET", "clouds/"+cloud+"/releases", "", 200, "")
}

// next returns the next change of a stream, which must contain all texts.
func (f *apiTest) next(s *bufio.Scanner, texts ...string) {
	f.Helper()
	for s.Scan() {
		if data, ok := strings.CutPrefix(s.Text(), "data: "); ok {
			for _, text := range texts {
				if !strings.Contains(data, text) {
					f.Errorf("%s has no %s", data, text)
				}
			}
			return
		}
	}
	f.Fatalf("the stream ended: %v", s.Err())
}

func (f *apiTest) follows() {
	f.Helper()
	events := bufio.NewScanner(f.open("reader", "GET", "events?kinds=machines", nil).Body)
	events.Buffer(nil, 1<<20)
	f.message(events, "change", `"ADDED"`, `"p2"`)
	f.ask("writer", "POST", "machines/p2/retry", "", 200, "")
	f.message(events, "change", `"MODIFIED"`, `"p2"`)
	f.ask("writer", "DELETE", "machines/p2", "", 202, "")
	f.message(events, "change", `"DELETED"`, `"p2"`)
	since := f.ask("reader", "GET", "machines", "", 200, "").Version
	f.ask("writer", "POST", "machines/p3/retry", "", 200, "")
	f.ask("writer", "POST", "machines/p4/retry", "", 200, "")
	some := bufio.NewScanner(f.open("reader", "GET", "events?kinds=machines&name=p4&since="+since, nil).Body)
	some.Buffer(nil, 1<<20)
	f.next(some, `"MODIFIED"`, `"p4"`)
	f.message(bufio.NewScanner(f.open("reader", "GET", "events?kinds=machines&since=1", nil).Body), "error", `"status":410`, "too old")
	o := f.Operation("logged", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionCheck})
	log := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: operation.LogName("logged")}, Data: map[string]string{operation.LogKey: "{\"n\":1}\n"}}
	f.Create(log)
	now := bufio.NewScanner(f.open("reader", "GET", "operations/logged/log?follow=false", nil).Body)
	f.message(now, "line", `{"n":1}`)
	f.message(now, "end")
	lines := bufio.NewScanner(f.open("reader", "GET", "operations/logged/log", nil).Body)
	f.message(lines, "line", `{"n":1}`)
	log.Data[operation.LogKey] += "{\"n\":2}\n"
	require.NoError(f, f.Client.Update(f.Context(), log))
	f.message(lines, "line", `{"n":2}`)
	require.NoError(f, f.Client.Status().Patch(f.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`))))
	log.Data[operation.LogKey] += "{\"n\":3}\n"
	require.NoError(f, f.Client.Update(f.Context(), log))
	f.message(lines, "end", "Succeeded")
}

// bad sends bad requests: too large, too slow, malformed.
func (f *apiTest) bad() {
	f.Helper()
	large := `{"spec":{"x":"` + strings.Repeat("y", 10<<20) + `"}}`
	f.ask("writer", "POST", "machines", large, 413, "OCA-7621")
	f.ask("writer", "PUT", "machines/p1", large, 413, "OCA-7621", "If-Match", `"1"`)
	f.ask("writer", "POST", "machines/batch", large, 413, "OCA-7621")
	if r := f.open("writer", "POST", "machines", io.MultiReader(strings.NewReader(large))); r.StatusCode != 413 { // of unknown length
		f.Errorf("a large body in chunks: %s", r.Status)
	}
	f.ask("writer", "POST", "machines", `{"spec":`, 400, "OCA-7621")
	f.ask("writer", "POST", "machines", `{"specs":{}}`, 422, "OCA-7621")
	f.ask("writer", "POST", "machines", `{"kind":"Secret","metadata":{"name":"x"}}`, 422, "OCA-7621")
	if r := f.ask("writer", "POST", "machines", `{"metadata":{"name":"x"},"spec":{"cloud":"default"}}`, 422, "OCA-7621"); !strings.Contains(r.Detail, "spec.infrastructure") {
		f.Errorf("%s", r.text)
	}
	f.ask("writer", "PUT", "machines", "{}", 404, "OCA-7620")
	f.slow()
}

// slow checks that slow clients are disconnected, concurrently: they send headers or a body byte by byte, or do not read.
func (f *apiTest) slow() {
	f.Helper()
	const path = "/api/v1/namespaces/" + namespace + "/machines"
	unread := f.unread() // dialled first: a server busy with it would time out the others, which send no headers
	all := map[string]net.Conn{"headers": f.dial(), "a body": f.dial(), "a stream that is not read": unread}
	fmt.Fprintf(all["headers"], "GET %s HTTP/1.1\r\nHost: x\r\nX-Long: ", path)
	fmt.Fprintf(all["a body"], "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 10000\r\n\r\n{",
		path, f.tokens["writer"])
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	for _, what := range []string{"headers", "a body"} {
		go func() {
			for tick := time.Tick(time.Second); ; {
				select {
				case <-ctx.Done():
					return
				case <-tick:
				}
				if _, err := all[what].Write([]byte(" ")); err != nil {
					return
				}
			}
		}()
	}
	// The same in HTTP/2, where the connection stays and the request ends.
	two := &http.Client{Transport: &http.Transport{TLSClientConfig: f.client.Transport.(*http.Transport).TLSClientConfig.Clone(), ForceAttemptHTTP2: true}, Timeout: env.Patience}
	defer two.CloseIdleConnections()
	body, never := io.Pipe()
	defer never.Close()
	r, err := http.NewRequestWithContext(f.Context(), http.MethodPost, "https://"+f.address+path, body)
	require.NoError(f, err)
	r.Header.Set("Authorization", "Bearer "+f.tokens["writer"])
	r.Header.Set("Content-Type", "application/json")
	answer, err := two.Do(r)
	var late net.Error
	switch {
	case errors.As(err, &late) && late.Timeout():
		f.Error("a slow body in HTTP/2: the request has not ended")
	case err == nil:
		if _ = answer.Body.Close(); answer.StatusCode != http.StatusRequestTimeout || answer.ProtoMajor != 2 {
			f.Errorf("a slow body in HTTP/2: %s %s", answer.Proto, answer.Status)
		}
	}
	for what, c := range all {
		require.NoError(f, c.SetReadDeadline(time.Now().Add(env.Patience)))
		text, err := io.ReadAll(c)
		if wait, is := errors.AsType[net.Error](err); is && wait.Timeout() {
			f.Errorf("%s: the connection is still there", what)
		}
		if what == "a body" && err == nil && !bytes.Contains(text, []byte("408")) {
			f.Errorf("%s: %s", what, text)
		}
	}
}

// unread requests a stream of events, and changes a large machine until more was sent than the buffers of a connection hold.
func (f *apiTest) unread() net.Conn {
	f.Helper()
	c := f.dial()
	require.NoError(f, c.(*tls.Conn).NetConn().(*net.TCPConn).SetReadBuffer(4<<10))
	fmt.Fprintf(c, "GET /api/v1/namespaces/%s/events?kinds=machines HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", namespace, f.tokens["reader"])
	large := strings.Repeat("x", 200<<10)
	for i := range 60 {
		f.EditObject(&v1alpha1.OnecloudMachine{}, "p1", fmt.Sprintf(`{"metadata":{"annotations":{"large":"%d%s"}}}`, i, large))
	}
	return c
}

// TestAPIRate checks that requests beyond the limit are refused, and those of another sender are not.
func TestAPIRate(t *testing.T) {
	f := newAPITest(t, func(o *restapi.Options) { o.Rate, o.Burst = 0.001, 2 })
	f.ask("reader", "GET", "machines", "", 200, "")
	f.ask("reader", "GET", "machines", "", 200, "")
	if r := f.ask("reader", "GET", "machines", "", 429, "OCA-7619"); r.header.Get("Retry-After") != "1000" {
		t.Errorf("%v", r.header)
	}
	f.ask("writer", "GET", "machines", "", 200, "")
}
