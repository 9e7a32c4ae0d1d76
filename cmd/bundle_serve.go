// SPDX-License-Identifier: Apache-2.0

package cmd

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"yunion.io/x/ocadm/internal/bundle"
	"yunion.io/x/ocadm/internal/depot"
	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/internal/pki"
	"yunion.io/x/ocadm/phases/host"
	"yunion.io/x/ocadm/phases/kubernetes"
)

type bundleServer struct{ directory, listen, key string }

func newBundleServe(a *app) *cobra.Command {
	var s bundleServer
	c := &cobra.Command{
		Use: "serve FILE", Short: "Serve a bundle to other machines",
		Long: "Serves the content of a bundle over HTTPS, as the depot of a cluster does, before a cluster exists: images through the registry\n" +
			"protocol, and files by their paths. It does not need root. It unpacks the content into a directory, together with the CA certificate to\n" +
			"trust (ca.crt) and the token that clients present (token). Both stay the same when you run the command again. It prints the command\n" +
			"that installs the first node of a cluster from here.",
		Example: `  ocadm bundle serve ocadm.bundle

  # only a bundle that was signed with this key, on another port
  ocadm bundle serve ocadm.bundle --key public.pem --listen :7444

  # on another machine, with ca.crt and token copied from the directory
  curl --cacert ca.crt -H "Authorization: Bearer $(cat token)" -O https://10.0.0.9:6444/v1/files/linux/amd64/usr/local/bin/kubectl`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return withBundle(c.Context(), args[0], "", func(b *bundle.Bundle) error { return a.serveBundle(c.Context(), b, s) })
		},
	}
	c.Flags().StringVar(&s.directory, "directory", "", "directory for the content (default: FILE.depot)")
	c.Flags().StringVar(&s.listen, "listen", ":6444", "address to listen on")
	c.Flags().StringVar(&s.key, "key", "", "file with the Ed25519 public key, in PEM, of the signer of the bundle")
	return c
}

func (a *app) serveBundle(ctx context.Context, b *bundle.Bundle, s bundleServer) error {
	s.directory = cmp.Or(s.directory, b.Name()+".depot")
	if err := checkSignature(b, "--key", s.key); err != nil {
		return err
	}
	store, err := depot.Open(s.directory, 0)
	if err == nil {
		err = s.foreign()
	}
	if err != nil {
		return cannotServeBundle(err)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", s.listen)
	if err != nil {
		return cannotServeBundle(err)
	}
	defer func() { _ = l.Close() }() // Listen has already closed it, if it was called
	token, err := s.secrets(l.Addr())
	if err != nil {
		return cannotServeBundle(err)
	}
	a.redact.Add(token)
	err = a.withProgress("unpack", func(report func(done, total int64)) error { return store.Fill(ctx, "bundle", b, report) })
	if err != nil {
		return err
	}
	if err := s.print(a.Out, b, l.Addr(), token); err != nil {
		return cannotServeBundle(err)
	}
	certificate := depot.CertificateFiles(filepath.Join(s.directory, "tls.crt"), filepath.Join(s.directory, "tls.key"))
	access := &depot.Access{Tokens: depot.OneToken(token)}
	return depot.Listen(ctx, l, depot.ServerTLS(certificate, x509.NewCertPool()), depot.Handler(store, access)) // client certificates do not count
}

// print prints where the content is, and how the first node installs from it.
func (s bundleServer) print(w io.Writer, b *bundle.Bundle, address net.Addr, token string) error {
	ca := filepath.Join(s.directory, "ca.crt")
	raw, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	certs, err := pki.ParseCerts(raw)
	if err != nil {
		return err
	}
	if t, ok := address.(*net.TCPAddr); ok && t.IP.IsUnspecified() {
		if own := host.DefaultAddress(); own.IsValid() {
			address = net.TCPAddrFromAddrPort(netip.AddrPortFrom(own, t.AddrPort().Port()))
		}
	}
	_, err = fmt.Fprintf(w, "serving %s for %s on https://%s\nCA     %s\ntoken  %s\n\nTo install the first node from it, run there:\n\n"+
		"  ocadm init --bundle https://%s --bundle-ca-hash %s --bundle-token %s\n", b.Name(), strings.Join(b.Platforms(), " and "), address,
		ca, filepath.Join(s.directory, "token"), address, kubernetes.Pin(certs[0]), token)
	return err
}

// foreign returns an error if the directory belongs to another user, who could have chosen its token and authority.
func (s bundleServer) foreign() error {
	info, err := os.Stat(s.directory)
	if err != nil {
		return err
	}
	if owner, ok := info.Sys().(*syscall.Stat_t); ok && owner.Uid != 0 && int(owner.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, who could replace the token and the certificate in it", s.directory, owner.Uid)
	}
	return nil
}

// secrets creates the certificate and the token, unless valid ones exist.
func (s bundleServer) secrets(address net.Addr) (token string, err error) {
	names, err := ownNames(address)
	if err != nil {
		return "", err
	}
	raw, err := os.ReadFile(filepath.Join(s.directory, "token"))
	if token = strings.TrimSpace(string(raw)); errors.Is(err, fs.ErrNotExist) || err == nil && token == "" { // a power cut may have left it empty
		if token, err = kubernetes.GenerateToken(); err == nil {
			err = os.WriteFile(filepath.Join(s.directory, "token"), []byte(token+"\n"), 0o600)
		}
	}
	if err != nil {
		return "", err
	}
	old, err := tls.LoadX509KeyPair(filepath.Join(s.directory, "tls.crt"), filepath.Join(s.directory, "tls.key"))
	if err == nil && s.presents(old) && len(pki.Covers(old.Leaf, names)) == 0 && !pki.NeedsRenewal(old.Leaf, time.Now()) {
		return token, nil
	}
	return token, s.newCertificate(names)
}

// presents reports whether the CA in the chain is that of the file, from which the printed hash comes.
func (s bundleServer) presents(chain tls.Certificate) bool {
	raw, err := os.ReadFile(filepath.Join(s.directory, "ca.crt"))
	if err != nil || len(chain.Certificate) != 2 {
		return false
	}
	certs, err := pki.ParseCerts(raw)
	return err == nil && bytes.Equal(certs[0].Raw, chain.Certificate[1])
}

func (s bundleServer) newCertificate(names []string) error {
	ca, err := pki.NewCA(time.Now(), "ocadm-bundle", nil) // its key is used once
	if err != nil {
		return err
	}
	leaf, err := pki.Issue(ca, pki.Request{CommonName: "ocadm-bundle", Names: names, Usage: pki.Server, NotBefore: time.Now(), Small: true})
	if err != nil {
		return err
	}
	key, err := leaf.KeyPEM()
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(s.directory, "ca.crt"), ca.CertPEM(), 0o644), //nolint:gosec // not a secret
		os.WriteFile(filepath.Join(s.directory, "tls.key"), key, 0o600),
		os.WriteFile(filepath.Join(s.directory, "tls.crt"), append(leaf.CertPEM(), ca.CertPEM()...), 0o600), // a client that knows the hash of the CA looks for it here
	)
}

// ownNames returns the names and addresses by which clients may reach this machine.
func ownNames(listen net.Addr) ([]string, error) {
	names := []string{"localhost"}
	if name, err := os.Hostname(); err == nil {
		names = append(names, strings.ToLower(name))
	}
	if t, ok := listen.(*net.TCPAddr); ok && !t.IP.IsUnspecified() {
		return append(names, t.IP.String()), nil
	}
	list, err := net.InterfaceAddrs()
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			names = append(names, n.IP.String())
		}
	}
	return names, err
}

func cannotServeBundle(err error) error {
	return finding.Errorf("OCA-2329", "The bundle cannot be served",
		"give --directory one of your own that you can write to, and --listen a free address: ocadm bundle serve --help", "%w", err)
}
