// SPDX-License-Identifier: Apache-2.0
// Requests to the interface, and a copy of its resources that follows their changes.

let token = sessionStorage.getItem("token") ?? ""
export let namespace = sessionStorage.getItem("namespace") ?? "onecloud"

export const loggedIn = () => token !== ""

export function login(newToken, newNamespace) {
  token = newToken
  if (newNamespace) namespace = newNamespace
  sessionStorage.setItem("token", token)
  sessionStorage.setItem("namespace", namespace)
}

export function logout() {
  token = ""
  sessionStorage.removeItem("token")
}

export class Problem extends Error {
  constructor(problem) {
    super(problem.title)
    this.problem = problem
  }
}

const base = () => "/api/v1/namespaces/" + encodeURIComponent(namespace)

async function send(method, path, body, headers = {}, signal) {
  const request = { method, headers: { Authorization: "Bearer " + token, ...headers }, signal }
  if (body !== undefined) {
    request.body = JSON.stringify(body)
    request.headers["Content-Type"] = "application/json"
  }
  let answer
  try {
    answer = await fetch(base() + path, request)
  } catch (e) {
    if (signal?.aborted) throw e
    throw new Problem({ status: 0, unreachable: true })
  }
  if (!answer.ok) throw new Problem(await answer.json().catch(() => ({ status: answer.status, title: "HTTP " + answer.status })))
  return answer
}

export const get = async (path) => (await send("GET", path)).json()

// post sends a request that does its work once, also when the reader presses twice.
export const post = async (path, body, key = crypto.randomUUID()) => (await send("POST", path, body ?? {}, { "Idempotency-Key": key })).json()

// act sends a request that can be repeated.
export const act = async (path) => (await send("POST", path)).json()

export const remove = async (path, version) => send("DELETE", path, undefined, { "If-Match": version })

// messages reads server-sent events. EventSource cannot send a token.
async function* messages(path, signal) {
  const answer = await send("GET", path, undefined, {}, signal)
  let text = ""
  for await (const part of answer.body.pipeThrough(new TextDecoderStream())) {
    text += part
    for (let end; (end = text.indexOf("\n\n")) >= 0; text = text.slice(end + 2)) {
      const message = { event: "", data: "" }
      for (const line of text.slice(0, end).split("\n")) {
        if (line.startsWith("event: ")) message.event = line.slice(7)
        if (line.startsWith("data: ")) message.data = line.slice(6)
      }
      yield message // an empty one says that the connection lives
    }
  }
}

const wait = (ms, signal) => new Promise((done) => {
  const timer = setTimeout(done, ms)
  signal.addEventListener("abort", () => { clearTimeout(timer); done() }, { once: true })
})

// stream reads messages until it is aborted, and comes again when the connection ends. heard is called with each message, lost at each end: the next
// connection begins anew. The server ends streams without an error, too.
export async function stream(path, signal, heard, lost = () => {}) {
  for (let pause = 500; !signal.aborted; pause = Math.min(pause * 2, 15000)) {
    try {
      for await (const m of messages(path, signal)) {
        pause = 500
        if (heard(m)) return
      }
      if (!signal.aborted) lost()
    } catch (e) {
      if (signal.aborted) return
      if (e.problem?.status === 401 || e.problem?.status === 403) throw e
      lost(e)
    }
    await wait(pause, signal)
  }
}

// world is what is there: clouds, operations and machines by name, with their ETags.
export const world = { clouds: new Map(), operations: new Map(), machines: new Map(), rights: { allowed: [], user: "" }, live: false }

export const may = (what) => world.rights.allowed.includes(what)

// operationsWhere are the operations for which a condition holds, the latest first.
export const operationsWhere = (holds) => [...world.operations.values()].filter(holds)
  .sort((a, b) => b.metadata.creationTimestamp.localeCompare(a.metadata.creationTimestamp) || b.metadata.name.localeCompare(a.metadata.name))

// follow keeps the world up to date. Each connection begins with all that is there; what was deleted meanwhile is left out by reading the lists.
export async function follow(signal, changed) {
  world.rights = await get("/rights")
  const kinds = ["clouds", "operations", "machines"]
  const forget = async () => { // what went while there was no connection
    for (const kind of kinds) {
      const known = [...world[kind].keys()]
      const names = new Set()
      for (let next = "", first = true; known.length && (first || next); first = false) {
        const page = await get(`/${kind}?limit=500` + (next && "&continue=" + encodeURIComponent(next)))
        for (const o of page.items) names.add(o.metadata.name)
        next = page.continue ?? ""
      }
      for (const name of known) if (!names.has(name)) world[kind].delete(name)
    }
  }
  await stream("/events", signal, (m) => {
    if (!world.live) {
      world.live = true
      forget().then(changed, () => {}) // the next connection tries again
    }
    if (m.event === "change") {
      const { type, path, version, object } = JSON.parse(m.data)
      if (type === "DELETED") world[path].delete(object.metadata.name)
      else world[path].set(object.metadata.name, { ...object, version })
    }
    changed()
  }, () => {
    world.live = false
    changed()
  })
}
