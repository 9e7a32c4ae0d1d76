// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/require"
)

// kubeserver starts one that reports a status of the object store and records the actions. refuse writes the answer to an action if it is not nil.
func kubeserver(t *testing.T, status string, enabled bool, actions *[]string, refuse http.HandlerFunc) session {
	t.Helper()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/auth/tokens"):
			w.Header().Set("X-Subject-Token", "t")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(`{"token":{"expires_at":"2099-01-01T00:00:00.000000Z","user":{"id":"u","name":"sysadmin"},"project":{"id":"p","name":"system"}}}`))
		case strings.HasSuffix(r.URL.Path, "/components-status"):
			_, _ = fmt.Fprintf(w, `{"kubecluster":{"minio":{"created":true,"enabled":%v,"status":%q}}}`, enabled, status)
		case refuse != nil:
			refuse(w, r)
		default:
			*actions = append(*actions, path.Base(r.URL.Path))
			_, _ = w.Write([]byte(`{"kubecluster":{}}`))
		}
	}))
	t.Cleanup(srv.Close)
	id, err := identity.New(identity.Options{AuthURL: srv.URL + "/v3", Username: "sysadmin", Password: "pw123456", Transport: srv.Client().Transport})
	require.NoError(t, err)
	return session{Clients: Clients{
		URL:      func(string) string { return srv.URL + "/api" },
		Identity: func(context.Context) (*identity.Client, error) { return id, nil },
	}, id: id}
}

// Disabling software deletes its volumes. Only what was never installed, or is being removed, is disabled.
func TestOnlyFailedInstallationsAreRemoved(t *testing.T) {
	in := Input{Cluster: component.Cluster{Spec: &component.Spec{}}, Credentials: component.Credentials{component.MinioSecretKey: "0123456789abcdef"}}
	for _, c := range []struct {
		status  string
		enabled bool
		want    []string
		fails   bool
	}{
		{"deployed", true, []string{"update-component"}, false},
		{"update_fail", true, []string{"update-component"}, true},
		{"some_other_fail", true, []string{"update-component"}, false},
		{"deploy_fail", true, []string{"disable-component"}, true},
		{"undeploy_fail", false, []string{"disable-component"}, true},
		{"delete_fail", false, []string{"disable-component"}, true},
		{"init", false, []string{"sync", "enable-component"}, false},
	} {
		var actions []string
		_, err := installMinio(t.Context(), kubeserver(t, c.status, c.enabled, &actions, nil), in)
		if !slices.Equal(actions, c.want) || (err != nil) != c.fails {
			t.Errorf("%s: %q, %v", c.status, actions, err)
		}
	}
}

// kubeserver quotes the request in its error. The secrets that a user has set in the spec do not appear in the status.
func TestSecretsOfTheSpecAreHidden(t *testing.T) {
	raw := func(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }
	spec := &component.Spec{MonitorStack: v1alpha1.MonitorStackSpec{
		Minio:   raw(`{"secretKey":"S3cret-of-minio"}`),
		Grafana: raw(`{"adminPassword":"S3cret-of-grafana","oauth":{"enabled":true,"clientId":"grafana","clientSecret":"S3cret-of-oauth"}}`),
		Loki:    raw(`{"objectStoreConfig":{"endpoint":"s3.example.com","accessKey":"loki","secretKey":"S3cret-of-loki"}}`),
	}}
	refuse := func(w http.ResponseWriter, r *http.Request) {
		var body map[string]json.RawMessage
		_ = json.NewDecoder(r.Body).Decode(&body)
		text := string(body["kubecluster"])
		at := max(0, strings.Index(text, "S3cret")-50)
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": 400, "details": "invalid: " + text[at:]}})
	}
	in := Input{Cluster: component.Cluster{Spec: spec}}
	for name, settings := range monitorStackWanted(in) {
		_, err := install(t.Context(), kubeserver(t, "init", false, nil, refuse), in, []software{{name, settings.(map[string]any)}})
		if err == nil || strings.Contains(err.Error(), "S3cret") {
			t.Errorf("%s: %v", name, err)
		}
		for _, action := range []string{"oauth", "grafana", "loki", "minio"} {
			if b, _ := json.Marshal(settings); strings.Contains(string(b), "S3cret-of-"+action) && !slices.Contains(secretsIn(settings.(map[string]any)), "S3cret-of-"+action) {
				t.Errorf("%s: the secret of %s is not hidden", name, action)
			}
		}
	}
}
