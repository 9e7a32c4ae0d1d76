// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
)

// Finding codes of the client.
const (
	CodeRefused     = "OCA-2312"
	CodeUnreachable = "OCA-2313"
	CodeWrongBlob   = "OCA-2314"
	CodeNoBlob      = "OCA-2318"
	// CodeNoArchitecture is the code for a depot that has other architectures only.
	CodeNoArchitecture = "OCA-2334"
)

// Client downloads from a depot.
type Client struct {
	address string
	fetcher fetch.Fetcher
}

// NewClient returns a client for the depot at an address such as "https://10.0.0.1:6444". The fetcher's HTTP client holds the CA certificates, and
// the client certificate if there is one; token, which may be empty, is a bootstrap token.
func NewClient(address, token string, f fetch.Fetcher) *Client {
	if token != "" {
		f.Header = http.Header{"Authorization": {"Bearer " + token}}
	}
	return &Client{strings.TrimSuffix(address, "/"), f}
}

func (c *Client) Contents(ctx context.Context) (r Listing, err error) {
	err = c.list(ctx, contentsPath, "contents", &r)
	return r, err
}

// Roots returns the roots that the depot has, including removed ones.
func (c *Client) Roots(ctx context.Context) (list []Root, err error) {
	err = c.list(ctx, rootsPath, "roots", &list)
	return list, err
}

func (c *Client) list(ctx context.Context, path, what string, into any) error {
	raw, err := c.fetcher.Document(ctx, c.address+path, maxDocument)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	return c.explain(ctx, "the list of the depot's "+what, err)
}

// Blob downloads a blob to a writer, and resumes after a broken connection. count receives the number of bytes as they arrive.
func (c *Client) Blob(ctx context.Context, h v1.Hash, w io.Writer, count func(int64)) error {
	err := c.fetcher.Copy(ctx, c.address+blobPrefix+h.String(), w, h.Hex, count)
	var status *fetch.StatusError
	if ctx.Err() == nil && errors.As(err, &status) && status.Code == http.StatusNotFound {
		return finding.Errorf(CodeNoBlob, fmt.Sprintf("The depot at %s no longer has %s", c.address, h),
			"on the control plane, run: ocadm init phase depot --bundle FILE; then run the command again", "%w", err)
	}
	return c.explain(ctx, h.String(), err)
}

// Open returns a reader that downloads a blob. Reading fails at the end if the content is wrong.
func (c *Client) Open(ctx context.Context, h v1.Hash) io.ReadCloser {
	ctx, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	go func() { w.CloseWithError(c.Blob(ctx, h, w, func(int64) {})) }()
	return stream{r, cancel}
}

// stream cancels its download when it is closed.
type stream struct {
	*io.PipeReader
	cancel context.CancelFunc
}

func (s stream) Close() error {
	s.cancel()
	return s.PipeReader.Close()
}

func (c *Client) document(ctx context.Context, d v1.Descriptor, into any) error {
	if d.Size > maxDocument {
		return fmt.Errorf("reading the manifest %s: it is larger than %d bytes", d.Digest, maxDocument)
	}
	var raw bytes.Buffer
	if err := c.Blob(ctx, d.Digest, &raw, func(int64) {}); err != nil {
		return err
	}
	if err := json.Unmarshal(raw.Bytes(), into); err != nil {
		return fmt.Errorf("reading the manifest %s of the depot at %s: %w", d.Digest, c.address, err)
	}
	return nil
}

func (c *Client) explain(ctx context.Context, what string, err error) error {
	var status *fetch.StatusError
	var other *fetch.DigestError
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case errors.As(err, &other):
		return finding.Errorf(CodeWrongBlob, fmt.Sprintf("The depot at %s sent something other than %s", c.address, what),
			"run the command again; if it repeats, give --bundle FILE", "%w", err)
	case errors.As(err, &status) && status.Code == http.StatusUnauthorized:
		return finding.Errorf(CodeRefused, "The depot at "+c.address+" refuses the token",
			"on a control-plane node, run: ocadm token create --print-join-command", "%w", err)
	case errors.As(err, &status) && status.Code == http.StatusTooManyRequests:
		return finding.Errorf(CodeUnreachable, "The depot at "+c.address+" makes this machine wait after wrong tokens from its address",
			"wait a minute; then run the command again", "%w", err)
	}
	return finding.Errorf(CodeUnreachable, fmt.Sprintf("%s cannot be downloaded from the depot at %s", what, c.address), reach, "%w", err)
}

const reach = "make sure that this machine can reach that address; then run the command again, or give --bundle FILE; --depot none downloads from the internet"

// Unreachable returns the finding for a depot that does not answer at all.
func (c *Client) Unreachable(err error) error {
	return finding.Errorf(CodeUnreachable, "The depot at "+c.address+" cannot be reached", reach, "%w", err)
}
