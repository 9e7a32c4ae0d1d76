// SPDX-License-Identifier: Apache-2.0
// Machines: the list, and one with its conditions and operations.

import { act, may, operationsWhere, post, remove, world } from "/page/api.js"
import { addMachineDialog, confirm } from "/page/dialogs.js"
import { ago, findings, h, note, show, state, t, table, word } from "/page/dom.js"

const link = (name) => "#/machine/" + encodeURIComponent(name)
const addressOf = (m) => m.spec.infrastructure?.ssh?.address ?? m.status?.addresses?.[0]?.address ?? ""

export function machinesPage(main, complain) {
  return {
    update() {
      const rows = [...world.machines.values()].sort((a, b) => a.metadata.name.localeCompare(b.metadata.name)).map((m) => [
        h("a", { href: link(m.metadata.name), id: "machine-" + m.metadata.name }, m.metadata.name), state(m.status?.phase, "machine"), addressOf(m),
        (m.spec.roles ?? []).map(word).join(", "), m.status?.nodeRef?.name ?? "", m.status?.failureMessage ?? m.status?.message ?? ""])
      show(main, h("h1", {}, t("nav.machines"), may("machines:create") && world.clouds.size > 0 &&
        h("span", { class: "actions" }, h("button", { type: "button", id: "add", onclick: () => addMachineDialog(complain) }, t("machine.add")))),
      table([t("name"), t("phase"), t("address"), t("roles"), t("node"), t("message")], rows, world.live ? t("machines.none") : t("loading")))
    },
  }
}

const paused = (m) => m.metadata.annotations?.["onecloud.yunion.io/paused"] === "true"

export function machinePage(main, complain, name) {
  const path = "/machines/" + encodeURIComponent(name)
  const ask = (verb, run, kind) => h("button", { type: "button", id: verb, class: kind ?? "", onclick: () =>
    confirm(t("confirm." + verb + ".machine", name), t("does." + verb + ".machine"), t(verb), run, complain, kind) }, t(verb))
  return {
    update() {
      const m = world.machines.get(name)
      if (!m) return show(main, h("h1", {}, name), h("p", { class: "soft" }, world.live ? t("gone") : t("loading")))
      const operations = operationsWhere((o) => o.spec.machine?.name === name)
      const checked = operations.find((o) => o.status?.findings?.length)
      show(main,
        h("h1", {}, name, " ", state(m.status?.phase, "machine"), h("span", { class: "actions" },
          may("operations:create") && ask("precheck", () => post(path + "/precheck").then((o) => { location.hash = "#/operation/" + o.metadata.name })),
          may("machines:update") && (paused(m) ? ask("resume", () => act(path + "/resume")) : ask("pause", () => act(path + "/pause"))),
          may("machines:update") && m.status?.phase === "Failed" && ask("retry", () => act(path + "/retry")),
          may("machines:delete") && !m.metadata.deletionTimestamp && ask("remove", () => remove(path, m.version), "danger"))),
        h("p", { class: "soft" }, t("cloud"), " ", h("a", { href: "#/cloud/" + encodeURIComponent(m.spec.cloud), id: "of-cloud" }, m.spec.cloud), " · ", addressOf(m), " · ",
          (m.spec.roles ?? []).map(word).join(", "), m.status?.nodeRef?.name && ` · ${t("node")} ${m.status.nodeRef.name}`),
        paused(m) && note("", t("machine.paused")),
        m.status?.failureMessage ? note("bad", h("strong", {}, m.status.failureReason), m.status.failureMessage) : m.status?.message && h("p", {}, m.status.message),
        checked && findings(checked.status.findings),
        h("h2", {}, t("conditions")),
        table([t("condition"), t("state"), t("time"), t("message")], (m.status?.conditions ?? []).map((c) =>
          [word(c.type), state(c.status), ago(c.lastTransitionTime), c.message]), "–"),
        h("h2", {}, t("nav.operations")),
        table([t("name"), t("action"), t("phase"), t("began"), t("message")], operations.map((o) =>
          [h("a", { href: "#/operation/" + encodeURIComponent(o.metadata.name), id: "operation-" + o.metadata.name }, o.metadata.name), word(o.spec.action), state(o.status?.phase || "Pending"), ago(o.status?.start), o.status?.message ?? ""]), t("operations.none")))
    },
  }
}
