// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/test/require"
)

// TestExplain checks that a user learns what keeps an API server from answering, and what to do.
func TestExplain(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://proxy.example.org:3128") // not for this machine
	answer := func(code int, reason, message string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"message":%q,"code":%d}`, reason, message, code)
		}
	}
	plugin := func(c *rest.Config) {
		c.ExecProvider = &clientcmdapi.ExecConfig{Command: "/nowhere/plugin", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
	}
	for name, c := range map[string]struct {
		handler              http.HandlerFunc
		change               func(*rest.Config)
		code, says, remedies string
	}{
		"starting":        {answer(503, "ServiceUnavailable", "apiserver not ready"), nil, "OCA-4203", "apiserver not ready", "ocadm why"},
		"etcd is slow":    {answer(504, "Timeout", "did not complete"), nil, "OCA-4203", "did not complete", "ocadm why"},
		"etcd is gone":    {answer(500, "", "etcdserver: request timed out"), nil, "OCA-4203", "request timed out", "ocadm why"},
		"too large":       {answer(500, "", "etcdserver: request is too large"), nil, "", "too large", ""},
		"overloaded":      {answer(429, "TooManyRequests", "too many requests"), nil, "OCA-4203", "too many requests", "ocadm why"},
		"expired token":   {answer(401, "Unauthorized", "Unauthorized"), nil, "OCA-4204", "Unauthorized", "--kubeconfig"},
		"other authority": {nil, func(c *rest.Config) { c.Insecure = false }, "OCA-4203", "cannot be verified", "kubeconfig of this cluster"},
		"no credentials":  {nil, plugin, "OCA-4203", "/nowhere/plugin", "user.exec"},
		"cut off": {func(w http.ResponseWriter, _ *http.Request) {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
		}, nil, "OCA-4203", "does not answer", "control plane runs"},
		"proxy": {nil, func(c *rest.Config) {
			c.Host = "https://192.0.2.1:6443"
			c.Proxy = http.ProxyURL(nil)
		}, "OCA-4203", "192.0.2.1:6443 does not answer", "$NO_PROXY,192.0.2.1"},
		"invalid value":        {answer(422, "Invalid", "spec.region.tag: Invalid value"), nil, "OCA-7006", "spec.region.tag", "the message names"},
		"refused by a webhook": {answer(500, "InternalError", `failed calling webhook "a"`), nil, "", "", ""},
	} {
		s := httptest.NewTLSServer(c.handler)
		s.Config.ErrorLog = nil
		cfg := &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
		if c.change != nil {
			c.change(cfg)
		}
		k, err := NewKnowing(cfg, []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ConfigMap")}, nil)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		err = k.Get(ctx, client.ObjectKey{Namespace: "a", Name: "b"}, &corev1.ConfigMap{})
		cancel()
		s.CloseClientConnections()
		s.Close()
		switch l := finding.Of(Explain(err)); {
		case c.code == "" && err != nil && len(l) == 0:
		case len(l) != 1 || l[0].Code != c.code || !strings.Contains(l[0].Error(), c.says) || !strings.Contains(l[0].Remedy, c.remedies):
			t.Errorf("%s: %+v, %v", name, l, err)
		}
	}
}
