// SPDX-License-Identifier: Apache-2.0

package apiclient_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/cluster"
	"yunion.io/x/ocadm/cluster/apiclient"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/kube"
	"yunion.io/x/ocadm/test/require"
)

const token = "correct-horse"

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: "n", Name: name} }

// server starts a TLS server with a handler.
func server(t *testing.T, h http.HandlerFunc) (*httptest.Server, apiclient.Options) {
	t.Helper()
	s := httptest.NewTLSServer(h)
	t.Cleanup(s.Close)
	return s, apiclient.Options{URL: s.URL, Token: token, CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})}
}

func open(t *testing.T, o apiclient.Options) *apiclient.Client {
	t.Helper()
	c, err := apiclient.New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// found checks for a finding, and that the error does not contain the token.
func found(t *testing.T, err error, code, text string) {
	t.Helper()
	list := finding.Of(err)
	if len(list) == 0 || list[0].Code != code || !strings.Contains(list[0].Error(), text) || list[0].Remedy == "" || strings.Contains(fmt.Sprintf("%v %+v", err, list), token) {
		t.Errorf("got %v %+v, want %s with %q", err, list, code, text)
	}
}

// machine returns a machine as the API shows it.
func machine(name, version string) map[string]any {
	return map[string]any{"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.MachineKind,
		"metadata": map[string]any{"namespace": "n", "name": name, "uid": name, "resourceVersion": version}, "spec": map[string]any{"cloud": "default"}}
}

func answer(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

// problem answers with an error like the API.
func problem(w http.ResponseWriter, status int, code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	answer(w, map[string]any{"status": status, "code": code, "title": "Title", "detail": detail, "remedy": "do this"})
}

func TestSettings(t *testing.T) {
	const fingerprint = "A0:B1:0000000000000000000000000000000000000000000000000000000000zz"
	for name, o := range map[string]apiclient.Options{
		"address":       {URL: "operator.example.org"},
		"clear text":    {URL: "http://operator.example.org"},
		"user":          {URL: "https://me:correct-horse@operator.example.org"},
		"fragment":      {URL: "https://operator.example.org/#token=correct-horse"},
		"unreadable":    {URL: "https://correct-horse%zz"},
		"no token":      {URL: "https://operator.example.org", Token: " \n"},
		"two words":     {URL: "https://operator.example.org", Token: "correct horse"},
		"no CA":         {URL: "https://operator.example.org", CA: []byte("text")},
		"fingerprint":   {URL: "https://operator.example.org", Fingerprint: fingerprint},
		"short":         {URL: "https://operator.example.org", Fingerprint: "a0b1"},
		"both of trust": {URL: "https://operator.example.org", CA: []byte("text"), Fingerprint: fingerprint},
	} {
		t.Run(name, func(t *testing.T) {
			if o.Token == "" {
				o.Token = token
			}
			_, err := apiclient.New(o)
			found(t, err, "OCA-7630", "")
		})
	}
	if _, err := apiclient.New(apiclient.Options{URL: "http://127.0.0.1:8444", Token: token}); err != nil {
		t.Errorf("a server of this machine: %v", err)
	}
}

// TestTrust checks that the token is sent only to a server with the right certificate.
func TestTrust(t *testing.T) {
	var asked atomic.Int32
	s, o := server(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("%v", r.Header)
		}
		answer(w, machine("m", "1"))
	})
	sum := sha256.Sum256(s.Certificate().Raw)
	right := hex.EncodeToString(sum[:])
	try := func(change func(*apiclient.Options)) error {
		with := o
		change(&with)
		_, err := cluster.MachineOf(t.Context(), open(t, with), key("m"))
		return err
	}
	for _, change := range []func(*apiclient.Options){
		func(*apiclient.Options) {},
		func(o *apiclient.Options) { o.CA, o.Fingerprint = nil, "SHA256:"+right },
		func(o *apiclient.Options) { o.CA, o.Fingerprint = nil, "sha256 Fingerprint="+strings.ToUpper(right) },
		func(o *apiclient.Options) { o.CA, o.Fingerprint = nil, strings.ToUpper(right[:2])+":"+right[2:] },
		func(o *apiclient.Options) { o.Token = " " + token + "\n" },
	} {
		if err := try(change); err != nil {
			t.Errorf("%v", err)
		}
	}
	if n := asked.Swap(0); n != 5 {
		t.Errorf("%d requests", n)
	}
	found(t, try(func(o *apiclient.Options) { o.CA = nil }), "OCA-7631", "unknown authority")
	found(t, try(func(o *apiclient.Options) { o.CA, o.Fingerprint = nil, strings.Repeat("a0", sha256.Size) }), "OCA-7631", right)
	found(t, try(func(o *apiclient.Options) { o.URL = strings.Replace(o.URL, "127.0.0.1", "localhost", 1) }), "OCA-7631", "localhost")
	if asked.Load() != 0 {
		t.Error("a server that is not trusted was asked")
	}
}

// TestErrors checks that an API error reads like one of Kubernetes and carries the API's finding, and that other errors are explained.
func TestErrors(t *testing.T) {
	var status int
	var code, text string
	s, o := server(t, func(w http.ResponseWriter, _ *http.Request) {
		switch {
		case status == http.StatusFound:
			http.Redirect(w, &http.Request{Method: http.MethodGet}, "https://elsewhere.example.org/", status)
		case code == "":
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
		default:
			problem(w, status, code, text)
		}
	})
	c := open(t, o)
	get := func(s int, withCode, withText string) error {
		status, code, text = s, withCode, withText
		m := &v1alpha1.OnecloudMachine{}
		return c.Get(t.Context(), key("m"), m)
	}
	for status, test := range map[int]struct {
		code string
		is   func(error) bool
	}{
		401: {"OCA-7615", apierrors.IsUnauthorized}, 403: {"OCA-7616", apierrors.IsForbidden}, 404: {"OCA-7620", apierrors.IsNotFound},
		409: {"OCA-7618", apierrors.IsAlreadyExists}, 412: {"OCA-7617", apierrors.IsConflict}, 422: {"OCA-7621", apierrors.IsInvalid},
	} {
		err := get(status, test.code, "because")
		found(t, err, test.code, "Title: because")
		if !test.is(err) || err.Error() != "because" {
			t.Errorf("%d: %v", status, err)
		}
	}
	found(t, get(502, "", "<html>"), "OCA-7630", "502 Bad Gateway")
	found(t, get(200, "", "<html>"), "OCA-7630", "is not JSON")
	found(t, get(http.StatusFound, "", ""), "OCA-7630", "is not JSON")
	status, code, text = 404, "OCA-7620", "gone"
	_, err := cluster.MachineOf(t.Context(), c, key("m"))
	found(t, err, "OCA-7609", "gone")
	s.Close()
	found(t, c.Get(t.Context(), key("m"), &v1alpha1.OnecloudMachine{}), "OCA-7630", "does not answer")
}

// TestSlow checks that the client gives up on a server that does not answer, and on a stream that falls silent.
func TestSlow(t *testing.T) {
	end := make(chan struct{})
	t.Cleanup(func() { close(end) })
	_, o := server(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/events"):
			_, _ = w.Write([]byte(": \n\n"))
			_ = http.NewResponseController(w).Flush()
		case r.URL.Query().Has("limit"):
			answer(w, map[string]any{"items": []any{}, "version": "7"})
			return
		}
		select {
		case <-end:
		case <-r.Context().Done():
		}
	})
	short := o
	short.Patience = 50 * time.Millisecond
	found(t, open(t, short).Get(t.Context(), key("m"), &v1alpha1.OnecloudMachine{}), "OCA-7630", "does not answer")
	o.Patience = 2 * time.Second // enough for a handshake on a busy machine
	c := open(t, o)
	list := &v1alpha1.OnecloudMachineList{}
	if err := c.List(t.Context(), list, client.InNamespace("n")); err != nil || list.ResourceVersion != "7" {
		t.Fatalf("%v %+v", err, list)
	}
	w, err := c.Watch(t.Context(), list, client.InNamespace("n"))
	require.NoError(t, err)
	defer w.Stop()
	for range w.ResultChan() {
		t.Error("a change came")
	}
}

// TestRequests checks the request for each verb, that all pages are read, and that a request is repeated when the server asks for that.
func TestRequests(t *testing.T) {
	var got []string
	early := true
	_, o := server(t, func(w http.ResponseWriter, r *http.Request) {
		if early {
			early = false
			w.Header().Set("Retry-After", "1")
			problem(w, http.StatusTooManyRequests, "OCA-7619", "")
			return
		}
		var body map[string]any
		_ = json.NewDecoder(r.Body).Decode(&body)
		text, _ := json.Marshal(body)
		got = append(got, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("If-Match")+" "+string(text))
		if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/machines") {
			page := map[string]any{"items": []any{machine("a", "1")}, "continue": "next", "version": "5"}
			if r.URL.Query().Has("continue") {
				page = map[string]any{"items": []any{machine("b", "2")}, "version": "6"}
			}
			answer(w, page)
			return
		}
		answer(w, machine("m", "9"))
	})
	c := open(t, o)
	list := &v1alpha1.OnecloudMachineList{}
	if err := c.List(t.Context(), list, client.InNamespace("n"), client.MatchingLabels{"a": "b"}); err != nil || len(list.Items) != 2 || list.ResourceVersion != "6" {
		t.Errorf("%v %+v", err, list)
	}
	m := &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m", ResourceVersion: "8"}}
	for what, err := range map[string]error{
		"patch": c.Patch(t.Context(), m, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"x":null}}}`))), "update": c.Update(t.Context(), m),
	} {
		if err != nil || m.ResourceVersion != "9" {
			t.Errorf("%s: %v %+v", what, err, m)
		}
	}
	if err := c.Delete(t.Context(), m, client.Preconditions(metav1.Preconditions{ResourceVersion: &m.ResourceVersion})); err != nil {
		t.Error(err)
	}
	all := strings.Join(got, "\n")
	for _, want := range []string{
		"GET /api/v1/namespaces/n/machines?limit=500&selector=a%3Db", "continue=next&limit=500", `PATCH /api/v1/namespaces/n/machines/m  {"metadata":{"annotations":{"x":null}}}`,
		`PUT /api/v1/namespaces/n/machines/m "9" {`, `DELETE /api/v1/namespaces/n/machines/m "9"`,
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %s in\n%s", want, all)
		}
	}
}

// TestFollows checks that a wait survives the end of a stream, and sees the deletion of an object.
func TestFollows(t *testing.T) {
	streams := 0
	_, o := server(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/events") {
			answer(w, map[string]any{"items": []any{machine("m", "1")}, "version": "1"})
			return
		}
		if q := r.URL.Query(); q.Get("since") != "1" || q.Get("name") != "m" || q.Get("kinds") != "machines" {
			t.Errorf("%s", r.URL)
		}
		if streams++; streams == 1 {
			return
		}
		change, _ := json.Marshal(map[string]any{"type": "DELETED", "path": "machines", "object": machine("m", "2")})
		_, _ = fmt.Fprintf(w, ": \n\nevent: change\ndata: %s\n\n", change)
	})
	m := &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m"}}
	err := kube.WaitGone(t.Context(), open(t, o), m, func(client.Object) string { return "there" }, func(string) {})
	if err != nil || streams != 2 {
		t.Errorf("%v after %d streams", err, streams)
	}
}

// TestRefused checks that what the API does not serve is refused before anything is sent.
func TestRefused(t *testing.T) {
	_, o := server(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s was sent", r.Method, r.URL) })
	c := open(t, o)
	m := &v1alpha1.OnecloudMachine{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "m"}}
	machines := &v1alpha1.OnecloudMachineList{}
	for name, err := range map[string]error{
		"Deployment":  c.Get(t.Context(), key("x"), &appsv1.Deployment{}),
		"Secret":      c.Create(t.Context(), &corev1.Secret{ObjectMeta: m.ObjectMeta}),
		"namespaces":  c.List(t.Context(), machines),
		"selects":     c.List(t.Context(), machines, client.InNamespace("n"), client.MatchingFields{"spec.cloud": "x"}),
		"creates":     c.Create(t.Context(), m, client.DryRunAll),
		"changes":     c.Patch(t.Context(), m, client.RawPatch(types.MergePatchType, []byte("{}")), client.DryRunAll),
		"json-patch":  c.Patch(t.Context(), m, client.RawPatch(types.JSONPatchType, []byte("[]"))),
		"subresource": c.Status().Update(t.Context(), m),
		"several":     c.DeleteAllOf(t.Context(), m),
		"deletes":     c.Delete(t.Context(), m, client.DryRunAll),
	} {
		found(t, err, "OCA-7632", name)
	}
}
