// SPDX-License-Identifier: Apache-2.0

//go:build linux

package scenario

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/lists"
)

// CA returns the CA of the cloud, from the operator's Secret.
func (sc *Scenario) CA(ctx context.Context) (*x509.CertPool, error) {
	out, err := sc.Kubectl(ctx, "-n", "onecloud", "get", "secret", "default-certs", "-o", `jsonpath={.data.ca\.crt}`)
	if err != nil {
		return nil, err
	}
	pem, err := base64.StdEncoding.DecodeString(strings.TrimSpace(out))
	if err != nil {
		return nil, fmt.Errorf("decoding the CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("the CA is not a certificate")
	}
	return pool, nil
}

// Address returns the address of the cloud's certificates and console: the virtual address if there is one.
func (sc *Scenario) Address(ctx context.Context) (string, error) {
	return sc.Kubectl(ctx, "-n", "onecloud", "get", "oc", "default", "-o", "jsonpath={.spec.loadBalancerEndpoint}")
}

// fromOutside returns what a user's browser and tools have: the cloud's address, and a client that trusts the cloud's CA.
func (sc *Scenario) fromOutside(ctx context.Context) (address string, via *http.Client, err error) {
	pool, err := sc.CA(ctx)
	if err != nil {
		return "", nil, err
	}
	address, err = sc.Address(ctx)
	return address, client(pool, ""), err
}

func (sc *Scenario) url(node int, port, path string) string {
	return "https://" + net.JoinHostPort(sc.Lab.Node(node).Address.String(), port) + path
}

// client returns a client that trusts the cloud's CA. If name is set, certificates must be valid for it instead of the address.
func client(pool *x509.CertPool, name string) *http.Client {
	config := &tls.Config{RootCAs: pool, ServerName: name, MinVersion: tls.VersionTLS12}
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: config}}
}

// fetch sends bytes unchanged and anything else as JSON. It returns the response, whose status must be 200.
func fetch(ctx context.Context, via *http.Client, method, url string, header http.Header, body any) (*http.Response, []byte, error) {
	payload, raw := body.([]byte)
	kind := "application/octet-stream"
	if !raw && body != nil {
		var err error
		if payload, err = json.Marshal(body); err != nil {
			return nil, nil, err
		}
	}
	if !raw {
		kind = "application/json"
	}
	request, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(payload))
	if err != nil {
		return nil, nil, err
	}
	request.Header = header
	request.Header.Set("Content-Type", kind)
	response, err := via.Do(request)
	if err != nil {
		return nil, nil, fmt.Errorf("calling %s: %w", url, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("%s %s: %s: %.500s", method, url, response.Status, text)
	}
	return response, text, nil
}

// Web fetches the console's page from port 443 of the cloud's address and verifies its certificate with the cloud's CA.
func (sc *Scenario) Web(ctx context.Context) (string, error) {
	address, via, err := sc.fromOutside(ctx)
	if err != nil {
		return "", err
	}
	_, page, err := fetch(ctx, via, http.MethodGet, "https://"+net.JoinHostPort(address, "443")+"/", http.Header{}, nil)
	return string(page), err
}

// Ingress requests port 80 of machine 1 and returns the target of the redirect. Only the ingress controller listens there.
func (sc *Scenario) Ingress(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+sc.Lab.Node(1).Address.String()+"/", nil)
	if err != nil {
		return "", err
	}
	// No proxy: the machines are on a bridge of this host.
	via := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := via.Do(request)
	if err != nil {
		return "", fmt.Errorf("querying the ingress: %w", err)
	}
	return response.Header.Get("Location"), response.Body.Close()
}

var export = regexp.MustCompile(`(?m)^export (\w+)='?([^'\n]*)'?$`)

// RCAdmin returns the variables that "ocadm cluster rcadmin" prints.
func (sc *Scenario) RCAdmin(ctx context.Context) (map[string]string, error) {
	out, err := sc.On(ctx, 1, Ocadm, "cluster", "rcadmin")
	if err != nil {
		return nil, err
	}
	vars := lists.Index(export.FindAllStringSubmatch(out, -1), func(m []string) (string, string) { return m[1], m[2] })
	if vars["OS_PASSWORD"] == "" {
		return nil, errors.New("rcadmin prints no password")
	}
	return vars, nil
}

// Login logs in through the API gateway with the account that rcadmin prints, and returns the token.
func (sc *Scenario) Login(ctx context.Context) (string, error) {
	vars, err := sc.RCAdmin(ctx)
	if err != nil {
		return "", err
	}
	return sc.LoginAs(ctx, vars["OS_USERNAME"], vars["OS_PASSWORD"])
}

// LoginAs logs in through the API gateway and returns the token.
func (sc *Scenario) LoginAs(ctx context.Context, user, password string) (string, error) {
	address, via, err := sc.fromOutside(ctx)
	if err != nil {
		return "", err
	}
	login := "https://" + net.JoinHostPort(address, "30300") + "/api/v1/auth/login"
	resp, answer, err := fetch(ctx, via, http.MethodPost, login, http.Header{}, map[string]string{
		"username": user, "password": base64.StdEncoding.EncodeToString([]byte(password)), "domain": "Default",
	})
	if err != nil {
		return "", fmt.Errorf("logging in: %w", err)
	}
	var token struct{ Token string }
	if err := json.Unmarshal(answer, &token); err == nil && token.Token != "" {
		return token.Token, nil
	}
	if i := slices.IndexFunc(resp.Cookies(), func(c *http.Cookie) bool { return c.Value != "" }); i >= 0 {
		return resp.Cookies()[i].Value, nil
	}
	return "", errors.New("logging in: the response contains no token")
}
