// SPDX-License-Identifier: Apache-2.0

package depot

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"yunion.io/x/ocadm/internal/fetch"
	"yunion.io/x/ocadm/internal/finding"
)

// If a server is slow, cuts connections, is busy or sends wrong content, the client gets the blob or a reason.
func TestClient(t *testing.T) {
	store := filled(t)
	h := hashOf(t, kubeletText)
	half := len(kubeletText) / 2
	type wrapper = func(http.Handler) http.Handler
	once := func(do http.HandlerFunc) wrapper {
		return func(next http.Handler) http.Handler {
			first := true
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if first {
					first = false
					do(w, r)
					return
				}
				next.ServeHTTP(w, r)
			})
		}
	}
	begin := func(w http.ResponseWriter) {
		_, _ = io.WriteString(w, kubeletText[:half])
		_ = http.NewResponseController(w).Flush()
	}
	for _, tc := range []struct {
		name, token, want string
		wrap              wrapper
	}{
		{"at once", goodToken, "", nil},
		{"cut off", goodToken, "", once(func(w http.ResponseWriter, _ *http.Request) { begin(w); panic(http.ErrAbortHandler) })},
		{"slow", goodToken, "", once(func(w http.ResponseWriter, r *http.Request) { begin(w); <-r.Context().Done() })},
		{"busy", goodToken, "", once(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })},
		{"broken", goodToken, "", once(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })},
		{"other content", goodToken, CodeWrongBlob, once(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "other") })},
		{"wrong token", wrongToken, CodeRefused, nil},
		{"no token", "", CodeRefused, nil},
		{"always busy", goodToken, CodeUnreachable, func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTooManyRequests) })
		}},
		{"gone", goodToken, CodeNoBlob, func(http.Handler) http.Handler { return http.NotFoundHandler() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := listen(t, store, tc.wrap)
			f := fetch.Fetcher{Client: s.browser(nil), Pause: time.Millisecond}
			if tc.name == "slow" {
				f.Stall = time.Second
			}
			client := NewClient(s.URL+"/", tc.token, f)
			var got bytes.Buffer
			var done int64
			err := client.Blob(t.Context(), h, &got, func(n int64) { done += n })
			if code(err) != tc.want || (err == nil) != (tc.want == "") {
				t.Fatalf("got %v, want %q", err, tc.want)
			}
			if err != nil {
				return
			}
			if got.String() != kubeletText || done != int64(got.Len()) {
				t.Errorf("got %d bytes, reported %d", got.Len(), done)
			}
			c, err := client.Contents(t.Context())
			if err != nil || c.Files[kubelet].Digest != h || len(c.Images) != 2 {
				t.Errorf("contents %+v, %v", c, err)
			}
		})
	}
}

func code(err error) string {
	if l := finding.Of(err); len(l) == 1 {
		return l[0].Code
	}
	return ""
}
