// The messages of a topic: look back, search, follow what comes. The broker searches; the page shows, and can stop it.

import * as api from "../api.js";
import { h, replace } from "../dom.js";
import { bytes, count, fromLocalInput, localInput, plural, short, time, utc } from "../format.js";
import { messageDetail } from "../message_detail.js";
import { produceDialog, replayDialog } from "../produce.js";
import { removeFilter, saveFilter, savedFilters } from "../saved_filters.js";
import { topicHead } from "./topic.js";
import { takePlace } from "../tails.js";
import { size } from "../value.js";
import { VirtualList } from "../virtual_list.js";
import { bar, button, dialog, download, empty, field, iconButton, select, toast } from "../widgets.js";

const PAGE = 500; // records of one look; more by asking for more
const KEPT = 20_000; // of a live tail: the oldest go
const FLUSH = 150; // ms between two drawings of a live tail
const SLOW = 5000; // ms without an answer, after which a tail says so
const CONDITIONS = ["text", "key", "value", "path", "where"];
const FROM = [["newest", "Newest first"], ["oldest", "From the beginning"], ["offset", "From an offset"], ["time", "From a time"], ["position", "From a position of the log"]];

export function messages(view) {
  const topic = view.names.topic;
  const { state } = view;
  const path = api.path`/topics/${topic}/records`;
  let records = [];
  let search = null; // {aborter, next, scanned, left, live}
  let dropped = 0;
  let waiting = []; // of a live tail, until the next drawing
  let flusher = 0;

  const list = new VirtualList({ label: `Messages of ${topic}`, height: matchMedia("(max-width: 860px)").matches ? 58 : 34, columns: 5, draw: cells, open });
  list.element.addEventListener("keydown", (event) => event.key === "Escape" && closeDetail());
  const progress = h("div.progress", { role: "status" });
  const listBox = h("div.list-box", h("div.vhead", { "aria-hidden": "true" }, ["Time", "Offset", "Key", "Value"].map((each) => h("span", each)), h("span.end", "Size")), list.element);
  const split = h("div.split", listBox);
  const form = searchForm();
  view.element.classList.add("full");
  view.show(topicHead(view, topic, "messages", button("Produce", produce, { icon: "plus", kind: "primary" }), button("Replay…", replay, { icon: "replay" }), button("Export…", exportShown, { icon: "download" })), form.element, progress, split);
  view.onleave(() => (stop(), list.close()));
  if (state.get("live") === "1") follow();
  else look();
  openFromAddress();

  // -- asking

  function conditions() {
    const query = { partition: state.get("partition"), header: state.all("header") };
    for (const name of CONDITIONS) query[name] = state.get(name);
    return query;
  }

  function beginning() {
    const from = state.get("from") || "newest";
    const order = state.get("order") || (from === "newest" ? "desc" : "asc");
    if (from === "newest") return { order: "desc" };
    if (from === "oldest") return { start: "earliest", order };
    return { [from]: state.get(from) || 0, order };
  }

  /** From the beginning that the address says, until a page is full or all has been looked at. */
  async function look() {
    stop();
    records = [];
    dropped = 0;
    list.set(records);
    list.active = -1;
    await proceed("");
  }

  async function proceed(after) {
    const mine = (search = { aborter: new AbortController(), next: after, scanned: 0, left: null, running: true });
    const wanted = records.length + PAGE;
    try {
      do {
        drawProgress();
        const page = await api.get(path, { ...conditions(), ...beginning(), limit: Math.min(PAGE, wanted - records.length), after: mine.next }, { signal: mine.aborter.signal });
        if (mine !== search) return;
        mine.next = page.next;
        mine.scanned += page.scanned;
        mine.left = page.left;
        if (page.records.length) {
          records = [...records, ...page.records];
          list.set(records);
        }
      } while (mine.next && mine.left > 0 && records.length < wanted);
      mine.running = false;
    } catch (error) {
      if (mine !== search) return;
      mine.running = false;
      if (error.name === "AbortError") mine.stopped = true;
      else mine.error = error;
    }
    drawProgress();
  }

  /** What comes from now on; what is there stays. */
  async function follow() {
    stop();
    if (!records.length) list.set(records);
    const mine = (search = { aborter: new AbortController(), live: true, running: true, seen: 0 });
    state.set({ live: "1" });
    form.draw();
    drawProgress();
    let leave = () => {};
    const slow = setTimeout(() => ((mine.slow = true), drawProgress()), SLOW);
    try {
      leave = await takePlace();
      await api.stream(path, { ...conditions(), follow: "true", start: "latest" }, {
        signal: mine.aborter.signal,
        opened: () => (clearTimeout(slow), (mine.open = true), (mine.slow = false), drawProgress()),
        each: (batch) => {
          if (mine !== search) return;
          mine.seen += batch.length;
          for (const each of batch) waiting.push(each);
          if (waiting.length > 2 * KEPT) {
            dropped += waiting.length - KEPT;
            waiting = waiting.slice(-KEPT);
          }
          if (!flusher) flusher = setTimeout(flush, FLUSH);
        },
      });
      mine.error = new Error("The broker ended the stream.");
    } catch (error) {
      if (error.name !== "AbortError") mine.error = error;
    }
    clearTimeout(slow);
    leave();
    mine.running = false;
    if (mine === search && !view.left) {
      flush();
      drawProgress();
      form.draw();
    }
  }

  function flush() {
    flusher = 0;
    if (view.left) return;
    if (waiting.length) {
      const all = [...waiting.reverse(), ...records];
      waiting = [];
      dropped += Math.max(0, all.length - KEPT);
      records = all.slice(0, KEPT);
      const open = list.active >= 0 ? list.items[list.active] : null;
      list.set(records, { keepAnchor: true });
      if (open) list.active = records.indexOf(open);
    }
    drawProgress();
  }

  function stop() {
    search?.aborter.abort();
    if (search?.live) {
      clearTimeout(flusher);
      flusher = 0;
      flush();
      state.set({ live: "" });
    }
    search = null;
  }

  function drawProgress() {
    const filtered = CONDITIONS.some((name) => state.get(name)) || state.all("header").length > 0;
    const children = [];
    if (search?.live) {
      children.push(search.running ? (search.open ? h("span.badge.ok", "live") : h("span.badge", "connecting")) : h("span.badge", "stopped"), h("span", `${plural(search.seen, "message")} since the tail began${dropped ? `, the newest ${count(KEPT)} are kept` : ""}`));
      if (search.slow && search.running) children.push(h("span.problem", { role: "alert" }, "The broker has not answered yet. A browser opens six connections to one address: close other windows of the console if there are many."));
      if (search.error) children.push(h("span.problem", { role: "alert" }, search.error.message));
    } else if (search) {
      const total = search.scanned + (search.left ?? 0);
      children.push(h("span", filtered ? `${plural(records.length, "message")} found in ${count(search.scanned)} looked at` : `${plural(records.length, "message")} shown`));
      if (search.left > 0) children.push(bar(total ? search.scanned / total : 0, `${count(search.scanned)} of ${count(total)} looked at`), h("span", `${short(search.left)} left`));
      if (search.running) children.push(h("span.spinner", { "aria-hidden": "true" }), button("Cancel", () => search.aborter.abort(), { kind: "small", icon: "stop" }));
      else if (search.error) children.push(h("span.problem", { role: "alert" }, search.error.message), button("Try again", look, { kind: "small" }));
      else if (search.stopped || (search.next && search.left > 0)) children.push(button(search.stopped ? "Go on" : "Load more", () => proceed(search.next), { kind: "small" }));
    }
    replace(progress, children);
    const idle = records.length === 0 && !search?.running;
    listBox.querySelector(":scope > .state")?.remove();
    list.element.hidden = records.length === 0;
    if (records.length === 0) listBox.append(idle ? (search?.error ? empty("This did not work", search.error.message) : filtered ? empty("Nothing fits the filter", "Widen it, or begin elsewhere.") : empty("No messages here", "Follow the topic to see what comes, or produce one.", button("Follow live", follow, { icon: "play" }))) : empty(search?.live ? "Waiting for messages…" : "Looking…"));
  }

  // -- the form

  function searchForm() {
    const element = h("form.search-bar", { onsubmit: (event) => (event.preventDefault(), submit()) });
    const inputs = {};
    const input = (name, label, props = {}) => (inputs[name] = h("input", { "aria-label": label, placeholder: label, value: state.get(name) ?? "", ...props }));
    /** One that a label beside it names. */
    const labelled = (name, example, props = {}) => (inputs[name] = h("input", { placeholder: example, value: state.get(name) ?? "", ...props }));
    const draw = () => {
      const from = state.get("from") || "newest";
      const advanced = state.get("more") === "1" || ["key", "value", "path", "where", "partition", "header"].some((name) => state.get(name));
      const live = search?.live && search.running;
      const at = {
        offset: () => input("offset", "Offset", { type: "number", min: 0, required: true }),
        position: () => input("position", "Position", { type: "number", min: 0, required: true }),
        time: () => (inputs.time = h("input", { type: "datetime-local", step: "0.001", "aria-label": "Time", value: localInput(Number(state.get("time")) || (Date.now() - 600_000) * 1000) })),
      }[from];
      for (const name of Object.keys(inputs)) delete inputs[name];
      const mine = savedFilters().filter((each) => each.topic === topic);
      replace(
        element,
        h(
          "div.line",
          live ? button("Stop", () => (stop(), form.draw(), drawStopped()), { kind: "live", icon: "stop" }) : button("Follow live", () => (read(), follow()), { icon: "play" }),
          (inputs.from = select(FROM, from, (value) => (read(), state.set({ from: value === "newest" ? "" : value, order: "" }), draw(), !at || value === "newest" || value === "oldest" ? submit() : null), { "aria-label": "Begin" })),
          at?.(),
          h("div.text", input("text", "Search in keys, values and headers: text or a regular expression", { type: "search", "data-hotkey": "/", style: { width: "100%" } })),
          h("button.button.primary", { type: "submit" }, "Search"),
          button("Filters", () => (read(), state.set({ more: advanced ? "" : "1", ...(advanced ? { key: "", value: "", path: "", where: "", partition: "", header: [] } : {}) }), draw()), { kind: "quiet" }),
        ),
        advanced &&
          h(
            "div.more",
            field("Key has", labelled("key", "text")),
            field("Value has", labelled("value", "text")),
            field("Header", (inputs.header = h("input", { placeholder: "name or name=text, …", value: state.all("header").join(", ") })), "several: with commas"),
            field("JSON path", labelled("path", "$.order.status=failed")),
            field("SQL condition", labelled("where", "status = 'failed' AND amount > 100")),
            field("Partition", labelled("partition", "all", { type: "number", min: 0 })),
          ),
        (mine.length > 0 || advanced) && h("div.line", h("span.muted", "Saved:"), mine.map((each) => h("span.chips", h("a.button.small", { href: `#/topics/${encodeURIComponent(topic)}/messages?${each.query}` }, each.name), iconButton("close", `Forget the filter ${each.name}`, () => (removeFilter(each.name, topic), draw())))), button("Save this filter…", save, { kind: "small quiet", icon: "star" })),
      );
    };
    /** From the fields into the address. */
    const read = () => {
      const values = {};
      for (const [name, each] of Object.entries(inputs)) {
        if (name === "from") continue;
        values[name] = name === "header" ? each.value.split(",").map((part) => part.trim()).filter(Boolean) : name === "time" ? fromLocalInput(each.value) : each.value.trim();
      }
      state.set(values);
    };
    const submit = () => {
      if (!element.reportValidity()) return;
      read();
      state.set({ open: "", live: "" }, { push: true });
      closeDetail();
      look();
      draw();
    };
    const save = async () => {
      read();
      const name = h("input", { required: true, maxlength: 60, autofocus: true });
      const done = await dialog({ title: "Save this filter", action: "Save", body: [field("Name", name, "Kept in this browser. To share a filter, share the address of this page.")], send: () => saveFilter(name.value, topic, location.hash.split("?")[1] ?? "") });
      if (done) draw();
    };
    queueMicrotask(draw);
    return { element, draw, read };
  }

  function drawStopped() {
    search = { ...(search ?? {}), live: true, running: false, seen: records.length + dropped, aborter: new AbortController() };
    drawProgress();
  }

  // -- rows and the open message

  function cells(record) {
    return [
      h("span.at", { role: "gridcell", title: utc(record.timestamp) }, time(record.timestamp)),
      h("span.at", { role: "gridcell" }, `${record.partition}:${record.offset}`),
      h("span.mono.key", { role: "gridcell" }, record.key === null ? "" : (record.key_text ?? record.key).slice(0, 200)),
      h("span.mono.value", { role: "gridcell" }, record.value_text === null ? `${record.value.slice(0, 80)} (base64)` : record.value_text.slice(0, 400).replaceAll(/\s+/g, " ")),
      h("span.at.end.size", { role: "gridcell" }, bytes(size(record.value))),
    ];
  }

  function open(index) {
    const record = records[index];
    state.set({ open: `${record.partition}:${record.offset}` });
    showDetail(record);
  }

  /** How values are decoded, if the topic has a schema of Avro or Protobuf; asked once. */
  let decoder;
  function decoding() {
    decoder ??= (async () => {
      try {
        const name = (await api.get(api.path`/topics/${topic}`, {}, { signal: view.signal })).settings.schema;
        if (!name) return null;
        const { schema } = await api.get(api.path`/schemas/${name}/latest`, {}, { signal: view.signal });
        return schema.kind === "json" ? null : (record) => api.post(api.path`/schemas/${name}/latest/decode`, { message: record.value }, { signal: view.signal });
      } catch {
        return null; // it may be read, and its schema not: then bytes are all there is
      }
    })();
    return decoder;
  }

  async function showDetail(record) {
    const decode = await decoding();
    if (view.left) return;
    split.classList.add("open");
    const detail = messageDetail(topic, record, {
      state,
      decode,
      close: () => (closeDetail(), list.element.focus()),
      actions: [
        { text: "Replay this message", icon: "replay", run: (each) => replayDialog(topic, [each]) },
        { text: "Produce a message like this", icon: "edit", run: (each) => produceDialog(topic, each) },
      ],
    });
    replace(split, listBox, detail);
  }

  function closeDetail() {
    split.classList.remove("open");
    state.set({ open: "" });
    replace(split, listBox);
  }

  /** A link to one message shows it, wherever the list begins. */
  async function openFromAddress() {
    const [partition, offset] = (state.get("open") ?? "").split(":");
    if (!offset) return;
    try {
      const page = await api.get(path, { partition, offset, limit: 1 }, { signal: view.signal });
      if (page.records[0]?.offset === Number(offset)) showDetail(page.records[0]);
      else toast(`There is no message at ${partition}:${offset} any more`, "bad");
    } catch (error) {
      if (error.name !== "AbortError") toast(error.message, "bad");
    }
  }

  // -- actions

  async function produce() {
    if ((await produceDialog(topic)) && !search?.live) look();
  }

  async function replay() {
    if (!records.length) return toast("There is nothing to replay: the list is empty", "bad");
    await replayDialog(topic, records);
  }

  async function exportShown() {
    const kind = select([["jsonl", "JSON lines"], ["json", "JSON"], ["csv", "CSV"]], "jsonl");
    await dialog({
      title: "Export",
      action: `Download ${plural(records.length, "message")}`,
      body: [h("p", search?.next && search.left > 0 ? "Exactly the messages that the list shows. There are more: cancel, and load them first if you need them." : "Exactly the messages that the list shows."), field("Format", kind)],
      send: () => download(`${topic}.${kind.value}`, exported(records, kind.value), "application/octet-stream"),
    });
  }
}

function exported(records, kind) {
  if (kind === "json") return [JSON.stringify(records, null, 1)];
  if (kind === "jsonl") return records.map((each) => `${JSON.stringify(each)}\n`);
  const cell = (value) => {
    const text = String(value ?? "");
    const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text; // no formula for a spreadsheet
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const lines = records.map((each) => [each.partition, each.offset, utc(each.timestamp), each.key_text ?? each.key, each.value_text ?? each.value, each.headers.map((header) => `${header.name}=${header.text ?? header.value}`).join("; ")].map(cell).join(","));
  return [`partition,offset,time,key,value,headers\n${lines.join("\n")}\n`];
}

