// SPDX-License-Identifier: Apache-2.0

package fetch_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/fetch"
)

// A broken stream is resumed; each byte arrives once, even from a server that does not support ranges.
func TestCopy(t *testing.T) {
	const text = "0123456789abcdef"
	sum := sha256.Sum256([]byte(text))
	want := hex.EncodeToString(sum[:])
	cut := func(w http.ResponseWriter, s string) {
		w.Header().Set("Content-Length", "16")
		_, _ = w.Write([]byte(s))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	whole := func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
	}
	for name, tc := range map[string]struct {
		answers []http.HandlerFunc
		fails   bool
	}{
		"at once":       {[]http.HandlerFunc{whole}, false},
		"cut off twice": {[]http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { cut(w, text[:5]) }, func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) }, whole}, false},
		"no ranges": {[]http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { cut(w, text[:5]) }, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(text))
		}}, false},
		"stalled": {[]http.HandlerFunc{func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(text[:5]))
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}, whole}, false},
		"other content": {[]http.HandlerFunc{func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("other")) }}, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := 0
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n++
				tc.answers[min(n, len(tc.answers))-1](w, r)
			}))
			defer server.Close()
			var got bytes.Buffer
			var counted int64
			f := quick()
			if name == "stalled" {
				f.Stall = time.Second
			}
			err := f.Copy(t.Context(), server.URL, &got, want, func(n int64) { counted += n })
			var other *fetch.DigestError
			if errors.As(err, &other) != tc.fails || err != nil && !tc.fails {
				t.Fatal(err)
			}
			if err == nil && got.String() != text || counted != int64(got.Len()) || n < len(tc.answers) {
				t.Errorf("got %q, counted %d, after %d requests", got.String(), counted, n)
			}
		})
	}
	full := errors.New("the disk is full")
	server := httptest.NewServer(http.HandlerFunc(whole))
	defer server.Close()
	if err := (fetch.Fetcher{}).Copy(t.Context(), server.URL, failing{full}, want, func(int64) {}); !errors.Is(err, full) {
		t.Errorf("a writer that fails: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
