// SPDX-License-Identifier: Apache-2.0

// Package fetch downloads files whose SHA-256 is known. It goes on with what an earlier try left, tries again what fails for a moment, and
// gives up a connection that brings nothing.
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
)

// Fetcher downloads files. Its zero value uses the defaults.
type Fetcher struct {
	// Client default http.DefaultClient.
	Client *http.Client
	// Header is sent with every request.
	Header http.Header
	// Attempts is how often in a row a try may bring nothing; default 5. A try that brings some bytes begins the count anew.
	Attempts int
	// Pause is before the second try and doubles with every fruitless one; default 2 s. A server that names a longer time gets it, up to a
	// minute.
	Pause time.Duration
	// Stall is how long a connection may bring nothing before it is given up; default 30 s.
	Stall time.Duration
	// Again, which may be nil, gets the reason before something is tried again. Several downloads may call it at once.
	Again func(error)
}

// maxPause bounds what a server may ask for.
const maxPause = time.Minute

func (f Fetcher) withDefaults() Fetcher {
	f.Client = cmp.Or(f.Client, http.DefaultClient)
	f.Attempts = cmp.Or(f.Attempts, 5)
	f.Pause = cmp.Or(f.Pause, 2*time.Second)
	f.Stall = cmp.Or(f.Stall, 30*time.Second)
	return f
}

// Progress takes how many bytes were done, and how many more there are to do than was known before.
type Progress struct{ Done, More func(int64) }

// DigestError is a download that is another file than the one wanted. Digests are in hexadecimal digits.
type DigestError struct{ Want, Got string }

func (e *DigestError) Error() string { return fmt.Sprintf("its SHA-256 is %s, want %s", e.Got, e.Want) }

// StatusError is an answer that is not the file.
type StatusError struct {
	Code int
	// After is how long the server asks to wait, 0 if it does not say.
	After time.Duration
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the server answers %d %s", e.Code, http.StatusText(e.Code))
}

// Fetch downloads a file whose SHA-256 is want, in hexadecimal digits. A part that lies there is gone on with, once: if the result is wrong,
// all is downloaded. A complete file that is right is not downloaded again. A file with another digest is removed, and the error is a
// DigestError. After any other error the part stays.
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
			if got, err := Digest(file); err == nil && got == want { // all of it is there
				return 0, nil
			}
			whole = true
		}
		expected = max(0, expected-n)
		brought, furthest = size-furthest, max(size, furthest) // what came a second time is nothing new
		return brought, err
	})
	if err != nil {
		if size > 0 {
			err = fmt.Errorf("%w; %d bytes are kept, and the next run continues from there", err, size)
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
	if left != nil && left.Size() > 0 && ctx.Err() == nil { // the part may have been wrong already
		return f.Fetch(ctx, url, file, want, p)
	}
	return &DigestError{want, got}
}

// Document downloads something small of unknown content into memory. More than limit bytes are an error.
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

// Retry repeats something that is no download of a file, as often and for such errors as Fetch does.
func (f Fetcher) Retry(ctx context.Context, try func() error) error {
	return f.withDefaults().retry(ctx, func() (int64, error) { return 0, try() })
}

// retry tries until a try succeeds, cannot get better, or too many in a row brought no bytes.
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
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(max(pause, asked(err))):
		}
		pause *= 2
	}
}

// Digest is the SHA-256 of a file in hexadecimal digits.
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

// asked is how long the server asks to wait.
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
	seconds, _ := strconv.Atoi(res.Header.Get("Retry-After")) // a date, which is rare, counts as nothing
	return nil, errors.Join(&StatusError{res.StatusCode, time.Duration(seconds) * time.Second}, res.Body.Close())
}

// errRange is the answer that there is nothing after a part. Some servers give it whenever they are asked for a part.
var errRange = errors.New("the server cannot continue a partial download")

// resume downloads what is missing of a file, or with whole all of it: n bytes, after which it has size. rest gets the number of bytes that are still to come, where
// the server says so.
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

// transfer copies what the server has after the first have bytes to the writer that begin returns for the answer. A writer may take its time;
// a server may not.
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
		err = context.Cause(ctx) // a server that saw the connection close may have ended its answer as if that were all
	}
	return n, becauseOf(ctx, stalled, err)
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// restart empties a file.
func restart(f *os.File) (int64, error) {
	if err := f.Truncate(0); err != nil {
		return 0, err
	}
	return f.Seek(0, io.SeekStart)
}

// becauseOf is cause when ctx ended with it, else err.
func becauseOf(ctx context.Context, cause, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), cause) {
		return cause
	}
	return err
}

// Reader reads from r until ctx ends, and counts the bytes; count may be nil.
func Reader(ctx context.Context, r io.Reader, count func(int64)) io.Reader {
	return counted{ctx, r, count}
}

type counted struct {
	ctx   context.Context // of one copy
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
