// SPDX-License-Identifier: Apache-2.0
// Questions before anything changes.

import { post, world } from "/page/api.js"
import { h, t, word } from "/page/dom.js"

// ask opens a dialog; run does the work when the reader confirms, and the dialog stays open while it fails.
function ask(title, content, verb, run, complain, kind) {
  const back = document.activeElement
  const yes = h("button", { class: kind === "danger" ? "danger" : "main", id: "yes" }, verb)
  const form = h("form", { method: "dialog" },
    h("h2", { id: "question" }, title), content,
    h("div", { class: "actions" }, h("button", { type: "button", id: "no", onclick: () => dialog.close() }, t("no")), yes))
  const dialog = h("dialog", { "aria-labelledby": "question" }, form)
  form.addEventListener("submit", async (e) => {
    e.preventDefault()
    yes.disabled = true
    try {
      await run()
      dialog.close()
    } catch (problem) {
      dialog.close()
      complain(problem)
    }
  })
  dialog.addEventListener("close", () => {
    dialog.remove()
    ;(document.getElementById(back?.id) ?? document.getElementById("main")).focus()
  })
  document.body.append(dialog)
  dialog.showModal()
}

export const confirm = (title, text, verb, run, complain, kind) => ask(title, h("p", {}, text), verb, run, complain, kind)

const open = (o) => { location.hash = "#/operation/" + encodeURIComponent(o.metadata.name) }

const choice = (name, id, value, text, checked) => h("label", { class: "line" }, h("input", { type: "radio", name, id, value, checked, required: true }), h("span", {}, text))

// group is one question with several answers.
const group = (text, ...answers) => h("fieldset", {}, h("legend", {}, text), answers)

const chosen = (name) => document.querySelector(`input[name="${name}"]:checked`)?.value

export function updateDialog(cloud, complain) {
  const name = cloud.metadata.name, now = cloud.spec.version ?? cloud.status?.version ?? ""
  const version = h("input", { id: "to-version", required: true, value: now, pattern: "v?[0-9]+\\.[0-9]+.*", autocomplete: "off" })
  const key = crypto.randomUUID()
  ask(t("update.title", name), [
    h("p", {}, t("update.does", now)),
    h("label", { for: "to-version" }, t("update.version")), version,
    group(t("update.failure"),
      choice("failure", "failure-rollback", "rollback", t("update.rollback"), true), choice("failure", "failure-pause", "pause", t("update.pause"))),
  ], t("update"), async () => open(await post(`/clouds/${encodeURIComponent(name)}/update`,
    { onFailure: chosen("failure"), update: { version: version.value.trim() } }, key)), complain)
}

export function rollbackDialog(cloud, release, complain) {
  const name = cloud.metadata.name, key = crypto.randomUUID()
  ask(t("rollback.title", name, release.revision), [
    h("p", {}, t("rollback.does", release.version)),
    group(t("rollback.databases"), choice("databases", "databases-ask", "", t("rollback.ask"), true),
      choice("databases", "databases-restore", "restoreDatabases", t("rollback.restore")),
      choice("databases", "databases-keep", "keepDatabases", t("rollback.keep"))),
  ], t("rollback"), async () => {
    const rollback = { revision: release.revision }
    if (chosen("databases")) rollback[chosen("databases")] = true
    open(await post(`/clouds/${encodeURIComponent(name)}/rollback`, { rollback }, key))
  }, complain, "danger")
}

export function backupDialog(cloud, complain) {
  const name = cloud.metadata.name, key = crypto.randomUUID()
  confirm(t("backup.title", name), t("backup.does"), t("backup.now"), async () => open(await post(`/clouds/${encodeURIComponent(name)}/backups`, undefined, key)), complain)
}

const roles = ["compute", "controller", "controlplane", "baremetal", "lbagent"]

export function addMachineDialog(complain) {
  const field = (id, text, required, more) => [h("label", { for: id }, text), h("input", { id, required, autocomplete: "off", ...more })]
  const value = (id) => document.getElementById(id).value.trim()
  const key = crypto.randomUUID()
  ask(t("machine.add"), [
    h("p", {}, t("machine.does")),
    h("label", { for: "m-cloud" }, t("cloud")), h("select", { id: "m-cloud" }, [...world.clouds.keys()].map((n) => h("option", {}, n))),
    field("m-name", t("name"), true), field("m-address", t("address"), true), field("m-user", t("machine.user"), false, { placeholder: "root" }),
    field("m-secret", t("machine.secret"), true), field("m-key", t("machine.key"), false, { placeholder: "SHA256:…" }),
    group(t("roles"), roles.map((r) => h("label", { class: "line" }, h("input", { type: "checkbox", id: "m-role-" + r, checked: r === "compute" }), h("span", {}, word(r))))),
  ], t("machine.add"), async () => {
    const ssh = { address: value("m-address"), credentialsSecretName: value("m-secret") }
    if (value("m-user")) ssh.user = value("m-user")
    if (value("m-key")) ssh.hostKey = value("m-key")
    const machine = await post("/machines", { metadata: { name: value("m-name") }, spec: {
      cloud: value("m-cloud"), roles: roles.filter((r) => document.getElementById("m-role-" + r).checked), infrastructure: { ssh } } }, key)
    location.hash = "#/machine/" + encodeURIComponent(machine.metadata.name)
  }, complain)
}
