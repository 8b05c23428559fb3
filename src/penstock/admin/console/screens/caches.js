// Caches: their keys and values; put and remove one.

import * as api from "../api.js";
import { h } from "../dom.js";
import { ago, bytes, count, time } from "../format.js";
import { listScreen, listed } from "../list_screen.js";
import { go, link } from "../router.js";
import { marked, parse, pretty } from "../value.js";
import { badge, button, confirm, dialog, empty, field, show, toast } from "../widgets.js";

export function caches(view) {
  listScreen(view, {
    title: "Caches",
    noun: "caches",
    load: () => listed(view, "/caches"),
    filter: (row) => row.name,
    none: empty("No caches", "A cache is there while it has a value in it."),
    onopen: (row) => go(link("/caches", row.name)),
    columns: () => [
      { title: "Cache", value: (row) => row.name, cell: (row) => h("a", { href: link("/caches", row.name) }, row.name) },
      { title: "Keys", end: true, value: (row) => row.keys, cell: (row) => count(row.keys) },
      { title: "Survives a restart", cell: (row) => badge(row.journalled ? "yes" : "no", row.journalled ? "ok" : "") },
    ],
  });
}

export function cache(view) {
  const name = view.names.cache;
  listScreen(view, {
    title: name,
    noun: "keys",
    actions: (refresh) => [button("Put a value", () => put(refresh), { icon: "plus", kind: "primary" })],
    load: () => listed(view, api.path`/caches/${name}`),
    filter: (row) => row.key,
    none: empty("No keys", "Nothing is in this cache now."),
    onopen: open,
    columns: (refresh) => [
      { title: "Key", mono: true, value: (row) => row.key, cell: (row) => row.key },
      { title: "Size", end: true, value: (row) => row.bytes, cell: (row) => bytes(row.bytes) },
      { title: "Expires", value: (row) => row.expires, cell: (row) => (row.expires ? h("span", { title: time(row.expires) }, ago(row.expires)) : h("span.muted", "never")) },
      { title: "", end: true, cell: (row) => h("div.actions", button("Open", () => open(row), { kind: "small" }), button("Remove", () => remove(row, refresh), { kind: "small" })) },
    ],
  });

  async function open(row) {
    try {
      const found = await api.get(api.path`/caches/${name}/${row.key}`);
      const parsed = parse(found.text);
      await show(row.key, h("div.value-box", marked(parsed === undefined ? (found.text ?? found.value) : pretty(parsed), "")[0]));
    } catch (error) {
      toast(error.message, "bad");
    }
  }

  async function put(refresh) {
    const key = h("input", { required: true, autofocus: true });
    const value = h("textarea", { rows: 6 });
    const life = h("input", { type: "number", min: 1, placeholder: "for ever" });
    const done = await dialog({ title: `Put a value into ${name}`, action: "Put the value", body: [field("Key", key, "What is there under this key is replaced."), field("Value", value), field("Lives for seconds", life)], send: () => api.put(api.path`/caches/${name}/${key.value}`, { text: value.value, ...(life.value ? { ttl_ms: Number(life.value) * 1000 } : {}) }) });
    if (done) toast(`${key.value} is in ${name}`);
    refresh();
  }

  async function remove(row, refresh) {
    const done = await confirm({ title: `Remove ${row.key}?`, text: `The key ${row.key} and its value are removed from ${name}.`, action: "Remove the key", send: () => api.del(api.path`/caches/${name}/${row.key}`) });
    if (done) toast(`${row.key} is removed`);
    refresh();
  }
}
