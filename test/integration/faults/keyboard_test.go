// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"fmt"
	"slices"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"yunion.io/x/ocadm/test/env"
)

// key presses a key.
func (b *browser) key(key string) {
	b.Helper()
	do(b, chromedp.KeyEvent(key))
}

// at returns the id of the focused element.
func (b *browser) at() string {
	b.Helper()
	return do(b, chromedp.Evaluate[string](`document.activeElement.id`))
}

func (b *browser) focus(id string) {
	b.Helper()
	b.waits(fmt.Sprintf(`(e => { e?.focus(); return document.activeElement === e })(document.getElementById(%q))`, id))
}

// tabStops are the elements that the Tab key must reach, in the order of the page. Each has a unique id, by which it keeps the focus when the page is updated.
const tabStops = `[...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
	.filter(e => !e.disabled && e.tabIndex >= 0 && (e.ownerSVGElement || e.checkVisibility()) && !(e.type === "radio" && !e.checked))
	.map(e => e.id || e.outerHTML.slice(0, 80))`

// seen reports whether the focused element visibly has the focus.
const seen = `(e => { const s = getComputedStyle(e); return e.matches(":focus-visible") && s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2 })(document.activeElement)`

// stops walks through the page with the Tab key, and starts again if the page changes meanwhile.
func (b *browser) stops() {
	b.Helper()
	for range 5 {
		b.focus("skip")
		want := do(b, chromedp.Evaluate[[]string](tabStops))
		got, hidden := b.walk(want)
		if !slices.Equal(want, do(b, chromedp.Evaluate[[]string](tabStops))) {
			continue
		}
		if sorted := slices.Sorted(slices.Values(want)); len(slices.Compact(sorted)) != len(want) || len(want) < 8 {
			b.Errorf("some ids are there twice: %q", want)
		}
		if !slices.Equal(got, want) || len(hidden) > 0 {
			b.Errorf("the Tab key reaches %q, want %q; these do not show that they have the focus: %q", got, want, hidden)
		}
		return
	}
	b.Error("the page does not come to rest")
}

// walk presses Tab until the end. It returns the elements that it reached, and those that do not visibly have the focus.
func (b *browser) walk(want []string) (got, hidden []string) {
	b.Helper()
	for range 2 * len(want) {
		id := b.at()
		if id == "" && do(b, chromedp.Evaluate[bool](`document.activeElement === document.body`)) || len(got) > 0 && id == want[0] {
			break
		}
		if !slices.Contains(want, id) {
			id = do(b, chromedp.Evaluate[string](`document.activeElement.className || document.activeElement.outerHTML.slice(0, 80)`))
		}
		if id != "wide" { // it can be scrolled with the keys
			got = append(got, id)
		}
		if !do(b, chromedp.Evaluate[bool](seen)) {
			hidden = append(hidden, id)
		}
		b.key(kb.Tab)
	}
	return got, hidden
}

// keyboard uses the page of a cloud without a mouse.
func (b *browser) keyboard() {
	b.Helper()
	b.stops()
	b.contrasts()
	here := do(b, chromedp.Evaluate[string](`location.hash`))
	b.focus("skip")
	b.key(kb.Enter)
	b.waits(`document.activeElement.id === "main"`)
	if now := do(b, chromedp.Evaluate[string](`location.hash`)); now != here {
		b.Errorf("the link to the content leads to %s", now)
	}
	b.focus("update")
	b.key(kb.Enter)
	b.shows("dialog")
	var got []string
	for range 6 {
		if inside := do(b, chromedp.Evaluate[bool](`document.activeElement === document.body || document.activeElement.closest("dialog") !== null`)); !inside {
			b.Errorf("the Tab key leaves the dialog: %s", b.at())
		}
		if id := b.at(); id != "" && !slices.Contains(got, id) {
			got = append(got, id)
		}
		b.key(kb.Tab)
	}
	if want := []string{"to-version", "failure-rollback", "no", "yes"}; !slices.Equal(got, want) {
		b.Errorf("the Tab key reaches %q in the dialog, want %q", got, want)
	}
	b.contrasts()
	b.key(kb.Escape)
	b.waits(`document.querySelector("dialog") === null`)
	if id := b.at(); id != "update" {
		b.Errorf("after the dialog, %q has the focus", id)
	}
	b.focus("box-keystone")
	b.key(kb.Enter)
	b.waits(fmt.Sprintf(`location.hash === "#/cloud/%s/keystone"`, env.Name))
	b.sees("h2", "keystone")
}

// prefers sets the preferred color scheme, light or dark.
func (b *browser) prefers(scheme string) {
	b.Helper()
	media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
	if _, err := chromedp.Call(b.ctx, emulation.SetEmulatedMedia, media); err != nil {
		b.Fatal(err)
	}
}

// faint lists texts, borders of controls and hints whose contrast to their background is below WCAG 2.2, level AA: 4.5, and 3 for borders.
const faint = `(() => {
	const parse = c => { const n = c.match(/[\d.]+/g).map(Number); return c.startsWith("color(") ? n.map((v, i) => i < 3 ? v * 255 : v) : n }
	const light = c => { const [r, g, b] = c.slice(0, 3).map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b }
	const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05) }
	const behind = e => {
		const box = e.closest("svg a")?.querySelector("rect")
		if (box) return parse(getComputedStyle(box).fill)
		for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c }
		return parse(getComputedStyle(document.body).backgroundColor)
	}
	const out = [], all = [...document.body.querySelectorAll("*")].filter(e => (e.ownerSVGElement || e.checkVisibility()) && !e.disabled)
	const check = (e, what, colour, least, ground) => { const r = ratio(parse(colour), ground); if (r < least) out.push(e.tagName + "." + (e.getAttribute("class") ?? "") + " " + what + " " + r.toFixed(2) + " " + e.textContent.slice(0, 30)) }
	let looked = 0
	for (const e of all) {
		const s = getComputedStyle(e)
		if ([...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) && e.localName !== "title") { looked++; check(e, "text", e.ownerSVGElement ? s.fill : s.color, 4.5, behind(e)) }
		if (e.matches("input:not([type=radio], [type=checkbox]), select, textarea, button")) check(e, "border", s.borderTopColor, 3, behind(e.parentElement))
		if (e.placeholder) check(e, "hint", getComputedStyle(e, "::placeholder").color, 4.5, behind(e))
	}
	if (looked < 10) out.push("only " + looked + " texts")
	return out
})()`

// contrasts checks that everything is readable, light and dark.
func (b *browser) contrasts() {
	b.Helper()
	for _, scheme := range []string{"dark", "light"} {
		b.prefers(scheme)
		if found := do(b, chromedp.Evaluate[[]string](faint)); len(found) > 0 {
			b.Errorf("%s: too faint: %q", scheme, found)
		}
	}
}
