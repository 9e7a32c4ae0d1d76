// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

// TestCanary tests a database server and an identity service that refuse, and quote in their responses the secrets that they were sent. No secret may
// appear in anything that users may read. Package integration checks the same places, and more, after the whole life of a complete cloud.
func TestCanary(t *testing.T) {
	w := use(t)
	log := &harness.Log{}
	var said said
	o := &operator{}
	o.fault.mangle, o.fault.heard = unintelligible, said.add
	w.startOne(t, o, audits(-1), func(opts *operatorctl.Options) {
		opts.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	t.Cleanup(func() { o.stop(t) })
	w.In(t).Create(w.minimal())

	texts := map[string]string{}
	remember := func(when string) {
		cr := w.In(t).TryCloud()
		cr.Spec.MySQL.Password = "" // the user has put it there
		b, err := yaml.Marshal(cr)
		require.NoError(t, err)
		texts["the cloud, "+when] = string(b)
	}
	quoted := func(when string, names ...string) {
		t.Helper()
		for name, secret := range w.secrets(t) {
			if slices.Contains(names, name) && !said.has(secret) {
				t.Errorf("%s, nobody has quoted %s: nothing is shown", when, name)
			}
		}
	}
	w.untilSays(t, o, "keystone", v1alpha1.Degraded, "database/keystone", "1064")
	remember("database refuses")
	quoted("database refuses", "default-credentials/keystone.database-password")
	o.fault.mu.Lock()
	o.fault.mangle = nil
	o.fault.mu.Unlock()

	for _, f := range []struct {
		name    string
		which   func(*http.Request) bool
		says    map[string]string
		secrets []string
	}{
		{"login refused", isLogin, map[string]string{"keystone": "logging in"}, []string{"default-credentials/keystone.bootstrap-password"}},
		{"changes refused", func(r *http.Request) bool {
			return r.Method == http.MethodPost && (strings.HasSuffix(r.URL.Path, "/users") || strings.HasSuffix(r.URL.Path, "/servicecertificates"))
		},
			map[string]string{"region": "account/region", "etcd": "endpoints/etcd"},
			[]string{"default-credentials/region.service-password", "default-etcd-client/etcd-client.key"}},
	} {
		o.breaks(func(r *http.Request) (*http.Response, error) {
			if !f.which(r) {
				return nil, nil //nolint:nilnil // documented: the service answers itself
			}
			a := quoting(body(r))
			said.add(a)
			return refusal(a), nil
		}, nil, nil)
		for name, text := range f.says {
			w.untilSays(t, o, name, v1alpha1.Degraded, text, "401")
		}
		remember(f.name)
		quoted(f.name, f.secrets...)
		o.heals()
	}
	w.untilReady(t, o, -1)
	remember("ready")
	words := w.secrets(t)
	words["the database administrator's password"] = w.DB.RootPassword
	for name := range words {
		if strings.HasSuffix(name, ".crt") || strings.HasSuffix(name, "-ca.pem") || // everybody may read these
			strings.HasSuffix(name, "/cloud-id") { // the resource's UID
			delete(words, name)
		}
	}
	var events eventsv1.EventList
	require.NoError(t, w.Client.List(t.Context(), &events, client.InNamespace(namespace)))
	texts["events"], texts["the operator's log"] = fmt.Sprint(events.Items), log.String()
	for _, leak := range harness.Leaks(words, texts) {
		t.Error(leak)
	}
}

// unintelligible makes a statement that sets a password invalid, so that the server's error quotes the rest of it.
func unintelligible(packet []byte) []byte {
	return bytes.Replace(packet, []byte(" IDENTIFIED BY "), []byte(" IDENTIFIED BZ "), 1)
}

// said holds the responses of servers.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *said) add(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.WriteString(text)
}

func (s *said) has(secret string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), secret)
}

// quoting returns a sentence with all secrets of a request's body.
func quoting(body string) string {
	var tree any
	if json.Unmarshal([]byte(body), &tree) != nil {
		return "the test takes nothing"
	}
	var found []string
	var walk func(key string, v any)
	walk = func(key string, v any) {
		switch x := v.(type) {
		case map[string]any:
			for k, child := range x {
				walk(k, child)
			}
		case []any:
			for _, child := range x {
				walk(key, child)
			}
		case string:
			if strings.Contains(key, "password") || strings.Contains(key, "key") || strings.Contains(key, "secret") {
				found = append(found, x)
			}
		}
	}
	walk("", tree)
	return "the test does not take " + strings.Join(found, ", ")
}

// refusal contains the text twice: as it is, and quoted in JSON.
func refusal(text string) *http.Response {
	a := answer(http.StatusUnauthorized, "WrongPassword")
	inner, _ := json.Marshal(text) // a string always encodes
	details, _ := json.Marshal(text + " " + string(inner))
	a.Body = io.NopCloser(strings.NewReader(fmt.Sprintf(`{"code":401,"class":"WrongPassword","details":%s}`, details)))
	return a
}
