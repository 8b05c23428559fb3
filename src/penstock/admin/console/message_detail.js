// One open message: where it is, its headers, and its value in four ways, with a search inside.

import { h, replace } from "./dom.js";
import { bytes, count, time, utc, zone } from "./format.js";
import { copy, definitions, download, iconButton } from "./widgets.js";
import { decode, hex, marked, parse, pretty, size, tree } from "./value.js";

/**
 * actions: [{text, icon, run(record)}]; `state` keeps how the value is shown in the address. `decode(record)` is there if
 * the topic has a schema whose values are not JSON: it gives {kind, version, value, reasons}, by the broker.
 */
export function messageDetail(topic, record, { state, close, actions = [], decode: bySchema }) {
  let parsed = bySchema ? undefined : parse(record.value_text);
  let views = [parsed !== undefined && "json", record.value_text !== null && "text", "hex"].filter(Boolean);
  let kind = views.includes(state.get("as")) ? state.get("as") : views[0];
  const schema = h("p.muted", { role: "status" });
  let marks = [];
  let at = 0;
  const box = h("div.value-box", { tabindex: "0", role: "region", "aria-label": "Value" });
  const hits = h("span.muted", { role: "status" });
  const wanted = h("input", { type: "search", placeholder: "Search in this message", "aria-label": "Search in this message", oninput: draw, onkeydown: (event) => event.key === "Enter" && step(event.shiftKey ? -1 : 1) });
  const chooser = h("div.segments", { role: "group", "aria-label": "Show the value as" });

  function text() {
    if (kind === "hex") return hex(decode(record.value));
    return kind === "json" ? pretty(parsed) : (record.value_text ?? "");
  }

  function draw() {
    replace(chooser, views.map((each) => h("button", { type: "button", "aria-pressed": each === kind, onclick: () => ((kind = each), state.set({ as: each === views[0] ? "" : each }), draw()) }, { json: "JSON", text: "Text", hex: "Hex" }[each])));
    if (kind === "json" && !wanted.value) {
      marks = [];
      replace(box, tree(parsed));
    } else {
      let found;
      [found, marks] = marked(text(), wanted.value, kind === "hex" ? "hex" : "");
      replace(box, found);
    }
    at = -1;
    replace(hits, wanted.value && (marks.length ? `${count(marks.length)} found` : "not in it"));
    if (marks.length) step(1);
  }

  function step(by) {
    if (!marks.length) return;
    marks[at]?.classList.remove("now");
    at = (at + by + marks.length) % marks.length;
    marks[at].classList.add("now");
    marks[at].scrollIntoView({ block: "nearest" });
    replace(hits, `${at + 1} of ${marks.length}`);
  }

  async function readSchema() {
    try {
      const found = await bySchema(record);
      if (found.reasons.length) return replace(schema, `Not decoded: ${found.reasons.join("; ")}`);
      parsed = found.value;
      views = ["json", ...views];
      if (!state.get("as")) kind = "json";
      replace(schema, `Decoded by version ${found.version} of the topic's schema (${found.kind})`);
      draw();
    } catch (error) {
      replace(schema, `Not decoded: ${error.message}`);
    }
  }

  draw();
  if (bySchema) readSchema();
  const name = `${topic}-${record.partition}-${record.offset}`;
  return h(
    "section.detail",
    { "aria-label": "Message", onkeydown: (event) => event.key === "Escape" && close() },
    h(
      "header",
      h("h2", `Partition ${record.partition}, offset ${count(record.offset)}`),
      iconButton("link", "Copy a link to this message", () => copy(location.href, "Link copied")),
      iconButton("copy", "Copy the value", () => copy(record.value_text ?? record.value, "Value copied")),
      iconButton("download", "Download the value", () => download(name + (parsed === undefined ? (record.value_text === null ? ".bin" : ".txt") : ".json"), [decode(record.value)])),
      actions.map((each) => iconButton(each.icon, each.text, () => each.run(record))),
      iconButton("close", "Close the message", close),
    ),
    h(
      "div.scroll",
      definitions([
        ["Time", h("span", { title: `${utc(record.timestamp)} · shown in ${zone}` }, time(record.timestamp))],
        ["Position in the log", count(record.position)],
        ["Size", bytes(size(record.value))],
        record.expires && ["Expires", time(record.expires)],
        record.door && ["Came by", h("span.badge", record.door)],
      ]),
      definitions([["Key", record.key === null ? h("span.muted", "none") : h("code", record.key_text ?? `${record.key} (base64)`)]]),
      record.headers.length > 0 && definitions(record.headers.map((each) => [each.name, h("code", each.text ?? `${each.value} (base64)`)])),
      bySchema && schema,
      h("div.tools", chooser, wanted, hits),
      box,
    ),
  );
}
