// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"yunion.io/x/ocadm/test/env"
	"yunion.io/x/ocadm/test/require"
)

// browser is a headless Chromium that shows the page. An error in its scripts fails the test.
type browser struct {
	testing.TB
	ctx context.Context //nolint:containedctx // chromedp keeps its browser there
	mu  sync.Mutex
	bad []string
}

func newBrowser(t *testing.T) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium-headless-shell", "chromium", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		if os.Getenv("OCADM_TEST_REQUIRE") == "1" {
			t.Fatal("there is no Chromium: the lab installs chromium-headless-shell")
		}
		t.Skip("there is no Chromium")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.WindowSize(1280, 900),
		chromedp.Flag("lang", "en"), chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"))
	ctx, cancel := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(cancel)
	b := &browser{TB: t}
	b.ctx, cancel = chromedp.NewContext(ctx, chromedp.WithListener(b.hear))
	t.Cleanup(cancel)
	if _, err := chromedp.Call(b.ctx, log.Enable, cdp.Empty{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.bad) > 0 {
			t.Errorf("the browser reports %q", b.bad)
		}
	})
	return b
}

// hear records errors.
func (b *browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.bad = append(b.bad, fmt.Sprintf("%+v", e.ExceptionDetails))
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" && !strings.Contains(e.Entry.Text, "status of 4") { // a response that the page shows
			b.bad = append(b.bad, e.Entry.Text)
		}
	}
}

// do runs an action.
func do[T any](b *browser, action chromedp.Action[T]) T {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, env.Patience)
	defer cancel()
	out, err := chromedp.Run(ctx, action)
	if err != nil {
		looking, stop := context.WithTimeout(b.ctx, 10*time.Second)
		defer stop()
		text, _ := chromedp.Run(looking, chromedp.Evaluate[string](`document.body.innerText`))
		b.Fatalf("%v\nthe page:\n%s", err, text)
	}
	return out
}

// waits waits until an expression is true.
func (b *browser) waits(expression string) {
	b.Helper()
	do(b, chromedp.Poll[bool](expression, chromedp.WithPollingInterval(100*time.Millisecond), chromedp.WithPollingTimeout(env.Patience)))
}

// sees waits until an element contains a text.
func (b *browser) sees(element, text string) {
	b.Helper()
	b.waits(fmt.Sprintf(`[...document.querySelectorAll(%q)].some(e => e.textContent.includes(%q))`, element, text))
}

// press clicks an element as soon as it is enabled.
func (b *browser) press(id string) {
	b.Helper()
	b.waits(fmt.Sprintf(`(e => { if (!e || e.disabled) return false; e.click(); return true })(document.getElementById(%q))`, id))
}

func (b *browser) write(id, text string) {
	b.Helper()
	b.waits(fmt.Sprintf(`(e => { if (!e) return false; e.value = %q; return true })(document.getElementById(%q))`, text, id))
}

func (b *browser) shows(element string) {
	b.Helper()
	b.waits(fmt.Sprintf(`document.querySelector(%q)?.checkVisibility()`, element))
}

func (b *browser) opens(address string) {
	b.Helper()
	do(b, chromedp.Navigate(address))
}

func (b *browser) has(element string) bool {
	b.Helper()
	return do(b, chromedp.Evaluate[bool](fmt.Sprintf(`document.querySelector(%q) !== null`, element)))
}

// named checks that every control has a name for screen readers.
func (b *browser) named() {
	b.Helper()
	nameless := do(b, chromedp.Evaluate[[]string](`[...document.querySelectorAll("button, a, input, select, [role=img]")].filter(e => e.offsetParent !== null || e.ownerSVGElement)
		.filter(e => !(e.textContent.trim() || e.getAttribute("aria-label") || (e.labels && e.labels.length))).map(e => e.outerHTML.slice(0, 100))`))
	if len(nameless) > 0 {
		b.Errorf("without a name: %q", nameless)
	}
}

// picture writes a screenshot for the docs if OCADM_TEST_SCREENSHOTS names a directory.
func (b *browser) picture(name string) {
	b.Helper()
	dir := os.Getenv("OCADM_TEST_SCREENSHOTS")
	if dir == "" {
		return
	}
	do(b, chromedp.Sleep(300*time.Millisecond))
	raw := do(b, chromedp.CaptureScreenshot())
	require.NoError(b, os.WriteFile(filepath.Join(dir, name+".png"), raw, 0o644))
}
