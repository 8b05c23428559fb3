// The administration API, as the console asks it. There is no other way to the data.

import { scope, search } from "./router.js";

const BASE = "/api/v1";

export class ApiError extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Called when the broker wants a login. */
let onLogin = () => {};
export function whenLoginIsNeeded(callback) {
  onLogin = callback;
}

async function ask(method, path, { query = {}, body, signal, accept, quiet } = {}) {
  const headers = {};
  if (accept) headers.Accept = accept;
  if (method !== "GET") headers["Content-Type"] = "application/json";
  let reply;
  try {
    reply = await fetch(BASE + path + search({ ...scope(), ...query }), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      credentials: "same-origin",
      cache: "no-store",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "unreachable", "The broker does not answer. Is it running?");
  }
  if (reply.ok) return reply;
  let problem = {};
  try {
    problem = (await reply.json()).error ?? {};
  } catch {
    // not one of ours: a proxy's page, say
  }
  if (reply.status === 401 && !quiet) onLogin();
  throw new ApiError(reply.status, problem.code ?? "error", problem.message ?? `The broker answered ${reply.status}`);
}

async function json(method, path, options) {
  return (await ask(method, path, options)).json();
}

export const get = (path, query, options) => json("GET", path, { query, ...options });
export const post = (path, body, options) => json("POST", path, { body: body ?? {}, ...options });
export const put = (path, body, options) => json("PUT", path, { body: body ?? {}, ...options });
export const patch = (path, body, options) => json("PATCH", path, { body, ...options });
export const del = (path, options) => json("DELETE", path, options);

/** A path with names in it: path`/topics/${name}/records`. */
export function path(texts, ...names) {
  return texts.reduce((all, text, at) => all + encodeURIComponent(names[at - 1]) + text);
}

/** All items of a list, page after page, up to so many. `cut` on the result says that there were more. */
export async function all(path, query = {}, { most = 10000, ...options } = {}) {
  const items = [];
  let after = "";
  do {
    const page = await get(path, { limit: 1000, ...query, after }, options);
    items.push(...page.items);
    after = page.next ?? "";
  } while (after && items.length < most);
  items.cut = Boolean(after);
  return items;
}

/** Lines of JSON as they come, in batches: `each(batch)`. From `opened` on nothing is missed. Ends with the stream, or when the signal aborts. */
export async function stream(path, query, { signal, each, opened }) {
  const reply = await ask("GET", path, { query, signal, accept: "application/x-ndjson" });
  opened?.();
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    const batch = lines.filter(Boolean).map((line) => JSON.parse(line));
    if (batch.length) each(batch);
  }
}
