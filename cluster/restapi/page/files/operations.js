// SPDX-License-Identifier: Apache-2.0
// Operations: the list, and one with its steps and its log.

import { act, may, operationsWhere, stream, world } from "/page/api.js"
import { confirm } from "/page/dialogs.js"
import { ago, findings, h, kindOf, lasted, show, state, t, table, word } from "/page/dom.js"

const link = (o) => "#/operation/" + encodeURIComponent(o.metadata.name)

const nameLink = (o) => h("a", { href: link(o), id: "operation-" + o.metadata.name }, o.metadata.name)

export const operationLine = (o) => [nameLink(o), " ", state(o.status?.phase || "Pending"), o.status?.message ? ": " + o.status.message : ""]

// progressOf is how far an operation is: its steps, and what the running one does.
export function progressOf(o) {
  const steps = o?.status?.steps ?? []
  if (!steps.length) return ""
  const done = steps.filter((s) => ["Done", "Unchanged", "Skipped"].includes(s.state)).length
  const now = steps.find((s) => s.state === "Running")
  const text = t("operation.steps", done, steps.length)
  return [h("progress", { max: steps.length, value: done, "aria-label": text }), " ", now ? now.short ?? now.name : text]
}

export function operationsPage(main) {
  return {
    update() {
      const all = operationsWhere(() => true)
      show(main, h("h1", {}, t("nav.operations")), table([t("name"), t("action"), t("cloud"), t("phase"), t("began"), t("duration"), t("requester"), t("message")],
        all.map((o) => [nameLink(o), word(o.spec.action), o.spec.cloud, state(o.status?.phase || "Pending"), ago(o.status?.start),
          lasted(o.status?.start, o.status?.end), o.spec.requester ?? "", o.status?.message ?? ""]), world.live ? t("operations.none") : t("loading")))
    },
  }
}

function step(s) {
  const kind = kindOf(s.state === "Pending" || !s.state ? "" : s.state)
  return h("li", { class: kind },
    h("span", { class: "state " + kind }, word(s.state || "Pending")), " ",
    h("strong", {}, s.short ?? s.name), s.revert && h("span", { class: "soft" }, " ", t("step.revert")),
    s.start && s.state !== "Skipped" && h("span", { class: "soft" }, " ", lasted(s.start, s.end)),
    s.state === "Running" && s.total > 0 && [" ", h("progress", { max: s.total, value: s.done ?? 0, "aria-label": s.short ?? s.name }), " ", `${s.done ?? 0}/${s.total} ${s.unit ?? ""}`],
    s.message && s.state !== "Done" && h("div", {}, s.message),
    s.evidence?.length && h("details", { id: "evidence-" + s.name + (s.revert ? "-back" : "") }, h("summary", { id: "evidence-of-" + s.name + (s.revert ? "-back" : "") }, t("evidence", s.evidence.length)),
      h("ul", {}, s.evidence.map((e) => h("li", {}, e)))))
}

const signs = { "phase-started": "▸", "phase-done": "✓", "phase-failed": "✗", "phase-skipped": "–", waiting: "…" }

// logLine is a line of the log for readers: package workflow writes events in JSON.
function logLine(text) {
  let e
  try {
    e = JSON.parse(text)
  } catch {
    return ["", text]
  }
  const what = [e.phase ?? e.plan, signs[e.type] ?? (e.phase ? " " : e.type), e.why && t("log.waits", e.why), e.message, e.total ? `${e.done ?? 0}/${e.total} ${e.unit ?? ""}` : ""].filter(Boolean).join("  ") +
    (e.changes ?? []).map((c) => "\n    " + c).join("") + (e.findings ?? []).map((f) => `\n    ${f.code} ${f.what}: ${f.cause ?? ""}`).join("")
  return [e.time ? new Date(e.time).toLocaleTimeString() + "  " : "", what]
}

const verbs = { pause: (p) => p === "Running" || p === "Planning" || p === "Pending", resume: (p) => p === "Paused", cancel: (p) => ["Pending", "Planning", "Running", "Paused"].includes(p) }

export function operationPage(main, complain, name) {
  const head = h("div", {}), log = h("pre", { class: "log", id: "log", tabindex: "0", role: "log", "aria-label": t("log") })
  show(main, head, h("h2", {}, t("log")), log)
  const reading = new AbortController()
  let lines = 0, last = ""
  const most = 2000
  stream(`/operations/${encodeURIComponent(name)}/log`, reading.signal, (m) => {
    if (m.event === "end") return true
    if (m.event !== "line") return false
    const bottom = log.scrollTop + log.clientHeight >= log.scrollHeight - 30
    const [time, what] = logLine(m.data)
    if (what === last) return false
    last = what
    log.append(time + what + "\n")
    if (++lines > most) log.firstChild.remove()
    if (bottom) log.scrollTop = log.scrollHeight
    return false
  }, () => { log.replaceChildren(); lines = 0; last = "" }).catch((e) => { log.append(e.problem?.title ?? String(e)) })
  return {
    leave: () => reading.abort(),
    update() {
      const o = world.operations.get(name)
      if (!o) return show(head, h("h1", {}, name), h("p", { class: "soft" }, world.live ? t("gone") : t("loading")))
      const phase = o.status?.phase || "Pending"
      const button = (verb) => h("button", { type: "button", id: verb, class: verb === "cancel" ? "danger" : "", onclick: () =>
        confirm(t("confirm." + verb, name), t("does." + verb), t(verb), () => act(`/operations/${encodeURIComponent(name)}/${verb}`), complain) }, t(verb))
      show(head,
        h("h1", {}, `${word(o.spec.action)} ${name}`, " ", state(phase),
          may("operations:update") && h("span", { class: "actions" }, Object.keys(verbs).filter((v) => verbs[v](phase)).map(button))),
        h("p", { class: "soft" }, t("cloud"), " ", h("a", { href: "#/cloud/" + encodeURIComponent(o.spec.cloud), id: "of-cloud" }, o.spec.cloud), " · ",
          o.spec.requester ?? "", " · ", ago(o.status?.start), " · ", lasted(o.status?.start, o.status?.end)),
        o.status?.message && h("p", {}, o.status.message),
        findings(o.status?.findings),
        o.status?.plan?.length && [h("h2", {}, t("plan")), h("ul", { class: "facts" }, o.status.plan.map((l) => h("li", {}, l)))],
        h("h2", {}, t("steps")), h("ol", { class: "steps", id: "steps" }, (o.status?.steps ?? []).map(step)))
    },
  }
}
