// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
)

// downloadDir keeps downloads until they are installed, and parts of them to go on with.
const downloadDir = host.StateDir + "/downloads"

// fetcher downloads files. Its zero value uses the defaults.
type fetcher struct {
	client *http.Client // default http.DefaultClient
	// attempts is how often in a row a try may bring nothing; default 5. A try that brings some bytes begins the count anew.
	attempts int
	// pause is before the second try and doubles with every fruitless one; default 2 s.
	pause time.Duration
	// stall is how long a connection may bring nothing before it is given up; default 30 s.
	stall time.Duration
}

func (f fetcher) withDefaults() fetcher {
	f.client = cmp.Or(f.client, http.DefaultClient)
	f.attempts = cmp.Or(f.attempts, 5)
	f.pause = cmp.Or(f.pause, 2*time.Second)
	f.stall = cmp.Or(f.stall, 30*time.Second)
	return f
}

// progress takes how much was done, and how much more there is to do than was known before.
type progress struct{ done, more func(int64) }

// fetch downloads a file whose SHA-256 is want, in hexadecimal digits. A part that an earlier try left is gone on with; a complete file
// that is right already is not downloaded again. It returns the file's name on the machine.
func (f fetcher) fetch(ctx context.Context, files host.Files, url, want string, p progress) (string, error) {
	f = f.withDefaults()
	if err := files.Mkdir(downloadDir, 0o700); err != nil {
		return "", err
	}
	file := path.Join(downloadDir, want[:16]+"-"+path.Base(url))
	var expected int64
	for fruitless, pause := 0, f.pause; ; {
		n, size, err := f.resume(ctx, url, files.Path(file), func(rest int64) {
			p.more(rest - expected)
			expected = rest
		}, p.done)
		if err == nil {
			break
		}
		if expected = max(0, expected-n); n > 0 {
			fruitless, pause = 0, f.pause
		}
		if fruitless++; canceled(ctx) || fruitless == f.attempts || !temporary(err) {
			return "", downloadFailed(url, size, err)
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(pause):
		}
		pause *= 2
	}
	got, err := files.Digest(file)
	if err != nil {
		return "", fmt.Errorf("checking %s: %w", url, err)
	}
	if got != "sha256:"+want {
		return "", errors.Join(finding.Finding{
			Code: CodeChecksum, Severity: finding.Error,
			What:     "the download of " + url + " has a wrong checksum",
			Cause:    "it was changed or damaged on its way, or the mirror holds another file",
			Remedy:   "run the same command again, name another place with --mirror, or use --bundle",
			Evidence: []string{"want sha256:" + want, "got " + got},
		}, files.Remove(file))
	}
	return file, nil
}

// statusError is an answer that is not the file.
type statusError struct{ code int }

func (e statusError) Error() string {
	return fmt.Sprintf("the server answers %d %s", e.code, http.StatusText(e.code))
}

func temporary(err error) bool {
	var s statusError
	if errors.As(err, &s) {
		return s.code >= http.StatusInternalServerError || s.code == http.StatusTooManyRequests || s.code == http.StatusRequestTimeout
	}
	var local *fs.PathError
	return !errors.As(err, &local)
}

func downloadFailed(url string, have int64, err error) error {
	if have > 0 {
		err = fmt.Errorf("%w; %d bytes are kept, and the next run goes on from there", err, have)
	}
	return finding.Errorf(CodeDownload, url+" cannot be downloaded",
		"make the address reachable from this machine, name a mirror with --mirror, or install from a bundle with --bundle", "%w", err)
}

func (f fetcher) get(ctx context.Context, url string, from int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	res, err := f.client.Do(req)
	if err != nil {
		return nil, err
	}
	switch res.StatusCode {
	case http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable:
		return res, nil
	}
	return nil, errors.Join(statusError{res.StatusCode}, res.Body.Close())
}

// resume downloads what is missing of a file: n bytes, after which it has size. rest gets the number of bytes that are still to come, where the
// server says so. The name holds the digest, so a part never belongs to another version.
func (f fetcher) resume(ctx context.Context, url, file string, rest, count func(int64)) (n, size int64, err error) {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	have, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, 0, err
	}
	stalled := fmt.Errorf("the server sent nothing for %s", f.stall)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(f.stall, func() { cancel(stalled) })
	defer watchdog.Stop()
	res, err := f.get(ctx, url, have)
	if err != nil {
		return 0, have, becauseOf(ctx, stalled, err)
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	switch res.StatusCode {
	case http.StatusRequestedRangeNotSatisfiable: // all of it is there
		return 0, have, nil
	case http.StatusOK: // from the start
		if err := out.Truncate(0); err != nil {
			return 0, 0, err
		}
		if have, err = out.Seek(0, io.SeekStart); err != nil {
			return 0, 0, err
		}
	}
	if res.ContentLength > 0 {
		rest(res.ContentLength)
	}
	n, err = io.Copy(out, counted{ctx, res.Body, func(c int64) {
		watchdog.Reset(f.stall)
		count(c)
	}})
	return n, have + n, becauseOf(ctx, stalled, err)
}

// becauseOf is cause when ctx ended with it, else err.
func becauseOf(ctx context.Context, cause, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), cause) {
		return cause
	}
	return err
}
