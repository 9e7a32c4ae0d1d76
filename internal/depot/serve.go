// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Paths outside the OCI distribution protocol.
const (
	contentsPath = "/v1/contents"
	rootsPath    = "/v1/roots"
	filePrefix   = "/v1/files/"
	blobPrefix   = "/v1/blobs/"
)

// Paths that anybody may read: HealthPath is for probes, AuthorityPath for clients that know a digest of the CA certificate.
const (
	HealthPath    = "/healthz"
	AuthorityPath = "/ca.crt"
)

// Handler serves a store read-only to clients that access allows. Below /v2/ it is a registry. Its name for an image is the query parameter "ns",
// which containerd sends to a mirror, followed by the path, or else the path alone. It lists neither repositories nor tags.
//
//	/v1/contents     names, digests and sizes, as a Listing in JSON
//	/v1/roots        the roots, for the depot of another control-plane node
//	/v1/files/NAME   a file
//	/v1/blobs/DIGEST a blob
//	/healthz         an empty answer, to everybody
//	/ca.crt          the authority of the server in PEM, to everybody
func Handler(s *Store, a *Access) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED")
			return
		}
		if r.URL.Path == AuthorityPath && len(a.Authority) > 0 {
			w.Header().Set("Content-Type", "application/x-pem-file")
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(a.Authority))
			return
		}
		if r.URL.Path == HealthPath || !a.allow(w, r) {
			return
		}
		t, ok := parse(r.URL.Path, r.URL.Query().Get("ns"))
		if !ok {
			refuse(w, http.StatusNotFound, "NAME_UNKNOWN")
			return
		}
		serve(w, r, s, t, a.isNode(r))
	})
}

// kind is the kind of object that a path names.
type kind int

const (
	base kind = iota
	contents
	roots
	file
	blob
	manifest
)

// target is the object that a request asks for.
type target struct {
	kind kind
	// name is the name of a file, or of an image without tag.
	name string
	// registry reports whether the name begins with the registry that the client named.
	registry bool
	// tag or digest identifies a manifest, digest a blob.
	tag    string
	digest v1.Hash
}

// The forms of names: https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pulling-manifests
var (
	repositoryName = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagName        = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}$`)
	registryName   = regexp.MustCompile(`^[a-zA-Z0-9]+([.-][a-zA-Z0-9]+)*(:[0-9]{1,5})?$`)
)

const maxName = 255

// parse parses a path, and the registry that it is for.
func parse(path, registry string) (target, bool) {
	if name, ok := strings.CutPrefix(path, filePrefix); ok {
		return target{kind: file, name: name}, fs.ValidPath(name) && name != "."
	}
	if digest, ok := strings.CutPrefix(path, blobPrefix); ok {
		h, err := v1.NewHash(digest)
		return target{kind: blob, digest: h}, err == nil
	}
	switch path {
	case contentsPath:
		return target{kind: contents}, true
	case rootsPath:
		return target{kind: roots}, true
	case "/v2/", "/v2":
		return target{kind: base}, true
	}
	rest, ok := strings.CutPrefix(path, "/v2/")
	if !ok {
		return target{}, false
	}
	rest, ref, ok := cutLast(rest)
	if !ok {
		return target{}, false
	}
	name, what, ok := cutLast(rest)
	if !ok || len(name) > maxName || !repositoryName.MatchString(name) {
		return target{}, false
	}
	if registry != "" {
		if len(registry) > maxName || !registryName.MatchString(registry) {
			return target{}, false
		}
		name = registry + "/" + name
	}
	known := registry != ""
	h, err := v1.NewHash(ref)
	switch {
	case what == "blobs" && err == nil:
		return target{kind: blob, digest: h}, true
	case what == "manifests" && err == nil:
		return target{kind: manifest, name: name, registry: known, digest: h}, true
	case what == "manifests" && tagName.MatchString(ref):
		return target{kind: manifest, name: name, registry: known, tag: ref}, true
	}
	return target{}, false
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '/')
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}

func serve(w http.ResponseWriter, r *http.Request, s *Store, t target, node bool) {
	w.Header().Set("Docker-Distribution-API-Version", "registry/2.0")
	switch t.kind {
	case base:
		answer(w, r, struct{}{}, nil)
	case contents:
		c, err := s.Contents(r.Context())
		answer(w, r, Listing{c, s.inUse(r.Context())}, err)
	case roots:
		list, err := s.allRoots()
		answer(w, r, list, err)
	case file:
		c, err := s.Contents(r.Context())
		f, ok := c.Files[t.name]
		if err == nil && !ok {
			err = ErrAbsent
		}
		if err != nil {
			failed(w, r, err, "NAME_UNKNOWN")
			return
		}
		serveBlob(w, r, s, f.Digest, "application/octet-stream", "BLOB_UNKNOWN")
	case blob:
		serveBlob(w, r, s, t.digest, "application/octet-stream", "BLOB_UNKNOWN")
	case manifest:
		serveManifest(w, r, s, t, node)
	}
}

// Listing is the response to a request for the depot's contents.
type Listing struct {
	Root
	// InUse lists images of the cluster's pods, as far as the depot knows them.
	InUse []string `json:"inUse,omitempty"`
}

func (s *Store) inUse(ctx context.Context) []string {
	if s.InUse == nil {
		return nil
	}
	list, err := s.InUse(ctx)
	if err != nil {
		slog.Warn("the depot cannot determine which images are in use", "err", err)
	}
	return list
}

// serveManifest serves only known manifests: a client would accept any JSON as one.
func serveManifest(w http.ResponseWriter, r *http.Request, s *Store, t target, node bool) {
	c, err := s.joined(r.Context())
	if err != nil {
		failed(w, r, err, "MANIFEST_UNKNOWN")
		return
	}
	d, ok := c.contents.Images[t.name+":"+t.tag]
	if t.tag == "" {
		d, ok = s.manifest(r.Context(), c.contents, t.digest)
	}
	if s.Upstream != nil && node && t.registry {
		ok = s.Upstream.asked(r.Context(), t, c, d, ok)
	}
	if !ok {
		failed(w, r, ErrAbsent, "MANIFEST_UNKNOWN")
		return
	}
	if r.Method == http.MethodGet { // once for each pull
		slog.Info("the depot serves an image", "image", t.name, "digest", d.Digest, "to", r.RemoteAddr)
	}
	serveBlob(w, r, s, d.Digest, d.MediaType, "MANIFEST_UNKNOWN")
}

// manifest finds a manifest by digest: that of an image, or one that an index names.
func (s *Store) manifest(ctx context.Context, c Root, digest v1.Hash) (v1.Descriptor, bool) {
	for _, d := range c.Images {
		if d.Digest == digest {
			return d, true
		}
	}
	for _, d := range c.Images {
		if m, there := s.named(ctx, d, digest); there {
			return m, true
		}
	}
	return v1.Descriptor{}, false
}

func (s *Store) named(ctx context.Context, d v1.Descriptor, digest v1.Hash) (v1.Descriptor, bool) {
	var index v1.IndexManifest
	if !d.MediaType.IsIndex() || s.read(ctx, d.Digest, &index) != nil {
		return v1.Descriptor{}, false
	}
	i := slices.IndexFunc(index.Manifests, func(m v1.Descriptor) bool { return m.Digest == digest })
	if i < 0 {
		return v1.Descriptor{}, false
	}
	return index.Manifests[i], true
}

func serveBlob(w http.ResponseWriter, r *http.Request, s *Store, h v1.Hash, mediaType types.MediaType, absent string) {
	f, err := s.Blob(r.Context(), h)
	if err != nil {
		failed(w, r, err, absent)
		return
	}
	defer func() { _ = f.Close() }() // opened only for reading
	w.Header().Set("Content-Type", string(mediaType))
	w.Header().Set("Docker-Content-Digest", h.String())
	w.Header().Set("Etag", `"`+h.String()+`"`)
	http.ServeContent(w, r, "", time.Time{}, f)
}

// failed answers a failed request. It logs errors of the store; the client receives only the status.
func failed(w http.ResponseWriter, r *http.Request, err error, absent string) {
	if errors.Is(err, ErrAbsent) {
		if !errors.Is(err, context.Canceled) && err.Error() != ErrAbsent.Error() {
			slog.Warn("the depot cannot serve", "path", r.URL.Path, "err", err)
		}
		refuse(w, http.StatusNotFound, absent)
		return
	}
	slog.Error("the depot cannot serve", "path", r.URL.Path, "err", err)
	refuse(w, http.StatusInternalServerError, "UNKNOWN")
}

// refuse answers with an error as the distribution protocol defines it.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []any{map[string]string{"code": code, "message": strings.ToLower(http.StatusText(status))}}})
}

// answer sends a JSON document, or handles the error of making it.
func answer(w http.ResponseWriter, r *http.Request, v any, err error) {
	if err != nil {
		failed(w, r, err, "UNKNOWN")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // fails only if the client is gone
}

// ServerTLS returns the configuration of a server that presents a certificate, and accepts client certificates signed by one of the CAs. A client
// without one may send a token instead.
func ServerTLS(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), clients *x509.CertPool) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: certificate, ClientAuth: tls.VerifyClientCertIfGiven, ClientCAs: clients}
}
