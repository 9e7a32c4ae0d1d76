// SPDX-License-Identifier: Apache-2.0

// Package page is the web page of the REST API: embedded files that call the API with the token of the user.
package page

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"
)

// Prefix of the paths of the files. The page itself is at /.
const Prefix = "/page/"

//go:embed files
var files embed.FS

// policy only allows the page to load its own files and call its own server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'none'; frame-ancestors 'none'; base-uri 'none'"

// Handler serves the files. They need no login; the data they show does.
func Handler() http.Handler {
	types := map[string]string{".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".json": "application/json"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, Prefix)
		if r.URL.Path == "/" {
			name = "index.html"
		}
		text, err := fs.ReadFile(files, path.Join("files", path.Clean("/"+name)))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		sum := sha256.Sum256(text)
		h := w.Header()
		h.Set("Content-Type", types[path.Ext(name)])
		h.Set("Content-Security-Policy", policy)
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache") // a new operator has a new page
		h.Set("ETag", `"`+hex.EncodeToString(sum[:8])+`"`)
		http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(text))
	})
}
