// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sys/unix"

	"yunion.io/x/ocadm/internal/workflow"
	"yunion.io/x/ocadm/test/freeport"
	"yunion.io/x/ocadm/test/require"
)

// bucket is an object store that gives every request the same response.
func bucket(t *testing.T, status int, code string, secure bool) (*httptest.Server, S3Config) {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		if r.Method != http.MethodHead {
			fmt.Fprintf(w, `<Error><Code>%s</Code><Message>as the test wants it</Message></Error>`, code)
		}
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes fail intentionally
	if secure {
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return s, S3Config{Endpoint: s.Listener.Addr().String(), Plain: !secure, Region: "r", Bucket: "backups", AccessKey: "a", SecretKey: "Not-To-Be-Seen"}
}

// TestProblemsOfBuckets checks that each problem that a user can solve is reported as such, over a real connection. No error contains the secret key.
func TestProblemsOfBuckets(t *testing.T) {
	port, err := freeport.Take("127.0.0.1")
	require.NoError(t, err)
	silent := fmt.Sprintf("127.0.0.1:%d", port)
	trusted, secure := bucket(t, http.StatusOK, "", true)
	_, plain := bucket(t, http.StatusOK, "", false)
	_, refused := bucket(t, http.StatusForbidden, "SignatureDoesNotMatch", false)
	_, missing := bucket(t, http.StatusNotFound, "NoSuchBucket", false)
	toPlain, unreachable, withCA, badCA := plain, plain, secure, secure
	toPlain.Plain, unreachable.Endpoint = false, silent
	withCA.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: trusted.Certificate().Raw}))
	badCA.CA = "no certificate"
	for name, c := range map[string]struct {
		cfg  S3Config
		want Problem
		ok   bool
	}{
		"unreachable": {cfg: unreachable, want: Unreachable}, "wrong keys": {cfg: refused, want: Refused}, "no bucket": {cfg: missing, want: NoBucket},
		"unknown CA": {cfg: secure, want: Untrusted}, "HTTP": {cfg: toPlain, want: NoTLS}, "given CA": {cfg: withCA, ok: true}, "plain": {cfg: plain, ok: true},
		"no CA": {cfg: badCA},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := NewS3(t.Context(), c.cfg)
			if (err == nil) != c.ok || ProblemOf(err) != c.want {
				t.Errorf("%v is %q, want %q", err, ProblemOf(err), c.want)
			}
			if err != nil && strings.Contains(err.Error(), "Not-To-Be-Seen") {
				t.Error(err)
			}
		})
	}
}

func TestProblemOf(t *testing.T) {
	for _, c := range []struct {
		err  error
		want Problem
	}{
		{minio.ErrorResponse{Code: "XMinioStorageFull", StatusCode: 507}, Full},
		{minio.ErrorResponse{Code: "QuotaExceeded", StatusCode: 403}, Full},
		{minio.ErrorResponse{Code: "InvalidAccessKeyId", StatusCode: 403}, Refused},
		{minio.ErrorResponse{Code: "RequestTimeTooSkewed", StatusCode: 403}, Refused},
		{minio.ErrorResponse{Code: "SlowDown", StatusCode: 503}, Unreachable},
		{minio.ErrorResponse{Code: "Whatever", StatusCode: 400}, ""},
		{&fs.PathError{Op: "open", Err: unix.EROFS}, ReadOnly},
		{&fs.PathError{Op: "open", Err: unix.EACCES}, ReadOnly},
		{&fs.PathError{Op: "write", Err: unix.EDQUOT}, Full},
		{&fs.PathError{Op: "open", Err: unix.ENOENT}, ""},
		{&fs.PathError{Op: "read", Err: unix.EIO}, ""},
		{&net.DNSError{Err: "no such host", Name: "s3.example.com"}, Unreachable},
		{context.Canceled, ""}, {errors.New("anything"), ""}, {nil, ""},
	} {
		wrapped := c.err
		if wrapped != nil {
			wrapped = fmt.Errorf("uploading: %w", c.err)
		}
		if got := ProblemOf(wrapped); got != c.want {
			t.Errorf("%v is %q, want %q", c.err, got, c.want)
		}
	}
}

// onto is a directory where the next file is written to a device without space.
type onto struct{ Dir }

func (o onto) Create(ctx context.Context, name string) (File, error) {
	f, err := o.Dir.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	full, err := unix.Open("/dev/full", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	to := f.(*dirFile)
	err = errors.Join(err, to.Close())
	to.File = os.NewFile(uintptr(full), to.Name()) //nolint:gosec // Abort removes the file of this name
	return to, err
}

// TestFullDirectory checks that a disk that fills up half-way leaves no files.
func TestFullDirectory(t *testing.T) {
	e := setUp(t)
	dir := Dir(t.TempDir())
	_, err := e.plan(onto{dir}).Run(t.Context(), workflow.Discard{})
	if ProblemOf(err) != Full {
		t.Error(err)
	}
	if got := files(t, dir); len(got) > 0 {
		t.Errorf("%v are left", got)
	}
}

// keeping is a store where nothing can be deleted.
type keeping struct{ Dir }

func (keeping) Remove(context.Context, string) error {
	return minio.ErrorResponse{Code: "AccessDenied", StatusCode: http.StatusForbidden, Message: "object is WORM protected"}
}

// TestRefusedRetention checks that the new backup is valid and marked as proven even if older ones cannot be removed.
func TestRefusedRetention(t *testing.T) {
	e := setUp(t)
	dir := Dir(t.TempDir())
	for n := range 2 {
		p := e.plan(keeping{dir})
		p.Keep, p.Header.Time = 1, p.Header.Time.Add(time.Duration(n)*time.Minute)
		info, err := p.Run(t.Context(), workflow.Discard{})
		if refused := (*RetentionError)(nil); errors.As(err, &refused) != (n == 1) || info.Proven == nil {
			t.Errorf("%d: %+v %v", n, info, err)
		}
	}
	list, err := List(t.Context(), dir)
	if err != nil || len(list) != 2 || list[0].Proven == nil {
		t.Errorf("%+v %v", list, err)
	}
}

// TestUploadsOfOtherClouds checks that a backup aborts leftover uploads of its own cloud in a bucket, but no upload of another cloud.
func TestUploadsOfOtherClouds(t *testing.T) {
	mine, twin := "p/"+FileName(Header{Cloud: cloud}), "p/"+FileName(Header{Cloud: Cloud{Name: cloud.Name, ID: "id-9"}})
	var ended []string
	refused := ""
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet:
			if refused != "" {
				w.WriteHeader(http.StatusForbidden)
				fmt.Fprintf(w, "<Error><Code>%s</Code></Error>", refused)
				return
			}
			fmt.Fprint(w, "<ListMultipartUploadsResult>")
			for _, key := range []string{mine, twin, "p/default-20261122T020000Z" + Suffix} {
				if strings.HasPrefix(key, r.URL.Query().Get("prefix")) {
					fmt.Fprintf(w, "<Upload><Key>%s</Key><UploadId>u</UploadId></Upload>", key)
				}
			}
			fmt.Fprint(w, "</ListMultipartUploadsResult>")
		case http.MethodDelete:
			ended = append(ended, strings.TrimPrefix(r.URL.Path, "/backups/"))
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	t.Cleanup(s.Close)
	store, err := NewS3(t.Context(), S3Config{Endpoint: s.Listener.Addr().String(), Plain: true, Region: "r", Bucket: "backups", Prefix: "p", AccessKey: "a", SecretKey: "b"})
	require.NoError(t, err)
	if err := store.Clean(t.Context(), prefix(cloud)); err != nil || !slices.Equal(ended, []string{mine}) {
		t.Errorf("%q, %v", ended, err)
	}
	for code, fails := range map[string]bool{"AccessDenied": false, "NotImplemented": false, "SignatureDoesNotMatch": true} {
		refused = code
		if err := store.Clean(t.Context(), prefix(cloud)); (err != nil) != fails {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// TestInterruptedUpload checks that no parts stay in a bucket when the context of a backup ends, which keeps the client from aborting the upload.
func TestInterruptedUpload(t *testing.T) {
	var requests []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"1"`)
		switch r.Method {
		case http.MethodPost:
			fmt.Fprint(w, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
		case http.MethodGet:
			fmt.Fprint(w, "<ListMultipartUploadsResult><Upload><Key>p/a</Key><UploadId>u</UploadId></Upload></ListMultipartUploadsResult>")
		case http.MethodPut, http.MethodDelete:
			requests = append(requests, r.Method+" "+r.URL.Path+" "+r.URL.Query().Get("uploadId"))
			if r.Method == http.MethodDelete {
				w.WriteHeader(http.StatusNoContent)
			}
		}
	}))
	t.Cleanup(s.Close)
	store, err := NewS3(t.Context(), S3Config{Endpoint: s.Listener.Addr().String(), Plain: true, Region: "r", Bucket: "backups", Prefix: "p", AccessKey: "a", SecretKey: "b"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	f, err := store.Create(ctx, "a")
	if err == nil {
		_, err = f.Write(make([]byte, s3PartSize+1)) // the last byte is read once the first part is stored
	}
	require.NoError(t, err)
	cancel()
	f.Abort()
	if want := []string{"PUT /backups/p/a u", "DELETE /backups/p/a u"}; !slices.Equal(requests, want) {
		t.Errorf("%q", requests)
	}
}

// TestRequests checks the form of requests. Tencent, Huawei and Volcengine serve buckets only below a host name of their own, and a bucket with Object Lock
// refuses parts without a checksum.
func TestRequests(t *testing.T) {
	for endpoint, want := range map[string]string{
		"cos.ap-beijing.myqcloud.com": "backups-1.cos.ap-beijing.myqcloud.com/p/a", "obs.cn-north-4.myhuaweicloud.com": "backups-1.obs.cn-north-4.myhuaweicloud.com/p/a",
		"tos-s3-cn-beijing.volces.com": "backups-1.tos-s3-cn-beijing.volces.com/p/a", "oss-cn-hangzhou.aliyuncs.com": "backups-1.oss-cn-hangzhou.aliyuncs.com/p/a",
		"s3.example.com": "s3.example.com/backups-1/p/a", "192.0.2.9:9000": "192.0.2.9:9000/backups-1/p/a",
	} {
		for _, plain := range []bool{false, true} {
			var parts []*http.Request
			transport := roundTripper(func(r *http.Request) (*http.Response, error) {
				body := ""
				if r.Body != nil {
					_, _ = io.Copy(io.Discard, r.Body)
				}
				switch {
				case r.Method == http.MethodPut:
					parts = append(parts, r)
				case r.URL.Query().Has("uploadId"):
					body = "<CompleteMultipartUploadResult><Bucket>backups-1</Bucket><ETag>1</ETag></CompleteMultipartUploadResult>"
				case r.Method == http.MethodPost:
					body = "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>"
				}
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Etag": {`"1"`}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
			})
			store, err := NewS3(t.Context(), S3Config{Endpoint: endpoint, Plain: plain, Region: "r", Bucket: "backups-1", Prefix: "p", AccessKey: "a", SecretKey: "b", Transport: transport})
			require.NoError(t, err)
			f, err := store.Create(t.Context(), "a")
			require.NoError(t, err)
			_, err = f.Write([]byte("content"))
			require.NoError(t, errors.Join(err, f.Commit()))
			if len(parts) != 1 {
				t.Fatalf("%s: %d parts", endpoint, len(parts))
			}
			r := parts[0]
			if got := r.URL.Host + r.URL.Path; got != want {
				t.Errorf("%s, plain %t: %s, want %s", endpoint, plain, got, want)
			}
			if r.Header.Get("Content-Md5") != "mgNkuembtIDdJeHwKEyFVQ==" || r.Header.Get("X-Amz-Content-Sha256") != "UNSIGNED-PAYLOAD" || r.ContentLength != 7 {
				t.Errorf("%s, plain %t: %v", endpoint, plain, r.Header)
			}
		}
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
