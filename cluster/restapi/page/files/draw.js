// SPDX-License-Identifier: Apache-2.0
// Pictures: the graph of components, and small plots.

import { bytes, h, kindOf, markOf, number, t, word } from "/page/dom.js"

const box = { width: 150, height: 24, gapX: 46, gapY: 7 }

// levels sorts components into columns: each stands right of all that it needs.
function levels(components) {
  const byName = new Map(components.map((c) => [c.name, c]))
  const level = new Map()
  const of = (name, seen) => {
    if (!level.has(name)) {
      const needs = (byName.get(name).after ?? []).filter((n) => byName.has(n) && !seen.has(n))
      level.set(name, Math.max(0, ...needs.map((n) => of(n, new Set([...seen, n])) + 1)))
    }
    return level.get(name)
  }
  for (const c of components) of(c.name, new Set([c.name]))
  return level
}

// graph draws components and who waits for whom. Lines to what it needs are thin, those of the chosen one thick,
// and those to what it waits for now red.
export function graph(components, chosen, link) {
  const level = levels(components)
  const place = new Map()
  const rows = []
  // Components that stand alone fill the columns from the left, so that the picture stays flat.
  const height = Math.max(12, Math.ceil(Math.sqrt(components.length) * 1.9))
  let x = 0
  for (let l = 0; l <= Math.max(0, ...level.values()); l++) {
    const here = components.filter((c) => level.get(c.name) === l).sort((a, b) => a.name.localeCompare(b.name))
    here.forEach((c, i) => {
      const row = i % height
      rows[row] = true
      place.set(c.name, { x: x + Math.floor(i / height) * (box.width + 10), y: row * (box.height + box.gapY) })
    })
    x += Math.ceil(here.length / height) * (box.width + 10) - 10 + box.gapX
  }
  const line = (from, to, kind) => {
    const a = place.get(from), b = place.get(to)
    if (!a || !b) return null
    const x1 = a.x + box.width, y1 = a.y + box.height / 2, y2 = b.y + box.height / 2
    const bend = Math.max(20, Math.abs(b.x - x1) / 2)
    return h("path", { class: kind, d: `M${x1},${y1} C${x1 + bend},${y1} ${b.x - bend},${y2} ${b.x},${y2}` })
  }
  const needs = components.flatMap((c) => (c.after ?? []).map((n) => line(n, c.name, c.name === chosen || n === chosen ? "needs" : "")))
  const blocks = components.flatMap((c) => (c.blockedBy ?? []).map((n) => line(n, c.name, "blocks")))
  const boxes = components.map((c) => {
    const p = place.get(c.name), kind = kindOf(c.state)
    const why = (c.blockedBy ?? []).length ? t("graph.waits", c.blockedBy.join(", ")) : c.message ?? ""
    return h("a:svg", { href: link(c.name), id: "box-" + c.name, "aria-label": `${c.name}: ${word(c.state)}${why && ": " + why}` },
      h("title", {}, `${c.name}: ${word(c.state)}${why && "\n" + why}`),
      h("rect", { class: kind, x: p.x, y: p.y, width: box.width, height: box.height, rx: 4, "stroke-dasharray": kind === "idle" ? "3 3" : null, "stroke-width": c.name === chosen ? 3 : null }),
      h("text", { class: "mark " + kind, x: p.x + 8, y: p.y + 16, "aria-hidden": "true" }, markOf(kind)),
      h("text", { x: p.x + 24, y: p.y + 16 }, c.name))
  })
  const width = x - box.gapX + 4, tall = rows.length * (box.height + box.gapY)
  return h("div", { class: "wide" }, h("svg", { class: "graph", viewBox: `-2 -2 ${width} ${tall}`, width, height: tall, role: "group", "aria-label": t("graph.label") },
    needs.filter(Boolean), blocks.filter(Boolean), boxes))
}

const shown = { bytes, components: number, pods: number, "per minute": (n) => number(Math.round(n * 10) / 10) }

// plot is one series of figures.
export function plot(series) {
  const { times, values, unit } = series
  const show = shown[unit] ?? number
  const from = times[0], span = Math.max(1, times.at(-1) - from)
  const top = Math.max(...values), low = Math.min(0, ...values), height = top - low || 1
  const points = values.map((v, i) => `${(((times[i] - from) / span) * 200).toFixed(1)},${(38 - ((v - low) / height) * 36).toFixed(1)}`)
  if (points.length === 1) points.push("200," + points[0].split(",")[1])
  const text = t("plot.text", t("plot." + series.name), show(values.at(-1)), show(Math.min(...values)), show(top))
  return h("figure", {}, h("figcaption", {}, h("span", {}, t("plot." + series.name)), h("strong", {}, show(values.at(-1)))),
    h("svg", { viewBox: "0 0 200 40", preserveAspectRatio: "none", role: "img", "aria-label": text }, h("title", {}, text), h("polyline", { points: points.join(" ") })))
}
