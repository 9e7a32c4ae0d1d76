// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"yunion.io/x/ocadm/api/v1alpha1"
	"yunion.io/x/ocadm/operatorctl/component"
	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/integration/harness"
	"yunion.io/x/ocadm/test/require"
)

// session calls services of the cloud as its administrator.
type session struct {
	e     *cloudTest
	http  *http.Client
	token string
}

func (e *cloudTest) session() *session {
	e.Helper()
	certs := &corev1.Secret{}
	e.Get(certs, cloud+"-"+v1alpha1.SecretCerts)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(certs.Data["ca.crt"])
	transport := &http.Transport{DialContext: e.Pods.Dial, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	e.Cleanup(transport.CloseIdleConnections)
	s := &session{e: e, http: &http.Client{Transport: transport}}
	login := fmt.Sprintf(`{"auth":{"identity":{"methods":["password"],"password":{"user":{"name":"sysadmin","password":%q,"domain":{"name":"Default"}}}},
		"scope":{"project":{"name":"system","domain":{"name":"Default"}}}}}`, e.Credentials()[component.BootstrapPassword])
	header, _ := s.call(http.MethodPost, "https://default-keystone.onecloud.svc:30357/v3/auth/tokens", []byte(login), nil)
	s.token = header.Get("X-Subject-Token")
	return s
}

// call returns the response of a call that must succeed.
func (s *session) call(method, url string, body []byte, header map[string]string) (http.Header, map[string]any) {
	s.e.Helper()
	ctx, cancel := context.WithTimeout(s.e.Context(), env.Patience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	require.NoError(s.e, err)
	request.Header.Set("X-Auth-Token", s.token)
	if header == nil {
		request.Header.Set("Content-Type", "application/json")
	}
	for key, value := range header {
		request.Header.Set(key, value)
	}
	response, err := s.http.Do(request)
	require.NoError(s.e, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		s.e.Fatalf("%s %s: %s %.500s, %v", method, url, response.Status, text, err)
	}
	var answer map[string]any
	require.NoError(s.e, json.Unmarshal(text, &answer))
	return response.Header, answer
}

// masters checks that region asks Kubernetes with the token of its own account, which permits only that.
func (e *cloudTest) masters() {
	node := &corev1.Node{}
	require.NoError(e, e.Client.Get(e.Context(), types.NamespacedName{Name: "node1"}, node))
	for _, patch := range []struct {
		to   client.SubResourceWriter
		text string
	}{
		{nil, `{"metadata":{"labels":{"node-role.kubernetes.io/master":""}}}`},
		{e.Client.Status(), `{"status":{"addresses":[{"type":"Hostname","address":"node1"},{"type":"InternalIP","address":"192.0.2.11"}]}}`},
	} {
		raw := client.RawPatch(types.MergePatchType, []byte(patch.text))
		var err error
		if patch.to == nil {
			err = e.Client.Patch(e.Context(), node, raw)
		} else {
			err = patch.to.Patch(e.Context(), node, raw)
		}
		require.NoError(e, err)
	}
	begin := e.Mark()
	_, answer := e.session().call(http.MethodGet, "https://default-region.onecloud.svc:30888/hosts/k8s-master-node-ips", nil, nil)
	if fmt.Sprint(answer["host"]) != "map[ips:[192.0.2.11]]" {
		e.Errorf("%v", answer)
	}
	requests := e.Requests(begin, harness.Filter{User: "system:serviceaccount:onecloud:onecloud-region"})
	if len(requests) != 1 || requests[0].Verb != "list" || requests[0].Resource != "nodes" || requests[0].Code != http.StatusOK {
		e.Errorf("region asked Kubernetes: %v", requests)
	}
}

// images checks that uploaded images are in the claim, and are available to the next pod.
func (e *cloudTest) images() {
	const images = "https://default-glance.onecloud.svc:30292/v1/images"
	content := []byte(strings.Repeat("bytes of an image ", 1000))
	s := e.session()
	_, answer := s.call(http.MethodPost, images, content, map[string]string{"X-Image-Meta-Name": "cirros"})
	id := fmt.Sprint(answer["image"].(map[string]any)["id"])
	deadline := time.Now().Add(env.Patience)
	for {
		_, answer = s.call(http.MethodGet, images+"/"+id, nil, nil)
		if image := answer["image"].(map[string]any); image["status"] == "active" {
			break
		}
		if time.Now().After(deadline) {
			e.Fatalf("%v", answer)
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, suffix := range []string{"", ".qcow2"} {
		file := filepath.Join(e.Pods.Claim("default-glance"), "images", id+suffix)
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, content) {
			e.Errorf("%s has %d bytes, %v", file, len(got), err)
		}
	}
}
