// SPDX-License-Identifier: Apache-2.0
// Elements, words and times. Everything that comes from the server becomes text, never markup.

let texts = {}
let language = 0

export const languages = ["en", "zh-CN"]

export async function loadTexts() {
  texts = await (await fetch("/page/texts.json")).json()
  const kept = localStorage.getItem("language")
  const wanted = kept ?? navigator.language
  setLanguage(wanted.startsWith("zh") ? 1 : 0)
}

export function setLanguage(n) {
  language = n
  document.documentElement.lang = languages[n]
}

export const languageNow = () => language

// t is the text of a key in the language of the reader; {0} and {1} are the values.
export function t(key, ...values) {
  const text = texts[key]?.[language] ?? key
  return text.replace(/\{(\d)\}/g, (_, i) => values[i] ?? "")
}

// word is the text of a value of the interface, such as a state; the value itself if there is none.
export const word = (value) => (texts["is." + value] ? t("is." + value) : value ?? "")

const svgTags = new Set(["svg", "g", "rect", "path", "text", "title", "polyline", "a:svg"])

// h makes an element. Attributes that begin with "on" are listeners; true sets an attribute, false, null and undefined leave it out.
export function h(tag, attributes, ...children) {
  const e = svgTags.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag.replace(":svg", "")) : document.createElement(tag)
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === false || value == null) continue
    if (name.startsWith("on")) e.addEventListener(name.slice(2), value)
    else if (name === "value") e.value = value
    else e.setAttribute(name, value === true ? "" : value)
  }
  e.append(...children.flat(9).filter((c) => c != null && c !== false && c !== ""))
  return e
}

// show replaces what an element contains, and keeps the focus, the scrolled position of the log and open details where they were.
export function show(parent, ...children) {
  const focused = document.activeElement?.id, had = parent !== document.activeElement && parent.contains(document.activeElement)
  const open = new Set([...parent.querySelectorAll("details[open]")].map((d) => d.id))
  parent.replaceChildren(...children.flat(9).filter((c) => c != null && c !== false && c !== ""))
  for (const id of open) document.getElementById(id)?.setAttribute("open", "")
  // What had the focus may be gone: who works with the keyboard goes on from the content, not from the top of the page.
  if (had && !parent.contains(document.activeElement)) (document.getElementById(focused) ?? document.getElementById("main")).focus({ preventScroll: true })
}

export function duration(seconds) {
  seconds = Math.max(0, Math.round(seconds))
  if (seconds < 60) return t("time.s", seconds)
  if (seconds < 3600) return t("time.m", Math.floor(seconds / 60), seconds % 60)
  if (seconds < 2 * 86400) return t("time.h", Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60))
  return t("time.d", Math.floor(seconds / 86400))
}

const seconds = (a, b) => (new Date(b ?? Date.now()) - new Date(a)) / 1000

export const lasted = (start, end) => (start ? duration(seconds(start, end)) : "")

export const ago = (time) => (time ? h("time", { datetime: time, title: new Date(time).toLocaleString(languages[language]) }, t("time.ago", duration(seconds(time)))) : "–")

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"]
  let i = 0
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024
  return (i && n < 10 ? n.toFixed(1) : Math.round(n)) + " " + units[i]
}

export const number = (n) => n.toLocaleString(languages[language])

const marks = { good: "✓", moving: "↻", bad: "✗", idle: "–" }

const kinds = {
  good: ["Available", "Running:cloud", "Running:machine", "Succeeded", "Done", "Unchanged", "True"],
  bad: ["Degraded", "Failed", "Reverted", "False"],
  idle: ["Idle", "Disabled", "Skipped", "Cancelled", "Deleted", "", "Unknown"],
}

// kindOf sorts states into good, moving, bad and idle. A running machine has arrived, a running operation has not.
export function kindOf(state, of) {
  for (const [kind, states] of Object.entries(kinds)) if (states.includes(state) || states.includes(state + ":" + of)) return kind
  return "moving"
}

// state shows a state by colour, mark and word.
export function state(value, of) {
  const kind = kindOf(value ?? "", of)
  return h("span", { class: "state " + kind }, h("span", { "aria-hidden": "true", class: "turn" }, marks[kind]), " ", word(value || "Unknown"))
}

export const markOf = (kind) => marks[kind]

export function table(columns, rows, empty) {
  if (!rows.length) return h("p", { class: "soft" }, empty)
  return h("div", { class: "wide" }, h("table", {},
    h("thead", {}, h("tr", {}, columns.map((c) => h("th", { scope: "col" }, c)))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((c) => h("td", {}, c ?? "")))))))
}

export const note = (kind, ...lines) => h("div", { class: "note " + kind }, lines.filter(Boolean).map((l) => h("p", {}, l)))

// findings are findings of an operation, or of a problem of the interface.
export const findings = (all) => (all ?? []).map((f) => note(f.warning ? "" : "bad",
  h("strong", {}, f.code, " ", f.what ?? f.title), f.cause ?? f.detail, f.remedy && [h("span", { class: "soft" }, t("remedy"), " "), f.remedy]))
