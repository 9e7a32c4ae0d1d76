// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster/restapi"
	"yunion.io/x/ocadm/operatorctl/operation"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
)

// apiTest is a test with the REST API and senders of different rights.
type apiTest struct {
	*cloudTest
	address string
	client  *http.Client
	tokens  map[string]string
}

func newAPITest(t *testing.T, change func(*restapi.Options)) *apiTest {
	t.Helper()
	f := &apiTest{cloudTest: newCloudTest(t, env.Options{}), tokens: map[string]string{"": ""}}
	f.sender("stranger")
	f.sender("reader", rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}})
	f.sender("writer", rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"}})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.address = l.Addr().String()
	o := restapi.Options{Config: f.Cluster.Config(harness.Admin), Log: slog.New(slog.DiscardHandler), Address: f.address}
	var ca *x509.CertPool
	o.Certificate, o.Key, ca = certificateFiles(t)
	if change != nil {
		change(&o)
	}
	f.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca, MinVersion: tls.VersionTLS12}}}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- restapi.Serve(ctx, o) }()
	t.Cleanup(func() {
		f.client.CloseIdleConnections()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the API ended: %v", err)
		}
	})
	f.Eventually(func() (bool, string) {
		r, err := f.client.Get("https://" + f.address + "/healthz")
		if err != nil {
			return false, err.Error()
		}
		return r.StatusCode == http.StatusOK, r.Status + fmt.Sprint(r.Body.Close())
	})
	return f
}

// certificateFiles are those of a server at 127.0.0.1, which is its own authority.
func certificateFiles(t *testing.T) (certificate, key string, ca *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	certificate, key, ca = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), x509.NewCertPool()
	for name, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: secret}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	ca.AddCert(parsed)
	return certificate, key, ca
}

// sender makes a service account with rights and keeps a token of it.
func (f *apiTest) sender(name string, rules ...rbacv1.PolicyRule) {
	f.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: rules}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}}
	for _, o := range []client.Object{account, role, binding} {
		if err := f.Client.Create(f.Context(), o); err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { _ = f.Client.Delete(context.WithoutCancel(f.Context()), o) })
	}
	request := &authenticationv1.TokenRequest{}
	if err := f.Client.SubResource("token").Create(f.Context(), account, request); err != nil {
		f.Fatal(err)
	}
	f.tokens[name] = request.Status.Token
}

// reply is an answer.
type reply struct {
	status int
	header http.Header
	text   string
	// Of problems, lists and resources.
	Code, Detail, Continue string
	Changed                bool
	Metadata               struct{ Name, UID, ResourceVersion string }
	Spec                   map[string]any
	Items                  []struct{ Metadata struct{ Name string } }
}

func (f *apiTest) open(as, method, path string, body io.Reader, headers ...string) *http.Response {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, "https://"+f.address+"/api/v1/namespaces/"+namespace+"/"+path, body)
	if err != nil {
		f.Fatal(err)
	}
	if token := f.tokens[as]; token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := f.client.Do(r)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// ask sends a request and expects a status, and the code of a problem.
func (f *apiTest) ask(as, method, path, body string, want int, code string, headers ...string) reply {
	f.Helper()
	answer := f.open(as, method, path, strings.NewReader(body), headers...)
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		f.Fatal(err)
	}
	out := reply{status: answer.StatusCode, header: answer.Header, text: string(text)}
	if len(text) > 0 && json.Unmarshal(text, &out) != nil {
		f.Errorf("%s %s: no JSON: %s", method, path, text)
	}
	if out.status != want || out.Code != code || code != "" && answer.Header.Get("Content-Type") != "application/problem+json" {
		f.Errorf("%s %s by %q: %d %s, want %d %s: %s", method, path, as, out.status, out.Code, want, code, text)
	}
	return out
}

func machineBody(name string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"cloud":"default","infrastructure":{"ssh":{"address":"%s.example.org","credentialsSecretName":"fleet"}}}}`, name, name)
}

func TestAPI(t *testing.T) {
	f := newAPITest(t, nil)
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

// once: a request that is repeated with its key creates nothing more, and another one with it is refused.
func (f *apiTest) once() {
	f.Helper()
	first := f.ask("writer", "POST", "machines", machineBody("one"), 201, "", "Idempotency-Key", "k1")
	again := f.ask("writer", "POST", "machines", machineBody("one"), 200, "", "Idempotency-Key", "k1")
	if first.Metadata.UID == "" || again.Metadata.UID != first.Metadata.UID || strings.Contains(first.text, "idempotency") {
		f.Errorf("%s\n%s", first.text, again.text)
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
	f.ask("reader", "GET", "machines?limit=0", "", 422, "OCA-7621")
	f.ask("reader", "GET", "machines?limits=2", "", 422, "OCA-7621")
	f.ask("reader", "GET", "machines?selector=%3D%3D", "", 422, "OCA-7621")
}

// secrets: none is in an answer, and a cloud that is sent back with its secrets hidden keeps them.
func (f *apiTest) secrets() {
	f.Helper()
	cr := f.CloudAt("127.0.0.1", 3306)
	cr.Spec.MySQL.Password = "correct horse"
	if err := f.Client.Create(f.Context(), cr); err != nil {
		f.Fatal(err)
	}
	r := f.ask("reader", "GET", "clouds/"+cloud, "", 200, "")
	mysql, _ := r.Spec["mysql"].(map[string]any)
	if strings.Contains(r.text, "correct horse") || mysql["password"] != "***" {
		f.Errorf("%s", r.text)
	}
	r.Spec["disableResourceManagement"] = true
	body, err := json.Marshal(map[string]any{"spec": r.Spec})
	if err != nil {
		f.Fatal(err)
	}
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
	f.ask("writer", "POST", "clouds/"+cloud+"/rollback", `{"rollback":{"revision":1}}`, 201, "")
	name := first.Metadata.Name
	for _, want := range []bool{true, false} {
		if r := f.ask("writer", "POST", "operations/"+name+"/pause", "", 200, ""); r.Changed != want {
			f.Errorf("%s", r.text)
		}
	}
	f.ask("writer", "POST", "operations/"+name+"/resume", "", 200, "")
	f.ask("writer", "POST", "operations/none/cancel", "", 404, "OCA-7054")
	saving := f.operation("saving", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionBackup, Backup: &v1alpha1.BackupParameters{Place: "/backup"}})
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

// message waits for a message of a stream that holds all texts.
func (f *apiTest) message(s *bufio.Scanner, event string, texts ...string) {
	f.Helper()
	kind := ""
	for s.Scan() {
		if name, ok := strings.CutPrefix(s.Text(), "event: "); ok {
			kind = name
		}
		data, ok := strings.CutPrefix(s.Text(), "data: ")
		if ok && kind == event && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(data, text) }) {
			return
		}
	}
	f.Fatalf("the stream ended without %s %q: %v", event, texts, s.Err())
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
	o := f.operation("logged", v1alpha1.OnecloudOperationSpec{Action: v1alpha1.ActionCheck})
	log := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: operation.LogName("logged")}, Data: map[string]string{operation.LogKey: "{\"n\":1}\n"}}
	f.Create(log)
	lines := bufio.NewScanner(f.open("reader", "GET", "operations/logged/log", nil).Body)
	f.message(lines, "line", `{"n":1}`)
	log.Data[operation.LogKey] += "{\"n\":2}\n"
	if err := f.Client.Update(f.Context(), log); err != nil {
		f.Fatal(err)
	}
	f.message(lines, "line", `{"n":2}`)
	if err := f.Client.Status().Patch(f.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`))); err != nil {
		f.Fatal(err)
	}
	log.Data[operation.LogKey] += "{\"n\":3}\n"
	if err := f.Client.Update(f.Context(), log); err != nil {
		f.Fatal(err)
	}
	f.message(lines, "end", "Succeeded")
}

// bad requests: too large, too slow, malformed.
func (f *apiTest) bad() {
	f.Helper()
	large := `{"spec":{"x":"` + strings.Repeat("y", 10<<20) + `"}}`
	f.ask("writer", "POST", "machines", large, 413, "OCA-7621")
	f.ask("writer", "POST", "machines", `{"spec":`, 400, "OCA-7621")
	f.ask("writer", "POST", "machines", `{"specs":{}}`, 422, "OCA-7621")
	f.ask("writer", "POST", "machines", `{"kind":"Secret","metadata":{"name":"x"}}`, 422, "OCA-7621")
	if r := f.ask("writer", "POST", "machines", `{"metadata":{"name":"x"},"spec":{"cloud":"default"}}`, 422, "OCA-7621"); !strings.Contains(r.Detail, "spec.infrastructure") {
		f.Errorf("%s", r.text)
	}
	f.ask("writer", "PATCH", "machines/p1", "{}", 404, "OCA-7620")
	// Headers that do not end, and a stream that is not read, are cut off meanwhile.
	headers := f.dial()
	fmt.Fprintf(headers, "GET /api/v1/namespaces/%s/machines HTTP/1.1\r\nHost: x\r\n", namespace)
	unread := f.unread()
	// A body that does not come: the server answers or ends the connection by itself.
	c := f.dial()
	fmt.Fprintf(c, "POST /api/v1/namespaces/%s/machines HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", namespace, f.tokens["writer"])
	answer, err := io.ReadAll(c)
	if err == nil && !bytes.Contains(answer, []byte("408")) {
		f.Errorf("a slow client: %s", answer)
	}
	for what, c := range map[string]net.Conn{"headers that do not end": headers, "a stream that is not read": unread} {
		if err := c.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			f.Fatal(err)
		}
		_, err := io.Copy(io.Discard, c)
		if wait, slow := errors.AsType[net.Error](err); slow && wait.Timeout() {
			f.Errorf("%s: the connection is still there", what)
		}
	}
}

// dial opens a connection of HTTP/1.1.
func (f *apiTest) dial() net.Conn {
	f.Helper()
	c, err := (&tls.Dialer{Config: f.client.Transport.(*http.Transport).TLSClientConfig}).DialContext(f.Context(), "tcp", f.address)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = c.Close() })
	return c
}

// unread asks for a stream of events, and changes a large machine until more was sent than the buffers of a connection hold.
func (f *apiTest) unread() net.Conn {
	f.Helper()
	c := f.dial()
	if err := c.(*tls.Conn).NetConn().(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		f.Fatal(err)
	}
	fmt.Fprintf(c, "GET /api/v1/namespaces/%s/events?kinds=machines HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", namespace, f.tokens["reader"])
	large := strings.Repeat("x", 200<<10)
	for i := range 60 {
		f.EditObject(&v1alpha1.OnecloudMachine{}, "p1", fmt.Sprintf(`{"metadata":{"annotations":{"large":"%d%s"}}}`, i, large))
	}
	return c
}

// TestAPIRate: more requests than the limit are refused, those of another sender are not.
func TestAPIRate(t *testing.T) {
	f := newAPITest(t, func(o *restapi.Options) { o.Rate, o.Burst = 0.001, 2 })
	f.ask("reader", "GET", "machines", "", 200, "")
	f.ask("reader", "GET", "machines", "", 200, "")
	if r := f.ask("reader", "GET", "machines", "", 429, "OCA-7619"); r.header.Get("Retry-After") != "1000" {
		t.Errorf("%v", r.header)
	}
	f.ask("writer", "GET", "machines", "", 200, "")
}
