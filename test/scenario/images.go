// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/wait"
)

// The node ports of services that are called directly.
const (
	keystonePort = "30500"
	glancePort   = "30292"
	hostPort     = "8885"
)

// Session calls services of the cloud as its administrator, with a token from the identity service.
type Session struct {
	sc   *Scenario
	http *http.Client
	// agents calls the agents of other nodes: the certificate names the Services of the cloud, not every node.
	agents *http.Client
	token  string
}

// Session logs in with the account that rcadmin prints.
func (sc *Scenario) Session(ctx context.Context) (*Session, error) {
	vars, err := sc.RCAdmin(ctx)
	if err != nil {
		return nil, err
	}
	pool, err := sc.CA(ctx)
	if err != nil {
		return nil, err
	}
	s := &Session{sc: sc, http: client(pool, ""), agents: client(pool, "default-keystone")}
	domain := map[string]any{"name": "Default"}
	body := map[string]any{"auth": map[string]any{
		"identity": map[string]any{"methods": []string{"password"}, "password": map[string]any{
			"user": map[string]any{"name": vars["OS_USERNAME"], "password": vars["OS_PASSWORD"], "domain": domain},
		}},
		"scope": map[string]any{"project": map[string]any{"name": "system", "domain": domain}},
	}}
	response, err := s.call(ctx, http.MethodPost, sc.url(1, keystonePort, "/v3/auth/tokens"), body, nil)
	if err != nil {
		return nil, fmt.Errorf("logging in: %w", err)
	}
	s.token = response.Header.Get("X-Subject-Token")
	return s, nil
}

// call sends a body as JSON, or an image as raw bytes, and decodes the response.
func (s *Session) call(ctx context.Context, method, url string, body, out any) (*http.Response, error) {
	header := http.Header{"X-Auth-Token": {s.token}}
	if upload, raw := body.(image); raw {
		header.Set("X-Image-Meta-Name", upload.name)
		body = upload.content
	}
	via := s.http
	if strings.Contains(url, ":"+hostPort+"/") {
		via = s.agents
	}
	response, text, err := fetch(ctx, via, method, url, header, body)
	if err != nil || out == nil {
		return response, err
	}
	return response, json.Unmarshal(text, out)
}

type image struct {
	name    string
	content []byte
}

// Image is a record of glance. Probe is "done" if host-deployer could read its file on the node.
type Image struct{ ID, Status, Reason, Probe, Location string }

// Upload uploads an image and waits until glance has converted or rejected it, with the status "active" or "killed".
func (s *Session) Upload(ctx context.Context, name string, content []byte) (Image, error) {
	var answer struct{ Image Image }
	images := s.sc.url(1, glancePort, "/v1/images")
	if _, err := s.call(ctx, http.MethodPost, images, image{name, content}, &answer); err != nil {
		return Image{}, fmt.Errorf("uploading image %q: %w", name, err)
	}
	err := wait.Until(ctx, "image "+name, time.Second, func(ctx context.Context) (bool, string, error) {
		_, err := s.call(ctx, http.MethodGet, images+"/"+answer.Image.ID, nil, &answer)
		return answer.Image.Status != "saving", answer.Image.Status, err
	}, func(string) {})
	return answer.Image, err
}

// StartServer starts the stand-in for a server on a compute node, as a child of the executor there. It returns its pid on that machine.
func (s *Session) StartServer(ctx context.Context, node int, id string) (pid string, err error) {
	var answer struct{ PID string }
	_, err = s.call(ctx, http.MethodPost, s.sc.url(node, hostPort, "/servers/"+id+"/start"), nil, &answer)
	return answer.PID, err
}

// StopServer stops a server.
func (s *Session) StopServer(ctx context.Context, node int, id string) error {
	_, err := s.call(ctx, http.MethodPost, s.sc.url(node, hostPort, "/servers/"+id+"/stop"), nil, nil)
	return err
}

// Volume returns the location of a claim's volume: the name of the node and the directory there (local-path).
func (sc *Scenario) Volume(ctx context.Context, claim string) (node, dir string, err error) {
	name, err := sc.Kubectl(ctx, "-n", "onecloud", "get", "pvc", claim, "-o", "jsonpath={.spec.volumeName}")
	if err != nil {
		return "", "", err
	}
	out, err := sc.Kubectl(ctx, "get", "pv", strings.TrimSpace(name), "-o",
		"jsonpath={.spec.nodeAffinity.required.nodeSelectorTerms[0].matchExpressions[0].values[0]} {.spec.local.path}{.spec.hostPath.path}")
	if err != nil {
		return "", "", err
	}
	node, dir, found := strings.Cut(strings.TrimSpace(out), " ")
	if !found {
		return "", "", fmt.Errorf("claim %s: its volume %s is on no node: %q", claim, name, out)
	}
	return node, dir, nil
}
