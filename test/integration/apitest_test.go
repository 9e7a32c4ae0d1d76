// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster/restapi"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

// apiTest is a test with the REST API and senders with different permissions.
type apiTest struct {
	*cloudTest
	test    *testing.T
	address string
	// authority is the file with the server's certificate, key that with its private key.
	authority, key string
	client         *http.Client
	tokens         map[string]string
}

func newAPITest(t *testing.T, change func(*restapi.Options)) *apiTest {
	t.Helper()
	f := &apiTest{test: t, cloudTest: newCloudTest(t, env.Options{}), tokens: map[string]string{"": ""}}
	f.sender("stranger")
	f.sender("reader", rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}})
	f.sender("writer", rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"}})
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f.address = l.Addr().String()
	o := restapi.Options{Config: f.Cluster.Config(harness.Admin), Log: slog.New(slog.DiscardHandler), Address: f.address}
	var ca *x509.CertPool
	o.Certificate, o.Key, ca = certificateFiles(t)
	f.authority, f.key = o.Certificate, o.Key
	if change != nil {
		change(&o)
	}
	f.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: ca, MinVersion: tls.VersionTLS12}}}
	require.NoError(t, l.Close())
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

// certificateFiles returns the files of a self-signed certificate for a server at 127.0.0.1.
func certificateFiles(t *testing.T) (certificate, key string, ca *x509.CertPool) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	c := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, private.Public(), private)
	require.NoError(t, err)
	secret, err := x509.MarshalECPrivateKey(private)
	require.NoError(t, err)
	dir := t.TempDir()
	certificate, key, ca = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), x509.NewCertPool()
	for name, block := range map[string]*pem.Block{certificate: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "EC PRIVATE KEY", Bytes: secret}} {
		require.NoError(t, os.WriteFile(name, pem.EncodeToMemory(block), 0o600))
	}
	parsed, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	ca.AddCert(parsed)
	return certificate, key, ca
}

// sender creates a service account with permissions and stores a token for it.
func (f *apiTest) sender(name string, rules ...rbacv1.PolicyRule) {
	f.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: rules}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}}
	for _, o := range []client.Object{account, role, binding} {
		require.NoError(f, f.Client.Create(f.Context(), o))
		f.Cleanup(func() { _ = f.Client.Delete(context.WithoutCancel(f.Context()), o) })
	}
	f.tokens[name] = f.newToken(name)
}

// newToken returns another token of a sender.
func (f *apiTest) newToken(name string) string {
	f.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{}
	require.NoError(f, f.Client.SubResource("token").Create(f.Context(), account, request))
	return request.Status.Token
}

// reply is a response.
type reply struct {
	status int
	header http.Header
	text   string
	// Fields of problems, lists and resources.
	Code, Detail, Continue, Version string
	Changed                         bool
	Metadata                        struct{ Name, UID, ResourceVersion string }
	Spec                            map[string]any
	Items                           []struct{ Metadata struct{ Name string } }
}

func (f *apiTest) open(as, method, path string, body io.Reader, headers ...string) *http.Response {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, "https://"+f.address+"/api/v1/namespaces/"+namespace+"/"+path, body)
	require.NoError(f, err)
	if token := f.tokens[as]; token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	answer, err := f.client.Do(r)
	require.NoError(f, err)
	f.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// ask sends a request and checks the status and the code of a problem.
func (f *apiTest) ask(as, method, path, body string, want int, code string, headers ...string) reply {
	f.Helper()
	answer := f.open(as, method, path, strings.NewReader(body), headers...)
	for answer.StatusCode == http.StatusTooManyRequests && want != answer.StatusCode { // as a client does: this test is faster than a client
		_ = answer.Body.Close()
		seconds, err := strconv.Atoi(answer.Header.Get("Retry-After"))
		require.NoError(f, err)
		time.Sleep(time.Duration(seconds) * time.Second)
		answer = f.open(as, method, path, strings.NewReader(body), headers...)
	}
	text, err := io.ReadAll(answer.Body)
	require.NoError(f, err)
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

// message waits for a message of a stream that contains all texts.
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

// dial opens an HTTP/1.1 connection.
func (f *apiTest) dial() net.Conn {
	f.Helper()
	c, err := (&tls.Dialer{Config: f.client.Transport.(*http.Transport).TLSClientConfig}).DialContext(f.Context(), "tcp", f.address)
	require.NoError(f, err)
	f.Cleanup(func() { _ = c.Close() })
	return c
}
