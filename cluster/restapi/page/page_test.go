// SPDX-License-Identifier: Apache-2.0

package page

import (
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"yunion.io/x/ocadm/test/require"
)

// Every text that a script uses exists in both languages, and none is unused.
func TestTexts(t *testing.T) {
	raw, err := fs.ReadFile(files, "files/texts.json")
	require.NoError(t, err)
	texts := map[string][]string{}
	require.NoError(t, json.Unmarshal(raw, &texts))
	value := regexp.MustCompile(`\{\d\}`)
	for key, both := range texts {
		if len(both) != 2 || both[0] == "" || both[1] == "" {
			t.Errorf("%s: %q", key, both)
			continue
		}
		if en, zh := value.FindAllString(both[0], -1), value.FindAllString(both[1], -1); len(en) != len(zh) {
			t.Errorf("%s: the languages have different values: %q", key, both)
		}
		if strings.ContainsFunc(both[0], func(r rune) bool { return unicode.Is(unicode.Han, r) }) {
			t.Errorf("%s: %q is not English", key, both[0])
		}
	}
	used, computed := map[string]bool{}, []string{"is."}
	call := regexp.MustCompile("\\bt\\(\"([^\"]+)\"( \\+)?")
	listed := regexp.MustCompile(`(?s)const verbs = \{(.*?)\n`)
	names, err := fs.Glob(files, "files/*.js")
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		require.NoError(t, err)
		for _, m := range call.FindAllStringSubmatch(string(text), -1) {
			if m[2] != "" {
				computed = append(computed, m[1])
				continue
			}
			if used[m[1]] = true; texts[m[1]] == nil {
				t.Errorf("%s: there is no text %q", path.Base(name), m[1])
			}
		}
		for _, m := range listed.FindAllStringSubmatch(string(text), -1) {
			for _, verb := range regexp.MustCompile(`(\w+): `).FindAllStringSubmatch(m[1], -1) {
				used[verb[1]] = true
			}
		}
	}
	if len(used) < 40 {
		t.Fatalf("only %d texts are used: has the pattern changed?", len(used))
	}
	asked := regexp.MustCompile(`ask\("(\w+)"`)
	machines, err := fs.ReadFile(files, "files/machines.js")
	require.NoError(t, err)
	for _, m := range asked.FindAllStringSubmatch(string(machines), -1) {
		used[m[1]] = true
	}
	for key := range texts {
		is := used[key]
		for _, prefix := range computed {
			is = is || strings.HasPrefix(key, prefix)
		}
		if !is {
			t.Errorf("no script uses text %q", key)
		}
	}
}

// The page shows each condition of a cloud that is not as it should be.
func TestConditions(t *testing.T) {
	script, err := fs.ReadFile(files, "files/clouds.js")
	require.NoError(t, err)
	types, err := os.ReadFile("../../../api/v1alpha1/status_types.go")
	require.NoError(t, err)
	texts, err := fs.ReadFile(files, "files/texts.json")
	require.NoError(t, err)
	wrong := regexp.MustCompile(`const wrong = \{(.*)\}`).FindString(string(script))
	all := regexp.MustCompile(`(?m)^\tCondition\w+ += "(\w+)"`).FindAllStringSubmatch(string(types), -1)
	if len(all) < 11 {
		t.Fatalf("only %d conditions: has the pattern changed?", len(all))
	}
	for _, m := range all {
		if name := m[1]; name != "Progressing" && (!strings.Contains(wrong, " "+name+": ") || !strings.Contains(string(texts), `"is.`+name+`"`)) {
			t.Errorf("condition %s is not shown, or has no text", name)
		}
	}
}

// The files have a policy that lets them load nothing from elsewhere, and name no other server.
func TestFiles(t *testing.T) {
	server := httptest.NewServer(Handler())
	defer server.Close()
	get := func(name string, header ...string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+name, nil)
		require.NoError(t, err)
		if len(header) == 2 {
			request.Header.Set(header[0], header[1])
		}
		r, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		return r
	}
	for name, kind := range map[string]string{"/": "text/html; charset=utf-8", "/page/main.js": "text/javascript; charset=utf-8", "/page/page.css": "text/css; charset=utf-8",
		"/page/texts.json": "application/json"} {
		r := get(name)
		if r.StatusCode != http.StatusOK || r.Header.Get("Content-Type") != kind || !strings.Contains(r.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %s, %q", name, r.Status, r.Header)
		}
		if again := get(name, "If-None-Match", r.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s again: %s", name, again.Status)
		}
	}
	for _, name := range []string{"/page/", "/page/none.js", "/page/../page.go", "/page/..%2fpage.go", "/page/files"} {
		if r := get(name); r.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", name, r.Status)
		}
	}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, name)
		for _, address := range regexp.MustCompile(`(?:https?:)?//[a-z][^\s'"]*`).FindAllString(string(text), -1) {
			if !strings.HasPrefix(address, "http://www.w3.org/2000/svg") {
				t.Errorf("%s names %s", name, address)
			}
		}
		for _, word := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "document.write"} {
			if strings.Contains(string(text), word) {
				t.Errorf("%s uses %s", name, word)
			}
		}
		return err
	})
	require.NoError(t, err)
}
