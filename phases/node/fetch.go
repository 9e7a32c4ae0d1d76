// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	"yunion.io/x/ocadm/internal/finding"
	"yunion.io/x/ocadm/phases/host"
)

// downloadDir keeps downloads until they are installed, and parts of them to go on with.
const downloadDir = host.StateDir + "/downloads"

const (
	fetchAttempts = 4
	fetchPause    = 2 * time.Second
	maxChecksums  = 1 << 20
)

// fetch downloads a file and checks it against the checksum file beside it. A part that an earlier try left is gone on with; a
// complete file that is right already is not downloaded again. It returns the file's name on the machine.
func fetch(ctx context.Context, client *http.Client, files host.Files, url, checksum string, count func(int64)) (string, error) {
	client = cmp.Or(client, http.DefaultClient)
	want, err := wantedDigest(ctx, client, url, checksum)
	if err != nil {
		return "", err
	}
	if err := files.Mkdir(downloadDir, 0o700); err != nil {
		return "", err
	}
	file := path.Join(downloadDir, want[:16]+"-"+path.Base(url))
	for attempt := 1; ; attempt++ {
		err = resume(ctx, client, url, files.Path(file), count)
		if err == nil {
			break
		}
		if canceled(ctx) || attempt == fetchAttempts || !temporary(err) {
			return "", downloadFailed(url, err)
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(fetchPause):
		}
	}
	got, err := files.Digest(file)
	if err != nil {
		return "", fmt.Errorf("checking %s: %w", url, err)
	}
	if got != "sha256:"+want {
		return "", errors.Join(finding.Finding{
			Code: CodeChecksum, Severity: finding.Error,
			What:     "the download of " + url + " has a wrong checksum",
			Cause:    "it was changed or damaged on its way, or the mirror is broken",
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
		return s.code >= http.StatusInternalServerError || s.code == http.StatusTooManyRequests
	}
	var local *fs.PathError
	return !errors.As(err, &local)
}

func downloadFailed(url string, err error) error {
	return finding.Errorf(CodeDownload, url+" cannot be downloaded",
		"make the address reachable from this machine, name a mirror with --mirror, or install from a bundle with --bundle", "%w", err)
}

// wantedDigest reads the SHA-256 of a file from the checksum file: the line with its name, or the only digest there is.
func wantedDigest(ctx context.Context, client *http.Client, url, checksum string) (string, error) {
	res, err := get(ctx, client, checksum, 0)
	if err != nil {
		return "", downloadFailed(checksum, err)
	}
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxChecksums))
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return "", downloadFailed(checksum, err)
	}
	name := path.Base(url)
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) == 0 || len(f) > 1 && path.Base(strings.TrimPrefix(f[1], "*")) != name {
			continue
		}
		if b, err := hex.DecodeString(f[0]); err == nil && len(b) == sha256.Size {
			return strings.ToLower(f[0]), nil
		}
	}
	return "", downloadFailed(checksum, fmt.Errorf("it holds no SHA-256 of %s", name))
}

func get(ctx context.Context, client *http.Client, url string, from int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if from > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", from))
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	switch res.StatusCode {
	case http.StatusOK, http.StatusPartialContent, http.StatusRequestedRangeNotSatisfiable:
		return res, nil
	}
	return nil, errors.Join(statusError{res.StatusCode}, res.Body.Close())
}

// resume downloads what is missing of a file. The name holds the digest, so a part never belongs to another version.
func resume(ctx context.Context, client *http.Client, url, file string, count func(int64)) (err error) {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	have, err := out.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	res, err := get(ctx, client, url, have)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, res.Body.Close()) }()
	switch res.StatusCode {
	case http.StatusRequestedRangeNotSatisfiable: // all of it is there
		return nil
	case http.StatusOK: // from the start
		if err := out.Truncate(0); err != nil {
			return err
		}
		if _, err := out.Seek(0, io.SeekStart); err != nil {
			return err
		}
	}
	_, err = io.Copy(out, counted{ctx, res.Body, count})
	return err
}
