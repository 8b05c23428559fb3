// Schemas: versions, what changed between two, and whether a definition could be the next.

import * as api from "../api.js";
import { h, replace } from "../dom.js";
import { count, plural, time } from "../format.js";
import { diffLines } from "../diff.js";
import { listScreen, listed } from "../list_screen.js";
import { go, link } from "../router.js";
import { parse, pretty } from "../value.js";
import { badge, button, card, confirm, dialog, empty, failure, field, loading, select, table, toast } from "../widgets.js";

const MODES = ["none", "backward", "forward", "full"];
const encode = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));
const decodeText = (data) => new TextDecoder().decode(Uint8Array.from(atob(data), (each) => each.charCodeAt(0)));
const readable = (text) => {
  const parsed = parse(text);
  return parsed === undefined ? text : pretty(parsed);
};

export function schemas(view) {
  listScreen(view, {
    title: "Schemas",
    noun: "schemas",
    seconds: 10,
    load: async () => {
      const latest = new Map();
      for (const each of await listed(view, "/schemas")) {
        const known = latest.get(each.name);
        latest.set(each.name, { ...each, versions: (known?.versions ?? 0) + 1, version: Math.max(each.version, known?.version ?? 0) });
      }
      return [...latest.values()];
    },
    filter: (row) => `${row.name} ${row.kind}`,
    none: empty("No schemas", "A topic with a schema takes only records that fit it. JSON Schema, Avro and Protobuf."),
    onopen: (row) => go(link("/schemas", row.name)),
    actions: () => [button("Register a schema", () => register("", "json", ""), { kind: "primary", icon: "plus" })],
    columns: () => [
      { title: "Schema", value: (row) => row.name, cell: (row) => h("a", { href: link("/schemas", row.name) }, row.name) },
      { title: "Kind", value: (row) => row.kind, cell: (row) => badge(row.kind, "info") },
      { title: "Compatibility", value: (row) => row.mode, cell: (row) => row.mode },
      { title: "Versions", end: true, value: (row) => row.versions, cell: (row) => count(row.versions) },
      { title: "Latest", end: true, value: (row) => row.version, cell: (row) => row.version },
    ],
  });
}

/** Register the next version, after a check that shows why it could not be. */
async function register(name, kind, definition) {
  const subject = h("input", { required: true, value: name, readonly: Boolean(name) });
  const kinds = select(["json", "avro", "protobuf"], kind);
  const text = h("textarea", { rows: 14, required: true, spellcheck: "false", value: definition });
  const verdict = h("div", { role: "status" });
  const body = () => ({ kind: kinds.value, definition: encode(text.value) });
  const check = async () => {
    try {
      const found = await api.post(api.path`/schemas/${subject.value}/compatibility`, body());
      replace(verdict, found.reasons.length ? [badge(`not ${found.mode}`, "bad"), h("ul.details", found.reasons.map((each) => h("li", each)))] : badge(`it could be the next version (${found.mode})`, "ok"));
    } catch (error) {
      replace(verdict, h("p.problem", error.status === 404 ? "There is no version yet: any definition could be the first." : error.message));
    }
  };
  const made = await dialog({ title: name ? `The next version of ${name}` : "Register a schema", wide: true, action: "Register the version", body: [h("div.row", field("Name", subject), field("Kind", kinds)), field("Definition", text), h("div.actions", button("Check compatibility", check, { icon: "check" })), verdict], send: () => api.post(api.path`/schemas/${subject.value}`, body()) });
  if (made) {
    toast(`${made.name} has version ${made.version}`);
    go(link("/schemas", made.name, { v: made.version }));
  }
  return made;
}

export function schema(view) {
  const name = view.names.schema;
  const where = api.path`/schemas/${name}`;
  const body = h("div.grid");
  let versions = [];
  view.show(
    h("nav.crumbs", { "aria-label": "Where you are" }, h("a", { href: link("/schemas") }, "Schemas"), "/"),
    view.title(name, button("New version", next, { kind: "primary", icon: "plus" }), button("Compatibility", mode, { icon: "edit" }), button("Delete", remove, { icon: "trash" })),
    body,
  );
  load();

  /** The newest version first. Dialogs ask for it: they may be opened before the page has it. */
  async function current() {
    return (await listed(view, where)).sort((a, b) => b.version - a.version);
  }

  async function load() {
    replace(body, loading());
    try {
      versions = await current();
      const shown = Number(view.state.get("v")) || versions[0].version;
      const against = Number(view.state.get("against")) || 0;
      const [one, other] = await Promise.all([shown, against].map((each) => (each ? api.get(`${where}/${each}`, {}, { signal: view.signal }) : null)));
      draw(shown, against, readable(decodeText(one.definition)), other && readable(decodeText(other.definition)));
    } catch (error) {
      if (error.name !== "AbortError") replace(body, failure(error, load));
    }
  }

  function draw(shown, against, text, earlier) {
    const choose = (values) => (view.state.set(values), load());
    replace(
      body,
      card(
        "Versions",
        table(
          [
            { title: "Version", cell: (row) => h("button.button.small", { type: "button", "aria-pressed": row.version === shown, onclick: () => choose({ v: row.version }) }, `version ${row.version}`) },
            { title: "Kind", cell: (row) => badge(row.kind, "info") },
            { title: "Compatibility", cell: (row) => row.mode },
            { title: "Registered", cell: (row) => h("span.muted", time(row.created).slice(0, 19)) },
          ],
          versions,
        ),
      ),
      card(
        earlier === null ? `Version ${shown}` : `Version ${against} → ${shown}`,
        versions.length > 1 && h("div.row", field("Compare with", select([["", "nothing"], ...versions.filter((each) => each.version !== shown).map((each) => [each.version, `version ${each.version}`])], against || "", (value) => choose({ against: value })))),
        h("div.diff", earlier === null ? text.split("\n").map((line) => h("div", line)) : diffLines(earlier, text).map(([kind, line]) => h("div", { class: kind }, `${{ added: "+ ", removed: "− ", same: "  " }[kind]}${line}`))),
      ),
    );
  }

  async function next() {
    const latest = await api.get(`${where}/latest`);
    if (await register(name, latest.schema.kind, readable(decodeText(latest.definition)))) load();
  }

  async function mode() {
    const [latest] = await current();
    const chosen = select(MODES, latest.mode);
    const done = await dialog({ title: `Compatibility of ${name}`, action: "Change the compatibility", body: [field("The next version must be", chosen, "backward: readers of the new version understand old records; forward: the other way round")], send: () => api.put(where, { mode: chosen.value }) });
    if (done) load();
  }

  async function remove() {
    const { length } = await current();
    const done = await confirm({ title: `Delete ${name}?`, text: `${name} is deleted with ${plural(length, "version")}. A topic that still names it refuses every record.`, action: "Delete the schema", send: () => api.del(where) });
    if (done) go(link("/schemas"));
  }
}
