// SPDX-License-Identifier: Apache-2.0

package page

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"yunion.io/x/ocadm/test/require"
)

// readsTwice is a page whose connections end without an error after two lines each. It prints its final content, and the calls.
const readsTwice = `
globalThis.sessionStorage = { getItem: () => "t", setItem() {}, removeItem() {} }
let asked = 0
globalThis.fetch = async () => {
  asked++
  const lines = asked < 3 ? ["a", "b"] : ["a", "b", "c"]
  const text = lines.map((l) => "event: line\ndata: " + l + "\n\n").join("") + (asked < 3 ? "" : "event: end\ndata: {}\n\n")
  return new Response(text)
}
const { stream } = await import(process.argv[1])
let log = [], lost = 0
await stream("/operations/o/log", new AbortController().signal, (m) => {
  if (m.event === "line") log.push(m.data)
  return m.event === "end"
}, () => { log = []; lost++ })
console.log(log.join(""), asked, lost)
`

// A stream may also end without an error: the page then drops what it has, because the next connection sends it again.
func TestStreamThatEnds(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("there is no node")
	}
	text, err := fs.ReadFile(files, "files/api.js")
	require.NoError(t, err)
	module := filepath.Join(t.TempDir(), "api.mjs")
	require.NoError(t, os.WriteFile(module, text, 0o600))
	out, err := exec.CommandContext(t.Context(), node, "--input-type=module", "-e", readsTwice, module).CombinedOutput()
	if got := strings.TrimSpace(string(out)); err != nil || got != "abc 3 2" {
		t.Errorf("%s, %v", got, err)
	}
}
