// Appending records: a new one, one like another, or copies of many.

import * as api from "./api.js";
import { h } from "./dom.js";
import { count, plural } from "./format.js";
import { dialog, field, iconButton, toast } from "./widgets.js";

const AT_ONCE = 500; // records of one request of a replay

/** `like` is a record whose key, value and headers to begin with. */
export async function produceDialog(topic, like) {
  const key = h("input", { value: like?.key_text ?? "", autocomplete: "off" });
  const value = h("textarea", { rows: 8, value: like?.value_text ?? "", spellcheck: "false" });
  const partition = h("input", { type: "number", min: 0, placeholder: "by its key" });
  const delay = h("input", { type: "number", min: 0, placeholder: "none" });
  const life = h("input", { type: "number", min: 1, placeholder: "for ever" });
  const headers = h("div.body");
  const addHeader = (name = "", text = "") => {
    const row = h("div.row", h("input", { placeholder: "name", "aria-label": "Header name", value: name, required: true }), h("input", { placeholder: "value", "aria-label": "Header value", value: text }), iconButton("close", "Remove the header", () => row.remove()));
    headers.append(row);
  };
  (like?.headers ?? []).forEach((each) => addHeader(each.name, each.text ?? ""));
  const made = await dialog({
    title: like ? `Produce a record like this one to ${topic}` : `Produce to ${topic}`,
    wide: true,
    action: `Append 1 record to ${topic}`,
    body: [
      field("Key", key, "Empty: no key"),
      field("Value", value),
      h("div.field", h("label", "Headers"), headers, h("div", h("button.button.small", { type: "button", onclick: () => addHeader() }, "Add a header"))),
      h("div.row", field("Partition", partition), field("Appears after seconds", delay), field("Lives for seconds", life)),
    ],
    send: () => {
      const record = { value_text: value.value, headers: [...headers.children].map((row) => ({ name: row.children[0].value, text: row.children[1].value })) };
      if (key.value) record.key_text = key.value;
      if (partition.value !== "") record.partition = Number(partition.value);
      if (delay.value) record.delay_ms = Math.round(Number(delay.value) * 1000);
      if (life.value) record.ttl_ms = Math.round(Number(life.value) * 1000);
      return api.post(api.path`/topics/${topic}/records`, { records: [record] });
    },
  });
  if (!made) return null;
  const [place] = made.records;
  toast(place.dead_letter ? "It does not fit the schema: it is a dead letter" : place.delayed ? `It appears later, as number ${place.delayed}` : `Appended to partition ${place.partition} at offset ${count(place.offset)}`, place.dead_letter ? "bad" : "ok");
  return place;
}

/** Copies of records, with their keys, values and headers as they are, into a topic that is asked for. */
export async function replayDialog(topic, records) {
  const target = h("input", { value: topic, required: true, autocomplete: "off" });
  const words = plural(records.length, "record");
  const done = await dialog({
    title: `Replay ${words}`,
    action: `Append ${words}`,
    body: [h("p", `${records.length === 1 ? "A copy of this record" : `Copies of the ${words} shown`}, with key, value and headers as they are, will be appended. The ${records.length === 1 ? "one" : "ones"} in ${topic} stay.`), field("To the topic", target)],
    send: async () => {
      const copies = [...records].sort((a, b) => a.timestamp - b.timestamp || a.partition - b.partition || a.offset - b.offset).map((each) => ({ ...(each.key === null ? {} : { key: each.key }), value: each.value, headers: each.headers.map(({ name, value }) => ({ name, value })) }));
      for (let at = 0; at < copies.length; at += AT_ONCE) await api.post(api.path`/topics/${target.value}/records`, { records: copies.slice(at, at + AT_ONCE) });
    },
  });
  if (done) toast(`${words} appended to ${target.value}`);
  return done;
}

