// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
)

// The findings of a client.
const (
	CodeRefused     = "OCA-2312"
	CodeUnreachable = "OCA-2313"
	CodeWrongBlob   = "OCA-2314"
)

// Client downloads from a depot.
type Client struct {
	address string
	fetcher fetch.Fetcher
}

// NewClient is for the depot at an address such as "https://10.0.0.1:6444". The fetcher's HTTP client has the authorities, and the client
// certificate if there is one; token, which may be empty, is a bootstrap token.
func NewClient(address, token string, f fetch.Fetcher) *Client {
	if token != "" {
		f.Header = http.Header{"Authorization": {"Bearer " + token}}
	}
	return &Client{strings.TrimSuffix(address, "/"), f}
}

// Contents are the names that the depot has.
func (c *Client) Contents(ctx context.Context) (Root, error) {
	var r Root
	raw, err := c.fetcher.Document(ctx, c.address+contentsPath, maxDocument)
	if err == nil {
		err = json.Unmarshal(raw, &r)
	}
	return r, c.explain(ctx, "the list of the depot's contents", err)
}

// Blob downloads a blob to a file. It goes on with a part of it that lies there.
func (c *Client) Blob(ctx context.Context, h v1.Hash, to string, p fetch.Progress) error {
	return c.explain(ctx, h.String(), c.fetcher.Fetch(ctx, c.address+blobPrefix+h.String(), to, h.Hex, p))
}

// explain makes a finding of an error.
func (c *Client) explain(ctx context.Context, what string, err error) error {
	var status *fetch.StatusError
	var other *fetch.DigestError
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.As(err, &other):
		return finding.Errorf(CodeWrongBlob, fmt.Sprintf("The depot at %s sent something else than %s", c.address, what),
			"run the command again; if it repeats, give --bundle FILE", "%w", err)
	case errors.As(err, &status) && (status.Code == http.StatusUnauthorized || status.Code == http.StatusTooManyRequests):
		return finding.Errorf(CodeRefused, "The depot at "+c.address+" refuses the token",
			"on a control-plane node, run: ocadm token create --print-join-command", "%w", err)
	}
	return finding.Errorf(CodeUnreachable, fmt.Sprintf("%s cannot be downloaded from the depot at %s", what, c.address),
		"see that this machine reaches that address; then run the command again, or give --bundle FILE", "%w", err)
}
