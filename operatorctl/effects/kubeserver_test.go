// SPDX-License-Identifier: Apache-2.0

package effects

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path"
	"slices"
	"strings"
	"testing"

	"yunion.io/x/ocadm/internal/identity"
	"yunion.io/x/ocadm/operatorctl/component"
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
	if err != nil {
		t.Fatal(err)
	}
	return session{Clients: Clients{URL: func(string) string { return srv.URL + "/api" }}, id: id}
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
