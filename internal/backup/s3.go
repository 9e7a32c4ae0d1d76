// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3Config identifies a bucket of an S3-compatible object store.
type S3Config struct {
	// Endpoint is host or host:port; Plain uses HTTP instead of HTTPS.
	Endpoint string `json:"endpoint"`
	Plain    bool   `json:"plain,omitempty"`
	Region   string `json:"region,omitempty"`
	Bucket   string `json:"bucket"`
	Prefix   string `json:"prefix,omitempty"`

	// CA holds PEM-encoded CA certificates to trust in addition to those of this machine.
	CA string `json:"ca,omitempty"`

	AccessKey string `json:"accessKey"`
	SecretKey string `json:"secretKey"`

	// Transport replaces the network in tests.
	Transport http.RoundTripper `json:"-"`
}

// s3PartSize is the memory used by one upload. A file has at most 10,000 parts.
const s3PartSize = 32 << 20

// S3 is a store in a bucket, which must exist.
type S3 struct {
	cfg    S3Config
	client *minio.Client
}

// lookTimeout limits the check for the bucket, because the client retries often and for long.
const lookTimeout = 45 * time.Second

// NewS3 returns the store after checking that the bucket exists.
func NewS3(ctx context.Context, cfg S3Config) (*S3, error) {
	if err := cfg.trust(); err != nil {
		return nil, err
	}
	c, err := minio.New(cfg.Endpoint, &minio.Options{
		Creds: credentials.NewStaticV4(cfg.AccessKey, cfg.SecretKey, ""), Secure: !cfg.Plain, Region: cfg.Region, Transport: cfg.Transport,
		BucketLookupViaURL: lookup,
	})
	if err != nil {
		return nil, fmt.Errorf("using object store %q: %w", cfg.Endpoint, err)
	}
	s := &S3{cfg: cfg, client: c}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	there, err := c.BucketExists(ctx, cfg.Bucket)
	if err != nil {
		return nil, fmt.Errorf("looking for the bucket of %s: %w", s, err)
	}
	if !there {
		return nil, fmt.Errorf("looking for the bucket of %s: %w", s, errNoBucket)
	}
	return s, nil
}

// bucketInHost matches stores of Tencent, Huawei and Volcengine, which want the bucket in the name of the host. Sources: issue 7512 of grafana/mimir, issue 973
// of rancher/backup-restore-operator, pull request 1734 of minio/minio-go. The client knows others.
var bucketInHost = regexp.MustCompile(`\.(myqcloud\.com|tencentcos\.cn|myhuaweicloud\.(com|eu)|volces\.com)$`)

func lookup(at url.URL, _ string) minio.BucketLookupType {
	if bucketInHost.MatchString(at.Hostname()) {
		return minio.BucketLookupDNS
	}
	return minio.BucketLookupAuto
}

// trust sets a transport that trusts the certificates of CA.
func (cfg *S3Config) trust() error {
	if cfg.CA == "" || cfg.Transport != nil {
		return nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM([]byte(cfg.CA)) {
		return errors.New("reading the CA of the object store: it contains no certificate in PEM")
	}
	t, err := minio.DefaultTransport(true)
	if err != nil {
		return fmt.Errorf("reading the CA of the object store: %w", err)
	}
	t.TLSClientConfig = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	cfg.Transport = t
	return nil
}

// String returns the location, without the keys.
func (cfg S3Config) String() string {
	return "s3://" + path.Join(cfg.Bucket, cfg.Prefix) + " at " + cfg.Endpoint
}

func (s *S3) String() string { return s.cfg.String() }

func (s *S3) key(name string) string { return path.Join(s.cfg.Prefix, name) }

// Create implements Store. An upload that is not committed is also aborted in the store, where its parts would cost money.
func (s *S3) Create(ctx context.Context, name string) (File, error) {
	uploading, cancel := context.WithCancel(ctx)
	r, w := io.Pipe()
	f := &s3File{PipeWriter: w, cancel: cancel, done: make(chan struct{})}
	f.discard = func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_ = s.client.RemoveIncompleteUpload(ctx, s.cfg.Bucket, s.key(name)) // Clean tries again
	}
	go func() {
		_, err := s.client.PutObject(uploading, s.cfg.Bucket, s.key(name), r, -1, minio.PutObjectOptions{
			PartSize: s3PartSize, ContentType: "application/octet-stream",
			SendContentMd5: true, DisableContentSha256: true, // buckets with Object Lock need the first, and not every store knows signed chunks
		})
		if err != nil {
			err = fmt.Errorf("uploading %s to %s: %w", name, s, err)
		}
		_ = r.CloseWithError(err)
		f.err = err
		close(f.done)
	}()
	return f, nil
}

type s3File struct {
	*io.PipeWriter
	cancel, discard func()
	done            chan struct{}
	err             error // valid once done is closed
	ended           bool
}

func (f *s3File) Commit() error {
	_ = f.Close()
	<-f.done
	if f.err != nil {
		f.Abort()
	}
	f.ended = true
	f.cancel()
	return f.err
}

// Abort does not leave it to the client to abort the upload: when the context has ended, it cannot.
func (f *s3File) Abort() {
	if f.ended {
		return
	}
	f.ended = true
	_ = f.CloseWithError(errors.New("the backup was not finished"))
	f.cancel()
	<-f.done
	f.discard()
}

func (s *S3) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	o, err := s.client.GetObject(ctx, s.cfg.Bucket, s.key(name), minio.GetObjectOptions{})
	if err == nil {
		if _, err = o.Stat(); err == nil {
			return o, nil
		}
		_ = o.Close()
	}
	if minio.ToErrorResponse(err).Code == minio.NoSuchKey {
		err = fs.ErrNotExist
	}
	return nil, fmt.Errorf("reading %s in %s: %w", name, s, err)
}

func (s *S3) Names(ctx context.Context) ([]string, error) {
	prefix := ""
	if s.cfg.Prefix != "" {
		prefix = strings.Trim(s.cfg.Prefix, "/") + "/"
	}
	var out []string
	for o := range s.client.ListObjects(ctx, s.cfg.Bucket, minio.ListObjectsOptions{Prefix: prefix}) {
		if o.Err != nil {
			return nil, fmt.Errorf("listing %s: %w", s, o.Err)
		}
		if name := strings.TrimPrefix(o.Key, prefix); !strings.Contains(name, "/") {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out, nil
}

func (s *S3) Remove(ctx context.Context, name string) error {
	if err := s.client.RemoveObject(ctx, s.cfg.Bucket, s.key(name), minio.RemoveObjectOptions{}); err != nil {
		return fmt.Errorf("removing %s in %s: %w", name, s, err)
	}
	return nil
}

// Clean implements Store. Keys that may not list uploads, and stores without such lists, are good enough for a backup.
func (s *S3) Clean(ctx context.Context, prefix string) error {
	for u := range s.client.ListIncompleteUploads(ctx, s.cfg.Bucket, s.cfg.Prefix, true) {
		if slices.Contains([]string{minio.AccessDenied, minio.NotImplemented}, minio.ToErrorResponse(u.Err).Code) {
			return nil
		}
		if u.Err != nil {
			return fmt.Errorf("cleaning up %s: %w", s, u.Err)
		}
		if !strings.HasPrefix(u.Key, s.key(prefix)) || !ours(u.Key) || path.Dir(u.Key) != path.Dir(s.key("x")) {
			continue
		}
		if err := s.client.RemoveIncompleteUpload(ctx, s.cfg.Bucket, u.Key); err != nil {
			return fmt.Errorf("cleaning up %s: %w", s, err)
		}
	}
	return nil
}

func (s *S3) Free(context.Context) (int64, error) { return -1, nil }
