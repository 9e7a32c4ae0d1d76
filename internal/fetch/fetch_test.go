// SPDX-License-Identifier: Apache-2.0

package fetch_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/test/require"
)

// pages serves files. The first response for a name in cut breaks off halfway; for one in stalled it stops there and keeps the connection.
type pages struct {
	mu     sync.Mutex
	files  map[string][]byte
	cut    map[string]bool
	stall  map[string]bool
	broken map[string]int // number of 503 responses
	ranges []string
}

func (p *pages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.stalls(w, r) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.broken[r.URL.Path] > 0 {
		p.broken[r.URL.Path]--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	data, ok := p.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	if h := r.Header.Get("Range"); h != "" {
		p.ranges = append(p.ranges, h)
	}
	if p.cut[r.URL.Path] {
		delete(p.cut, r.URL.Path)
		w.Header().Set("Content-Length", strconv.Itoa(len(data)))
		_, _ = w.Write(data[:len(data)/2])
		panic(http.ErrAbortHandler)
	}
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// stalls sends half of a file, and then nothing until the client gives up.
func (p *pages) stalls(w http.ResponseWriter, r *http.Request) bool {
	p.mu.Lock()
	stall, data := p.stall[r.URL.Path], p.files[r.URL.Path]
	delete(p.stall, r.URL.Path)
	p.mu.Unlock()
	if !stall {
		return false
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	_, _ = w.Write(data[:len(data)/2])
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
	return true
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// tally adds up what a fetch reports.
type tally struct{ done, total int64 }

func (c *tally) progress() fetch.Progress {
	return fetch.Progress{Done: func(n int64) { c.done += n }, More: func(n int64) { c.total += n }}
}

func quick() fetch.Fetcher { return fetch.Fetcher{Pause: time.Millisecond} }

// If a server cuts the connection, stalls or is briefly unavailable, nothing is downloaded twice.
func TestFetchGoesOn(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 1000)
	for name, p := range map[string]*pages{
		"cut":            {cut: map[string]bool{"/f": true}},
		"stalled":        {stall: map[string]bool{"/f": true}},
		"out of service": {broken: map[string]int{"/f": 4}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "f")
			resumed := p.cut != nil || p.stall != nil
			p.files = map[string][]byte{"/f": data}
			s := httptest.NewServer(p)
			t.Cleanup(s.Close)
			var count tally
			f := quick()
			if p.stall != nil {
				f.Stall = time.Second
			}
			require.NoError(t, f.Fetch(t.Context(), s.URL+"/f", file, sum(data), count.progress()))
			if got, _ := os.ReadFile(file); !bytes.Equal(got, data) {
				t.Errorf("got %d bytes", len(got))
			}
			if resumed != (len(p.ranges) > 0) {
				t.Errorf("ranges %q", p.ranges)
			}
			if count != (tally{10000, 10000}) {
				t.Errorf("it reported %+v", count)
			}
			// Again: the file is complete.
			count = tally{}
			if err := quick().Fetch(t.Context(), s.URL+"/f", file, sum(data), count.progress()); err != nil || count.done > 0 {
				t.Errorf("downloaded %d bytes again, %v", count.done, err)
			}
		})
	}
}

// If a server cannot resume, the file is downloaded from the start; one that always stops halfway is given up.
func TestFetchWithoutRanges(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 1000)
	for name, ranges := range map[string]http.HandlerFunc{
		"refused": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusRequestedRangeNotSatisfiable) },
		"ignored": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(data) },
	} {
		for _, recovers := range []bool{true, false} {
			tries := 0
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if tries++; tries > 20 {
					t.Error("it does not give up")
					return
				}
				switch {
				case tries > 1 && r.Header.Get("Range") != "" && (recovers || name == "refused"):
					ranges(w, r)
				case tries == 1 || !recovers:
					w.Header().Set("Content-Length", strconv.Itoa(len(data)))
					_, _ = w.Write(data[:len(data)/2])
					panic(http.ErrAbortHandler)
				default:
					_, _ = w.Write(data)
				}
			}))
			file := filepath.Join(t.TempDir(), "f")
			err := quick().Fetch(t.Context(), s.URL, file, sum(data), (&tally{}).progress())
			s.Close()
			if (err == nil) != recovers {
				t.Errorf("%s, recovers %v: %v", name, recovers, err)
			}
		}
	}
}

// A partial file that belongs to another file is not resumed forever.
func TestFetchOverAWrongPart(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 1000)
	s := httptest.NewServer(&pages{files: map[string][]byte{"/f": data}})
	defer s.Close()
	file := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(file, []byte("something else"), 0o600))
	if err := quick().Fetch(t.Context(), s.URL+"/f", file, sum(data), (&tally{}).progress()); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(file); !bytes.Equal(got, data) {
		t.Errorf("got %d bytes", len(got))
	}
}

// Permanent failures are not retried, and temporary ones are retried as often as requested.
func TestFetchGivesUp(t *testing.T) {
	data := []byte("data")
	for _, c := range []struct {
		path, want string
		tries      int
		kept       bool
	}{
		{"/none", "404", 1, false},
		{"/broken", "503", 3, false},
		{"/busy", "429", 3, false},
		{"/other", "its SHA-256 is", 1, false},
	} {
		var tries int
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			tries++
			switch r.URL.Path {
			case "/none":
				http.NotFound(w, r)
			case "/broken":
				w.WriteHeader(http.StatusServiceUnavailable)
			case "/busy":
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusTooManyRequests)
			default:
				_, _ = w.Write(data)
			}
		}))
		file := filepath.Join(t.TempDir(), "f")
		f := quick()
		f.Attempts = 3
		err := f.Fetch(t.Context(), s.URL+c.path, file, sum([]byte("another")), (&tally{}).progress())
		s.Close()
		if err == nil || !strings.Contains(err.Error(), c.want) || tries != c.tries {
			t.Errorf("%s: %d tries, %v; want %d and %q", c.path, tries, err, c.tries, c.want)
		}
		if raw, err := os.ReadFile(file); len(raw) > 0 || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: kept %q, %v", c.path, raw, err)
		}
	}
}

// A busy server says how long to wait, which is honoured up to a minute before each retry.
func TestFetchWaitsAsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := quick()
		f.Client = &http.Client{Transport: busy{}}
		began := time.Now()
		err := f.Fetch(t.Context(), "http://server.test", filepath.Join(t.TempDir(), "f"), sum(nil), (&tally{}).progress())
		if waited := time.Since(began); err == nil || waited != 4*time.Minute {
			t.Errorf("five tries took %s: %v", waited, err)
		}
	})
}

// busy is a server that asks for an hour.
type busy struct{}

func (busy) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"3600"}}, Body: http.NoBody}, nil
}

func TestFetchSendsTheHeader(t *testing.T) {
	data := []byte("data")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_, _ = w.Write(data)
	}))
	defer s.Close()
	f := quick()
	f.Header = http.Header{"Authorization": {"Bearer secret"}}
	if err := f.Fetch(t.Context(), s.URL, filepath.Join(t.TempDir(), "f"), sum(data), (&tally{}).progress()); err != nil {
		t.Error(err)
	}
}

// Some servers, such as an object store that s3cmd filled, declare a .tgz to be an encoded .tar. The digest is that of the .tgz.
func TestFetchOfADeclaredEncoding(t *testing.T) {
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte("content")); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, z.Close())
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(packed.Bytes()))
	}))
	defer s.Close()
	file := filepath.Join(t.TempDir(), "f")
	if err := quick().Fetch(t.Context(), s.URL+"/f.tgz", file, sum(packed.Bytes()), new(tally).progress()); err != nil {
		t.Error(err)
	}
}
