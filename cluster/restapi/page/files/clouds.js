// SPDX-License-Identifier: Apache-2.0
// Clouds: the list, and one with its components, releases, backups and figures.

import { get, may, operationsWhere, world } from "/page/api.js"
import { backupDialog, rollbackDialog, updateDialog } from "/page/dialogs.js"
import { ago, bytes, duration, h, note, number, show, state, t, table, word } from "/page/dom.js"
import { graph, plot } from "/page/draw.js"
import { operationLine, progressOf } from "/page/operations.js"

const available = (cloud) => {
  const all = (cloud.status?.components ?? []).filter((c) => c.state !== "Disabled" && c.state !== "Idle")
  return t("cloud.available", all.filter((c) => c.state === "Available").length, all.length)
}

const link = (cloud, component) => `#/cloud/${encodeURIComponent(cloud)}` + (component ? "/" + encodeURIComponent(component) : "")

export function cloudsPage(main) {
  return {
    update() {
      const rows = [...world.clouds.values()].map((c) => [
        h("a", { href: link(c.metadata.name), id: "cloud-" + c.metadata.name }, c.metadata.name), state(c.status?.phase, "cloud"),
        c.status?.version ?? c.spec.version ?? "", available(c), progressOf(operationsWhere((o) => o.spec.cloud === c.metadata.name && !o.status?.end)[0])])
      show(main, h("h1", {}, t("nav.clouds")),
        world.live ? table([t("name"), t("phase"), t("version"), t("components"), t("operation")], rows, t("clouds.none")) : h("p", { class: "soft" }, t("loading")))
    },
  }
}

// conditions that are worth a line: those that are not as they should be. In a paused cloud, nothing is repaired.
const wrong = { Ready: "False", NodesReady: "False", FieldsIgnored: "True", UpdateAvailable: "True", HighlyAvailable: "False", BackupProven: "False", DatabaseRedundant: "False", NodeCertificates: "False", Degraded: "True", UpdateFailed: "True" }

const conditions = (cloud) => (cloud.status?.conditions ?? []).filter((c) => wrong[c.type] === c.status || c.reason === "Paused")
  .map((c) => h("li", {}, h("strong", {}, word(c.reason === "Paused" ? c.reason : c.type)), ": ", c.message))

function componentDetails(c, cloud) {
  const line = (name, value) => value ? h("tr", {}, h("th", { scope: "row" }, name), h("td", {}, value)) : null
  const others = (of, names) => (names ?? []).flatMap((n, i) => [i ? ", " : "", h("a", { href: link(cloud, n), id: of + n }, n)])
  return h("section", { "aria-labelledby": "component" },
    h("h2", { id: "component" }, c.name),
    h("table", {}, h("tbody", {},
      line(t("state"), [state(c.state), " ", c.since && h("span", { class: "soft" }, ago(c.since))]),
      line(t("why"), c.message),
      line(t("waits"), c.blockedBy?.length && others("waits-", c.blockedBy)),
      line(t("pods"), c.replicas ? t("pods.ready", c.ready ?? 0, c.replicas) : ""),
      line(t("image"), c.image && [c.image, c.pinned && h("span", { class: "soft" }, " ", t("pinned"))]),
      line(t("needs"), c.after?.length && others("needs-", c.after)))))
}

const releaseRow = (cloud, complain) => (r) => [r.revision, r.version, ago(r.time), (r.why ?? []).map((w) => h("div", {}, w)), r.by ?? "",
  r.inForce ? h("strong", {}, t("inforce")) : may("operations:create") &&
    h("button", { type: "button", id: "back-" + r.revision, onclick: () => rollbackDialog(cloud, r, complain) }, t("rollback"))]

// scheduled: only such a cloud has a place for backups.
const scheduled = (cloud) => cloud.spec.backup?.disable === false

const backupRow = (b) => [ago(b.time), b.name ?? "–", b.place ?? "",
  b.error ? h("span", { class: "bad" }, "✗ ", b.error) : [bytes(b.size ?? 0), ", ", t("backup.rows", number(b.tables ?? 0), number(b.rows ?? 0)), ", ", duration(b.seconds ?? 0)],
  b.proven ? h("span", { class: "good" }, "✓ ", t("backup.proven")) : h("span", { class: "bad" }, "✗ ", b.problem ?? t("backup.unproven"))]

// cloudPage is one cloud. What no change reports (releases, backups, figures) is read again when the release or the backup changes, and each minute.
export function cloudPage(main, complain, name, chosen) {
  const more = { after: new Map(), releases: [], backups: [], metrics: [] }
  let read = "", gone = false
  const load = async () => {
    const path = "/clouds/" + encodeURIComponent(name)
    try {
      const [components, releases, metrics] = await Promise.all(["/components", "/releases", "/metrics"].map((p) => get(path + p)))
      more.after = new Map(components.items.map((c) => [c.name, c.after]))
      more.releases = releases.items
      more.metrics = metrics.items
      more.backups = (await get(path + "/backups").catch((e) => ({ items: [], error: e }))).items
    } catch (e) {
      complain(e)
    }
    if (!gone) update()
  }
  const timer = setInterval(() => { if (!document.hidden) load() }, 60000)
  const update = () => {
    const cloud = world.clouds.get(name)
    if (!cloud) return show(main, h("h1", {}, name), h("p", { class: "soft" }, world.live ? t("gone") : t("loading")))
    const status = cloud.status ?? {}
    const version = [status.release?.revision, status.backups?.last, status.backups?.proven, (status.components ?? []).length].join()
    if (version !== read) {
      read = version
      load()
    }
    const components = (status.components ?? []).filter((c) => c.state !== "Disabled").map((c) => ({ ...c, after: more.after.get(c.name) }))
    const one = components.find((c) => c.name === chosen)
    const running = operationsWhere((o) => o.spec.cloud === name && !o.status?.end)
    show(main,
      h("h1", {}, name, " ", state(status.phase, "cloud"), may("operations:create") && h("span", { class: "actions" },
        h("button", { type: "button", id: "update", onclick: () => updateDialog(cloud, complain) }, t("update")))),
      h("p", {}, t("version"), ": ", h("strong", { id: "version" }, status.version ?? cloud.spec.version ?? "–"), " · ", h("span", { id: "available" }, available(cloud))),
      h("ul", { class: "facts" }, conditions(cloud)),
      running.map((o) => note("", operationLine(o), progressOf(o))),
      h("h2", {}, t("components")),
      graph(components, chosen, (n) => link(name, n)),
      one && componentDetails(one, name),
      h("details", { id: "all-components" }, h("summary", { id: "components-table" }, t("components.table")), table([t("name"), t("state"), t("version"), t("pods"), t("why")],
        components.map((c) => [h("a", { href: link(name, c.name), id: "component-" + c.name }, c.name), state(c.state), c.version ?? "", c.replicas ? `${c.ready ?? 0}/${c.replicas}` : "",
          c.blockedBy?.length ? t("graph.waits", c.blockedBy.join(", ")) : c.message ?? ""]), "")),
      more.metrics.length > 0 && [h("h2", {}, t("metrics")), h("div", { class: "plots" }, more.metrics.map(plot))],
      h("h2", {}, t("releases")),
      table(["", t("version"), t("time"), t("changes"), t("by"), ""], more.releases.map(releaseRow(cloud, complain)), t("releases.none")),
      h("h2", {}, t("backups"), " ", scheduled(cloud) && may("operations:create") && h("span", { class: "actions" },
        h("button", { type: "button", id: "backup", onclick: () => backupDialog(cloud, complain) }, t("backup.now")))),
      table([t("time"), t("file"), t("place"), t("contents"), t("proof")], more.backups.map(backupRow), scheduled(cloud) ? t("backups.soon") : t("backups.none")))
  }
  return { update, leave: () => { gone = true; clearInterval(timer) } }
}
