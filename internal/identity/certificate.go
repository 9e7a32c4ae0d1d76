// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// Certificate is a client certificate for a service, as PEM texts.
type Certificate struct {
	PEM, KeyPEM, CAPEM string
}

// EnsureCertificate stores a client certificate and returns its id. The stored name ends in a part of its fingerprint, so that a renewed certificate
// exists beside the old one until the endpoints refer to it. The next call removes those that no endpoint in the snapshot uses: the service does not check.
func (c *Client) EnsureCertificate(ctx context.Context, s *Snapshot, name string, want Certificate) (id string, changed bool, err error) {
	current := name + "-" + fmt.Sprintf("%x", sha256.Sum256([]byte(want.PEM)))[:8]
	r := c.Records(c.o.AuthURL)
	r.secrets = []string{want.KeyPEM}
	id, changed, err = r.Ensure(ctx, certificates, current, map[string]any{
		"certificate": want.PEM, "private_key": want.KeyPEM, "ca_certificate": want.CAPEM,
	})
	if err != nil || changed {
		return id, changed, err
	}
	all, err := list[ref](ctx, c, c.o.AuthURL, certificates.Plural, url.Values{})
	if err != nil {
		return id, false, err
	}
	for _, old := range all {
		if old.Name == current || !strings.HasPrefix(old.Name, name+"-") || s.usesCertificate(old.ID) {
			continue
		}
		q := request{op: "removing certificate " + old.Name, method: http.MethodDelete, url: join(c.o.AuthURL, certificates.Plural, old.ID)}
		if err := c.do(ctx, q, nil); err != nil && !IsNotFound(err) {
			return id, changed, err
		}
		changed = true
	}
	return id, changed, nil
}
