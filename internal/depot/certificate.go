// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/disk"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/internal/wait"
)

// CodeNoIssuer is the finding code of a certificate that cannot be issued because the CA key is elsewhere.
const CodeNoIssuer = "OCA-2319"

// Issuer issues and renews the depot's serving certificate. Its CA is that of the cluster.
type Issuer struct {
	// CACert and CAKey are the files of the CA.
	CACert, CAKey string
	// File holds the certificate followed by its key, in PEM. A single file is replaced atomically, so certificate and key always match.
	File string
	// Names are the host names and addresses that clients use for the depot.
	Names []string
}

// Good reports whether the current certificate needs no renewal.
func (i Issuer) Good(now time.Time) (bool, error) {
	why, _, err := i.problem(now)
	return why == "", err
}

// problem returns why a new certificate is needed, "" if the current one is good, and whether clients still accept the current one.
func (i Issuer) problem(now time.Time) (why string, accepted bool, _ error) {
	ca, err := authorities(i.CACert)
	if err != nil {
		return "", false, err
	}
	raw, err := os.ReadFile(i.File)
	if errors.Is(err, fs.ErrNotExist) {
		return "it does not exist", false, nil
	} else if err != nil {
		return "", false, fmt.Errorf("reading the depot's certificate: %w", err)
	}
	pair, err := pki.ParsePair(raw, raw)
	if err != nil {
		return "it is damaged", false, nil //nolint:nilerr // reported as why
	}
	switch missing := pki.Covers(pair.Cert, i.Names); {
	case !pki.SignedBy(pair.Cert, ca[0]):
		return "it is not signed by the cluster's certificate authority", false, nil
	case len(missing) > 0:
		return "it lacks " + strings.Join(missing, ", "), false, nil
	case now.Before(pair.Cert.NotBefore):
		return "it is not valid before " + pair.Cert.NotBefore.Format(time.RFC3339), false, nil
	case pki.NeedsRenewal(pair.Cert, now):
		return "it is valid until " + pair.Cert.NotAfter.Format(time.RFC3339), now.Before(pair.Cert.NotAfter), nil
	}
	return "", true, nil
}

// Renew issues a new certificate if needed and returns why, "" if nothing was changed. If the CA key is elsewhere, a certificate that clients still
// accept is kept.
func (i Issuer) Renew(now time.Time) (why string, err error) {
	why, accepted, err := i.problem(now)
	if why == "" || err != nil {
		return "", err
	}
	ca, err := i.signer()
	if errors.Is(err, fs.ErrNotExist) && accepted {
		return "", nil
	}
	if err != nil {
		return "", finding.Errorf(CodeNoIssuer, "The certificate of the depot cannot be issued",
			fmt.Sprintf("put the authority's key back, or put a certificate for %s that it has signed, and its key, into %s; or give --depot none",
				strings.Join(i.Names, ", "), i.File), "%w", err)
	}
	leaf, err := pki.Issue(ca, pki.Request{CommonName: "ocadm-depot", Names: i.Names, Usage: pki.Server, NotBefore: now, Small: true})
	if err != nil {
		return "", err
	}
	key, err := leaf.KeyPEM()
	if err == nil {
		err = disk.Replace(i.File, slices.Concat(leaf.CertPEM(), key))
	}
	if err != nil {
		return "", fmt.Errorf("writing the depot's certificate: %w", err)
	}
	return why, nil
}

// Keep renews the certificate in time, until ctx ends.
func (i Issuer) Keep(ctx context.Context, every time.Duration) {
	for {
		switch why, err := i.Renew(time.Now()); {
		case err != nil:
			slog.Error("the depot's certificate cannot be renewed", "err", err)
		case why != "":
			slog.Info("the depot has a new certificate", "because", why)
		}
		if wait.Sleep(ctx, every) != nil {
			return
		}
	}
}

func (i Issuer) signer() (pki.Pair, error) {
	cert, err := os.ReadFile(i.CACert)
	if err != nil {
		return pki.Pair{}, fmt.Errorf("reading the cluster's certificate authority: %w", err)
	}
	key, err := os.ReadFile(i.CAKey)
	if err != nil {
		return pki.Pair{}, fmt.Errorf("reading the key of the cluster's certificate authority: %w", err)
	}
	return pki.ParsePair(cert, key)
}
