// SPDX-License-Identifier: Apache-2.0

// Package fetch downloads files whose SHA-256 is known. It resumes interrupted downloads, retries temporary failures, and aborts stalled connections.
package fetch

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"time"

	"yunion.io/x/ocadm/internal/wait"
)

// Fetcher downloads files. Its zero value uses the defaults.
type Fetcher struct {
	// Client defaults to http.DefaultClient.
	Client *http.Client
	// Header is sent with every request.
	Header http.Header
	// Attempts is the number of consecutive tries without progress before giving up; default 5. Any bytes received reset the count.
	Attempts int
	// Pause is the delay before the second try. It doubles with every try without progress; default 2 s. A longer time requested by the server is
	// honoured, up to a minute.
	Pause time.Duration
	// Stall is how long a connection may deliver nothing before it is aborted; default 30 s.
	Stall time.Duration
	// Again, which may be nil, receives the reason before each retry. Several downloads may call it concurrently.
	Again func(error)
}

// maxPause bounds the wait that a server may ask for.
const maxPause = time.Minute

func (f Fetcher) withDefaults() Fetcher {
	f.Client = cmp.Or(f.Client, http.DefaultClient)
	f.Attempts = cmp.Or(f.Attempts, 5)
	f.Pause = cmp.Or(f.Pause, 2*time.Second)
	f.Stall = cmp.Or(f.Stall, 30*time.Second)
	return f
}

// Progress receives how many bytes were downloaded, and how many more than known before remain.
type Progress struct{ Done, More func(int64) }

// DigestError reports that a download is not the file wanted. Digests are hexadecimal.
type DigestError struct{ Want, Got string }

func (e *DigestError) Error() string { return fmt.Sprintf("its SHA-256 is %s, want %s", e.Got, e.Want) }

// StatusError is an unexpected HTTP status.
type StatusError struct {
	Code int
	// After is the wait that the server asks for, 0 if it does not say.
	After time.Duration
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the server answers %d %s", e.Code, http.StatusText(e.Code))
}

// Fetch downloads a file whose hexadecimal SHA-256 is want. It resumes a partial file, once: if the result is wrong, it downloads everything. A
// complete and correct file is not downloaded again. A file with another digest is removed, and the error is a DigestError. After any other error the
// partial file is kept.
func (f Fetcher) Fetch(ctx context.Context, url, file, want string, p Progress) error {
	f = f.withDefaults()
	left, _ := os.Stat(file)
	var expected, size, furthest int64
	whole := false
	err := f.retry(ctx, func() (brought int64, err error) {
		var n int64
		n, size, err = f.resume(ctx, url, file, whole, func(rest int64) {
			p.More(rest - expected)
			expected = rest
		}, p.Done)
		if errors.Is(err, errRange) {
			if got, err := Digest(file); err == nil && got == want { // the file is complete
				return 0, nil
			}
			whole = true
		}
		expected = max(0, expected-n)
		brought, furthest = size-furthest, max(size, furthest) // repeated bytes are no progress
		return brought, err
	})
	if err != nil {
		if size > 0 {
			err = fmt.Errorf("%w; %d bytes were kept, and the next run continues from there", err, size)
		}
		return err
	}
	got, err := Digest(file)
	if err != nil {
		return fmt.Errorf("checking %s: %w", file, err)
	}
	if got == want {
		return nil
	}
	if err := os.Remove(file); err != nil {
		return fmt.Errorf("removing %s, which has another digest: %w", file, err)
	}
	if left != nil && left.Size() > 0 && ctx.Err() == nil { // the partial file may have been wrong
		return f.Fetch(ctx, url, file, want, p)
	}
	return &DigestError{want, got}
}

// Document downloads a small document of unknown content into memory. More than limit bytes are an error.
func (f Fetcher) Document(ctx context.Context, url string, limit int64) (raw []byte, _ error) {
	f = f.withDefaults()
	return raw, f.retry(ctx, func() (int64, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, f.Stall, fmt.Errorf("the server did not answer within %s", f.Stall))
		defer cancel()
		res, err := f.get(ctx, url, 0)
		if err != nil {
			return 0, err
		}
		raw, err = io.ReadAll(io.LimitReader(res.Body, limit+1))
		if int64(len(raw)) > limit {
			err = fmt.Errorf("the answer is larger than %d bytes", limit)
		}
		return 0, errors.Join(err, res.Body.Close())
	})
}

// Retry calls try under the same retry rules as Fetch, for requests other than file downloads.
func (f Fetcher) Retry(ctx context.Context, try func() error) error {
	return f.withDefaults().retry(ctx, func() (int64, error) { return 0, try() })
}

// retry calls try until it succeeds, fails permanently, or too many consecutive tries bring no bytes.
func (f Fetcher) retry(ctx context.Context, try func() (brought int64, err error)) error {
	for fruitless, pause := 0, f.Pause; ; {
		n, err := try()
		if n > 0 {
			fruitless, pause = 0, f.Pause
		}
		if fruitless++; err == nil || ctx.Err() != nil || fruitless == f.Attempts || !temporary(err) {
			return err
		}
		if f.Again != nil {
			f.Again(err)
		}
		if err := wait.Sleep(ctx, max(pause, asked(err))); err != nil {
			return err
		}
		pause *= 2
	}
}

// Digest returns the hexadecimal SHA-256 of a file.
func Digest(file string) (string, error) {
	r, err := os.Open(file)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(sum, r)
	return hex.EncodeToString(sum.Sum(nil)), errors.Join(err, r.Close())
}

func temporary(err error) bool {
	if s, ok := errors.AsType[*StatusError](err); ok {
		return s.Code >= http.StatusInternalServerError || s.Code == http.StatusTooManyRequests || s.Code == http.StatusRequestTimeout
	}
	var local *fs.PathError
	var untrusted *tls.CertificateVerificationError
	return !errors.As(err, &local) && !errors.As(err, &untrusted) && !errors.Is(err, http.ErrSchemeMismatch)
}

// asked returns how long the server asks to wait.
func asked(err error) time.Duration {
	if s, ok := errors.AsType[*StatusError](err); ok {
		return min(s.After, maxPause)
	}
	return 0
}

func (f Fetcher) get(ctx context.Context, url string, from int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if f.Header != nil {
		req.Header = f.Header.Clone()
	}
	req.Header.Set("Accept-Encoding", "identity") // otherwise the transport unpacks archives that a server declares to be encoded
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	res, err := f.Client.Do(req)
	if err != nil {
		return nil, err
	}
	switch res.StatusCode {
	case http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable:
		return res, nil
	}
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After")) // a date, which is rare, counts as 0
	return nil, errors.Join(&StatusError{res.StatusCode, time.Duration(seconds) * time.Second}, res.Body.Close())
}

// errRange reports that the server has nothing after the part. Some servers answer so to every range request.
var errRange = errors.New("the server cannot continue a partial download")

// resume downloads the missing part of a file, or everything if whole is set. It returns the number of bytes downloaded and the resulting size. rest
// receives the number of bytes remaining, if the server says so.
func (f Fetcher) resume(ctx context.Context, url, file string, whole bool, rest, count func(int64)) (n, size int64, err error) {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	have, err := out.Seek(0, io.SeekEnd)
	if err == nil && whole {
		have, err = restart(out)
	}
	if err != nil {
		return 0, 0, err
	}
	n, err = f.transfer(ctx, url, have, func(res *http.Response) (w io.Writer, err error) {
		switch res.StatusCode {
		case http.StatusRequestedRangeNotSatisfiable:
			return nil, errRange
		case http.StatusOK: // from the start
			have, err = restart(out)
		}
		if res.ContentLength > 0 {
			rest(res.ContentLength)
		}
		return out, err
	}, count)
	return n, have + n, err
}

// transfer copies the content after the first have bytes to the writer that begin returns for the response. Writers may be slow, servers may not.
func (f Fetcher) transfer(ctx context.Context, url string, have int64, begin func(*http.Response) (io.Writer, error), count func(int64)) (n int64, err error) {
	stalled := fmt.Errorf("the server sent nothing for %s", f.Stall)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(f.Stall, func() { cancel(stalled) })
	defer watchdog.Stop()
	res, err := f.get(ctx, url, have)
	if err != nil {
		return 0, becauseOf(ctx, stalled, err)
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	out, err := begin(res)
	if err != nil {
		return 0, err
	}
	n, err = io.Copy(writerFunc(func(p []byte) (int, error) {
		watchdog.Stop()
		defer watchdog.Reset(f.Stall)
		return out.Write(p)
	}), Reader(ctx, res.Body, count))
	if err == nil {
		err = context.Cause(ctx) // a server that saw the connection close may have ended its answer as if complete
	}
	return n, becauseOf(ctx, stalled, err)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func restart(f *os.File) (int64, error) {
	if err := f.Truncate(0); err != nil {
		return 0, err
	}
	return f.Seek(0, io.SeekStart)
}

// becauseOf returns cause if it ended ctx, otherwise err.
func becauseOf(ctx context.Context, cause, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), cause) {
		return cause
	}
	return err
}

// Writer returns a writer to w that counts bytes; count must not be nil.
func Writer(w io.Writer, count func(int64)) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		n, err := w.Write(p)
		count(int64(n))
		return n, err
	})
}

// Reader returns a reader of r that ends with ctx and counts bytes; count may be nil.
func Reader(ctx context.Context, r io.Reader, count func(int64)) io.Reader {
	return counted{ctx, r, count}
}

type counted struct {
	ctx   context.Context // valid for one copy
	r     io.Reader
	count func(int64)
}

func (c counted) Read(p []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	n, err := c.r.Read(p)
	if c.count != nil {
		c.count(int64(n))
	}
	return n, err
}
