// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Copy downloads content with the hexadecimal SHA-256 want to a writer. It resumes after a broken connection, so the writer receives each byte once.
// Wrong content is a DigestError at the end: do not use any of it before then. count receives the number of bytes as they arrive.
func (f Fetcher) Copy(ctx context.Context, url string, w io.Writer, want string, count func(int64)) error {
	f = f.withDefaults()
	out := &sink{w: w, count: count}
	sum := sha256.New()
	err := f.retry(ctx, func() (int64, error) {
		before := out.n
		_, err := f.transfer(ctx, url, before, func(res *http.Response) (io.Writer, error) {
			switch skip := before; res.StatusCode {
			case http.StatusRequestedRangeNotSatisfiable:
				return nil, errRange
			case http.StatusOK: // from the start
				return writerFunc(func(p []byte) (int, error) {
					k := min(skip, int64(len(p)))
					skip -= k
					n, err := io.MultiWriter(sum, out).Write(p[k:])
					return int(k) + n, err
				}), nil
			}
			return io.MultiWriter(sum, out), nil
		}, func(int64) {})
		if errors.Is(err, errRange) || out.err != nil { // nothing remains; the digest decides
			err = nil
		}
		return out.n - before, err
	})
	switch got := hex.EncodeToString(sum.Sum(nil)); {
	case out.err != nil:
		return fmt.Errorf("passing on a download: %w", out.err)
	case err != nil:
		return err
	case got != want:
		return &DigestError{want, got}
	}
	return nil
}

// sink counts the bytes written to a writer, and keeps its error.
type sink struct {
	w     io.Writer
	count func(int64)
	n     int64
	err   error
}

func (s *sink) Write(p []byte) (int, error) {
	n, err := s.w.Write(p)
	s.n += int64(n)
	s.err = err
	s.count(int64(n))
	return n, err
}
