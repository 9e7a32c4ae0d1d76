// SPDX-License-Identifier: Apache-2.0
// The page: login, navigation, and what follows the changes.

import { follow, loggedIn, login, logout, namespace, world } from "/page/api.js"
import { cloudPage, cloudsPage } from "/page/clouds.js"
import { findings, h, languageNow, loadTexts, note, setLanguage, show, t } from "/page/dom.js"
import { machinePage, machinesPage } from "/page/machines.js"
import { operationPage, operationsPage } from "/page/operations.js"

const element = (id) => document.getElementById(id)

let view = null // {update, leave}
let connection = null

const pages = { clouds: cloudsPage, cloud: cloudPage, operations: operationsPage, operation: operationPage, machines: machinesPage, machine: machinePage }

// complain shows an error until the reader closes it or goes elsewhere.
export function complain(e) {
  if (e.name === "AbortError") return
  const p = e.problem
  const text = !p ? [note("bad", String(e))]
    : p.unreachable ? [note("bad", t("unreachable"))]
      : findings(p.findings ?? [p])
  show(element("problem"), text, h("button", { type: "button", id: "close", onclick: () => show(element("problem")) }, t("close")))
  if (p?.status === 401) out()
}

function heading() {
  const [, name] = location.hash.split("/")
  element("skip").textContent = t("skip")
  show(element("nav"), loggedIn() && ["clouds", "operations", "machines"].map((n) =>
    h("a", { href: "#/" + n, id: "nav-" + n, "aria-current": (name || "clouds").replace(/s?$/, "s") === n ? "page" : null }, t("nav." + n))))
  element("who").textContent = loggedIn() ? t("who", world.rights.user, namespace) : ""
  element("language").textContent = languageNow() ? "English" : "中文"
  element("theme").textContent = t("theme")
  element("logout").textContent = t("logout")
  element("logout").hidden = !loggedIn()
  element("link").textContent = t("lost")
  element("link").hidden = !loggedIn() || world.live || !view
}

// go shows the page of the address.
function go() {
  view?.leave?.()
  view = null
  show(element("problem"))
  if (!loggedIn()) return loginPage()
  const [, name, ...path] = location.hash.split("/").map(decodeURIComponent)
  const page = pages[name] ?? cloudsPage
  view = page(element("main"), complain, ...path)
  heading()
  view.update()
  element("main").focus({ preventScroll: true })
}

let due = false

// changed shows what is new, once for all changes of a moment.
function changed() {
  if (due) return
  due = true
  setTimeout(() => {
    due = false
    heading()
    view?.update()
  }, 100)
}

function start() {
  connection = new AbortController()
  const { signal } = connection
  show(element("main"), h("p", { class: "soft" }, t("loading")))
  follow(signal, () => { if (!signal.aborted) changed() }).catch((e) => { if (!signal.aborted) complain(e) })
  go()
}

function out() {
  connection?.abort()
  logout()
  for (const kind of ["clouds", "operations", "machines"]) world[kind].clear()
  world.rights = { allowed: [], user: "" }
  world.live = false
  view?.leave?.()
  view = null
  loginPage()
}

function loginPage() {
  heading()
  const token = h("input", { id: "token", type: "password", required: true, autocomplete: "off" })
  const where = h("input", { id: "namespace", value: namespace, required: true })
  const enter = (e) => {
    e.preventDefault()
    show(element("problem"))
    login(token.value.trim(), where.value.trim())
    start()
  }
  show(element("main"), h("form", { class: "login", onsubmit: enter },
    h("h1", {}, t("login")),
    h("p", { class: "soft" }, t("login.how")), h("pre", { class: "log" }, "kubectl -n onecloud create token NAME"),
    h("p", {}, h("label", { for: "token" }, t("login.token")), token),
    h("p", {}, h("label", { for: "namespace" }, t("login.namespace")), where),
    h("button", { class: "main", id: "enter" }, t("login"))))
  token.focus()
}

function theme(next) {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"
  const now = localStorage.getItem("theme") ?? system
  const chosen = next ? (now === "dark" ? "light" : "dark") : now
  if (next) localStorage.setItem("theme", chosen)
  if (localStorage.getItem("theme")) document.documentElement.dataset.theme = chosen
}

// A link of "ocadm ui" carries the token behind #, which no server sees.
function fromLink() {
  const given = new URLSearchParams(location.hash.slice(1))
  if (!given.has("token")) return
  login(given.get("token"), given.get("namespace"))
  history.replaceState(null, "", "/")
}

theme(false)
await loadTexts()
fromLink()
element("language").addEventListener("click", () => {
  setLanguage(1 - languageNow())
  localStorage.setItem("language", languageNow() ? "zh" : "en")
  loggedIn() ? go() : loginPage()
})
element("theme").addEventListener("click", () => theme(true))
element("logout").addEventListener("click", out)
element("skip").addEventListener("click", (e) => { // its address is no page
  e.preventDefault()
  element("main").focus()
})
addEventListener("keydown", (e) => { if (e.key === "Escape" && !document.querySelector("dialog")) show(element("problem")) })
addEventListener("hashchange", go)
setInterval(() => { if (view && !document.hidden) view.update() }, 5000) // ages
loggedIn() ? start() : loginPage()
