// Dead letters: which records were given up and why; repaired, sent again, or deleted, one or as many as fit.

import * as api from "../api.js";
import { h, replace } from "../dom.js";
import { count, plural, time } from "../format.js";
import { watchJob } from "../jobs.js";
import { listScreen, listed } from "../list_screen.js";
import { link } from "../router.js";
import { marked, parse, pretty } from "../value.js";
import { badge, button, confirm, dialog, empty, failure, field, loading, table, toast } from "../widgets.js";

export function deadLetters(view) {
  listScreen(view, {
    title: "Dead letters",
    noun: "topics",
    load: async () => (await listed(view, "/dead-letters")).filter((each) => each.letters > 0),
    none: empty("No dead letters", "Records that could not be delivered, or do not fit their topic's schema, would be here."),
    columns: () => [
      { title: "Topic", value: (row) => row.topic, cell: (row) => h("a", { href: link("/dead-letters", row.topic) }, row.topic) },
      { title: "Dead letters", end: true, value: (row) => row.letters, cell: (row) => count(row.letters) },
    ],
  });
}

export function deadLettersOf(view) {
  const topic = view.names.topic;
  const where = api.path`/topics/${topic}/dead-letters`;
  const box = h("section.card.flush", loading());
  const minutes = h("select", { "aria-label": "Given up", onchange: (event) => (view.state.set({ minutes: event.target.value }), draw()) }, [["", "at any time"], ["10", "in the last 10 minutes"], ["60", "in the last hour"], ["1440", "in the last day"]].map(([value, text]) => h("option", { value, selected: (view.state.get("minutes") ?? "") === value }, text)));
  const text = h("input.filter", { type: "search", "data-hotkey": "/", placeholder: "Reason, key or value has…", "aria-label": "Reason, key or value has", value: view.state.get("q") ?? "", oninput: (event) => (view.state.set({ q: event.target.value }), draw()) });
  const sum = h("span.muted", { role: "status" });
  let letters = [];
  view.show(
    h("nav.crumbs", { "aria-label": "Where you are" }, h("a", { href: link("/dead-letters") }, "Dead letters"), "/"),
    view.title(topic, button("Replay these…", () => many("replay"), { kind: "primary", icon: "replay" }), button("Purge these…", () => many("purge"), { icon: "trash" }), h("a.button", { href: link("/topics", topic) }, "Topic")),
    h("div.row", text, minutes, sum),
    box,
  );
  view.trouble = (error) => replace(box, failure(error, refresh));
  const refresh = view.poll(15, async () => {
    letters = await api.all(where, {}, { signal: view.signal, most: 10000 });
    draw();
  });

  /** Letters that fit what the fields say. */
  function fitting() {
    const since = view.state.get("minutes") ? Date.now() * 1000 - Number(view.state.get("minutes")) * 60e6 : 0;
    const wanted = (view.state.get("q") ?? "").toLowerCase();
    return letters.filter((each) => each.given_up >= since && (!wanted || `${each.reason} ${each.key_text ?? ""} ${each.value_text ?? ""}`.toLowerCase().includes(wanted)));
  }

  function draw() {
    const found = fitting();
    replace(sum, `${count(found.length)} of ${plural(letters.length, "dead letter")}`);
    const columns = [
      { title: "Given up", value: (row) => row.given_up, cell: (row) => h("span.muted.nowrap", time(row.given_up)) },
      { title: "Why", value: (row) => row.reason, cell: (row) => h("span.why", row.reason, h("span.muted", row.original_offset === null ? " · never accepted" : ` · after ${plural(row.attempts, "attempt")}`)) },
      { title: "Key", mono: true, value: (row) => row.key_text, cell: (row) => h("span.nowrap", (row.key_text ?? row.key ?? "").slice(0, 60)) },
      { title: "Value", mono: true, cell: (row) => h("span.clip", (row.value_text ?? row.value).slice(0, 200)) },
      { title: "", end: true, cell: (row) => h("div.actions", button("Open", () => open(row), { kind: "small" }), button("Replay", () => one(row), { kind: "small" })) },
    ];
    const none = letters.length ? empty("Nothing fits", "No dead letter fits these words and this time.") : empty("No dead letters", `Nothing of ${topic} was given up.`);
    replace(box, table(columns, found, { state: { get: (name) => (name === "q" ? "" : view.state.get(name)), set: view.state.set }, caption: "Dead letters", none, onopen: open, most: 200 }));
  }

  async function open(letter) {
    const parsed = parse(letter.value_text);
    const value = h("textarea", { rows: 10, spellcheck: "false", value: parsed === undefined ? (letter.value_text ?? "") : pretty(parsed) });
    const isText = letter.value_text !== null;
    const sent = await dialog({
      title: `Dead letter ${letter.offset} of ${topic}`,
      wide: true,
      action: isText ? `Append this value to ${topic}` : "",
      cancel: "Close",
      body: [
        h("p", badge("why", "warn"), " ", letter.reason),
        h("p.muted", `Given up ${time(letter.given_up)}${letter.original_offset === null ? ", never accepted" : `, after ${plural(letter.attempts, "attempt")} at partition ${letter.partition}, offset ${letter.original_offset}`}`),
        letter.key !== null && h("p", "Key ", h("code", letter.key_text ?? letter.key)),
        letter.headers.length > 0 && h("p", letter.headers.map((each) => h("code", `${each.name}=${each.text ?? each.value} `))),
        isText ? field("Value, which you can repair", value, "Appending sends what stands here, with the same key and headers, and deletes the dead letter.") : marked(letter.value, "")[0],
      ],
      send: async () => {
        const record = { value_text: value.value, headers: letter.headers.map(({ name, value: data }) => ({ name, value: data })), ...(letter.key === null ? {} : { key: letter.key }) };
        const made = await api.post(api.path`/topics/${topic}/records`, { records: [record] });
        if (made.records[0].dead_letter) throw new Error("It still does not fit the schema: it became another dead letter.");
        await api.del(`${where}/${letter.offset}`);
      },
    });
    if (sent) toast("Appended, and the dead letter is gone");
    refresh();
  }

  async function one(letter) {
    const done = await confirm({ title: "Replay this dead letter?", text: `It is appended to ${topic} again as it is, and is no dead letter any more. If it still does not fit, it stays one.`, details: [letter.reason], action: "Replay 1 dead letter", danger: false, send: () => api.post(`${where}/${letter.offset}/replay`) });
    if (done) toast("Replayed");
    refresh();
  }

  async function many(what) {
    const found = fitting();
    if (!found.length) return toast("No dead letter fits", "bad");
    const words = plural(found.length, "dead letter");
    const are = found.length === 1 ? "is" : "are";
    const texts = { replay: [`The ${words} that the list shows ${are} appended to ${topic} again, in their order. What ${topic} refuses stays here.`, `Replay ${words}`], purge: [`The ${words} that the list shows ${are} deleted for good, and cannot be replayed any more.`, `Purge ${words}`] }[what];
    const job = await confirm({ title: `${texts[1]}?`, text: texts[0], details: [...new Set(found.map((each) => each.reason))].slice(0, 5), action: texts[1], danger: what === "purge", send: () => api.post(`${where}/${what}`, { letters: found.slice(0, 10000).map((each) => each.offset) }) });
    if (!job) return;
    const over = await watchJob(job, texts[1]);
    if (over.state === "done") toast(`${plural(over.result.done, "dead letter")} ${what === "replay" ? "replayed" : "purged"}${over.result.refused ? `, ${count(over.result.refused)} refused: ${over.result.reason}` : ""}`, over.result.refused ? "bad" : "ok");
    else toast(over.error?.message ?? `The job is ${over.state}`, "bad");
    refresh();
  }
}
