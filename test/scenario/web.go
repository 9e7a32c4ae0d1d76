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
	"strings"
	"time"
)

// CA of the cloud, from the Secret the operator made.
func (j *Journey) CA(ctx context.Context) (*x509.CertPool, error) {
	out, err := j.Kubectl(ctx, "-n", "onecloud", "get", "secret", "default-certs", "-o", `jsonpath={.data.ca\.crt}`)
	if err != nil {
		return nil, err
	}
	pem, err := base64.StdEncoding.DecodeString(strings.TrimSpace(out))
	if err != nil {
		return nil, fmt.Errorf("decoding the CA: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, errors.New("the CA is no certificate")
	}
	return pool, nil
}

func client(pool *x509.CertPool) *http.Client {
	return &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
}

// Web fetches the console's page from port 443 of machine 1, verifying its certificate with the cloud's CA.
func (j *Journey) Web(ctx context.Context) (string, error) {
	pool, err := j.CA(ctx)
	if err != nil {
		return "", err
	}
	url := "https://" + j.Lab.Node(1).Address.String() + "/"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client(pool).Do(req)
	if err != nil {
		return "", fmt.Errorf("fetching the console: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("fetching %s: %s, %w", url, resp.Status, errors.Join(err, errors.New("want 200")))
	}
	return string(body), nil
}

var export = regexp.MustCompile(`(?m)^export (\w+)='?([^'\n]*)'?$`)

// RCAdmin returns the variables that "ocadm cluster rcadmin" prints.
func (j *Journey) RCAdmin(ctx context.Context) (map[string]string, error) {
	out, err := j.On(ctx, 1, Ocadm, "cluster", "rcadmin")
	if err != nil {
		return nil, err
	}
	vars := map[string]string{}
	for _, m := range export.FindAllStringSubmatch(out, -1) {
		vars[m[1]] = m[2]
	}
	if vars["OS_PASSWORD"] == "" {
		return nil, errors.New("rcadmin prints no password")
	}
	return vars, nil
}

// Login logs in through the API gateway with the account that rcadmin prints, and returns the token.
func (j *Journey) Login(ctx context.Context) (string, error) {
	vars, err := j.RCAdmin(ctx)
	if err != nil {
		return "", err
	}
	pool, err := j.CA(ctx)
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(map[string]string{
		"username": vars["OS_USERNAME"], "password": base64.StdEncoding.EncodeToString([]byte(vars["OS_PASSWORD"])), "domain": "Default",
	})
	if err != nil {
		return "", err
	}
	url := "https://" + net.JoinHostPort(j.Lab.Node(1).Address.String(), "30300") + "/api/v1/auth/login"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := client(pool).Do(req)
	if err != nil {
		return "", fmt.Errorf("logging in: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("logging in: %s: %s", resp.Status, bytes.TrimSpace(answer))
	}
	for _, c := range resp.Cookies() {
		if c.Value != "" {
			return c.Value, nil
		}
	}
	var token struct{ Token string }
	if err := json.Unmarshal(answer, &token); err == nil && token.Token != "" {
		return token.Token, nil
	}
	return "", errors.New("logging in: the answer holds no token")
}
