// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/aes"
	"encoding/base64"
	"net/http"
	"strings"
)

// WebLogin logs in at the gateway of the web console with this client's account, as a browser does; baseURL is its base URL, such as
// https://default-apigateway:30300. It returns what the gateway did: it may refuse an account that may not use the console.
func (c *Client) WebLogin(ctx context.Context, baseURL string) (string, error) {
	base := strings.TrimSuffix(baseURL, "/") + "/api/v1/auth/"
	// The gateway treats a longer password as AES-CBC text, and aborts unless it consists of whole blocks.
	if n := len(c.o.Password); n > aes.BlockSize && n%aes.BlockSize != 0 {
		_, err := c.send(ctx, request{op: "reading the regions from the gateway", method: http.MethodGet, url: base + "regions"}, "", nil)
		return "lists its regions", err
	}
	body := map[string]string{"username": c.o.Username, "password": base64.StdEncoding.EncodeToString([]byte(c.o.Password)), "domain": c.o.Domain}
	_, err := c.send(ctx, request{op: "logging in at the gateway", method: http.MethodPost, url: base + "login", body: body, secrets: []string{c.o.Password}}, "", nil)
	if isStatus(err, http.StatusForbidden) {
		return "denies " + c.o.Username + " access to the console", nil
	}
	return "logs in", err
}
