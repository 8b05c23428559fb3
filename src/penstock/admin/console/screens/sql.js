// SQL: a statement, its rows as a table or a chart, and the same statement at any position of the log.

import * as api from "../api.js";
import { resultChart } from "../chart.js";
import { completion } from "../completion.js";
import { h, replace } from "../dom.js";
import { count, plural } from "../format.js";
import { button, download, empty, failure, loading, table } from "../widgets.js";

const KEY = "penstock.sql";
const MOST_KEPT = 50;

export function sql(view) {
  const { state } = view;
  const columnsOf = new Map(); // by table
  let tables = [];
  let result = null;
  let running = null;
  const area = h("textarea", { "aria-label": "SQL statement", spellcheck: "false", "data-hotkey": "/", value: state.get("sql") ?? "", placeholder: "SELECT product, COUNT(*) FROM orders GROUP BY product", onkeydown: (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && (event.preventDefault(), run()) });
  const output = h("section.card.flush");
  const past = h("div.history");
  const runner = h("div.actions");
  const slider = h("input", { type: "range", min: 0, max: 0, value: 0, "aria-label": "As of the log's position", oninput: label, onchange: () => (state.set({ at: atEnd() ? "" : slider.value }), run()) });
  const reading = h("output.mono");
  view.show(
    view.title("SQL"),
    h("div.editor", area, completion(area, () => tables, describe)),
    h("div.row", runner, h("span.muted", "Ctrl + Enter")),
    h("div.asof", h("strong", "As of"), slider, reading, button("Now", () => ((slider.value = slider.max), label(), state.set({ at: "" }), run()), { kind: "small" })),
    output,
    h("details.card", h("summary", "History"), past),
  );
  drawRunner();
  drawHistory();
  start();

  async function start() {
    replace(output, empty("No statement yet", "Every topic is a table under its name. Drag the slider to see the same statement in the past."));
    try {
      const [broker, topics] = await Promise.all([api.get("/broker", {}, { signal: view.signal }), api.all("/topics", {}, { signal: view.signal, most: 2000 })]);
      tables = topics.flatMap((each) => (each.typed ? [each.name, each.typed] : [each.name]));
      slider.max = broker.position;
      slider.value = state.get("at") || broker.position;
      label();
      if (area.value.trim() && /^\s*(select|with|values|show|describe)\b/i.test(area.value)) run(); // a link shows; it never changes anything
    } catch (error) {
      if (error.name !== "AbortError") replace(output, failure(error, start));
    }
  }

  const atEnd = () => Number(slider.value) >= Number(slider.max);

  function label() {
    replace(reading, atEnd() ? `now (${count(Number(slider.max))})` : `position ${count(Number(slider.value))} of ${count(Number(slider.max))}`);
  }

  async function describe(table) {
    if (!columnsOf.has(table)) {
      columnsOf.set(table, api.post("/sql", { sql: `SELECT * FROM "${table.replaceAll('"', '""')}" LIMIT 1` }).then((found) => found.columns, () => []));
    }
    return columnsOf.get(table);
  }

  function drawRunner() {
    replace(runner, running ? button("Cancel", () => running.abort(), { icon: "stop" }) : button("Run", run, { kind: "primary", icon: "play" }));
  }

  async function run() {
    const text = area.value.trim();
    if (!text) return area.focus();
    running?.abort();
    const mine = (running = new AbortController());
    state.set({ sql: text });
    remember(text);
    drawRunner();
    if (!result) replace(output, loading("Running…"));
    const began = performance.now();
    try {
      const found = await api.post("/sql", { sql: text, ...(atEnd() ? {} : { position: Number(slider.value) }) }, { signal: mine.signal });
      result = { ...found, milliseconds: performance.now() - began };
      if (mine === running) draw();
    } catch (error) {
      if (mine !== running) return;
      result = null;
      replace(output, error.name === "AbortError" ? empty("Cancelled") : failure(error));
    } finally {
      if (mine === running) {
        running = null;
        drawRunner();
      }
    }
  }

  function draw() {
    const { columns, rows } = result;
    const kind = state.get("chart") ?? "";
    const numeric = columns.map((_, index) => rows.length > 0 && rows.some((row) => row[index] !== null) && rows.every((row) => row[index] === null || (typeof row[index] !== "boolean" && Number.isFinite(Number(row[index])) && row[index] !== "")));
    const pick = (value) => h("button", { type: "button", "aria-pressed": kind === value, onclick: () => (state.set({ chart: value }), draw()) }, { "": "Table", bar: "Bars", line: "Line" }[value]);
    const names = columns.filter((_, index) => numeric[index] && index !== labelAt());
    function labelAt() {
      const found = numeric.findIndex((each) => !each);
      return found < 0 ? 0 : found;
    }
    const points = rows.map((row) => ({ label: row[labelAt()], values: columns.map((_, index) => index).filter((index) => numeric[index] && index !== labelAt()).map((index) => (row[index] === null ? null : Number(row[index]))) }));
    replace(
      output,
      h("div.toolbar", h("span", `${plural(rows.length, "row")} in ${Math.round(result.milliseconds)} ms${atEnd() ? "" : `, as of position ${count(Number(slider.value))}`}`), h("div.segments", { role: "group", "aria-label": "Show as" }, ["", "bar", "line"].map(pick)), button("CSV", () => download("result.csv", [csv(columns, rows)]), { kind: "small", icon: "download" })),
      kind && names.length ? resultChart(names, points, kind) : kind ? empty("Nothing to draw", "A chart takes a column of numbers.") : wide(table(columns.map((title, index) => ({ title, end: numeric[index], mono: true, cell: (row) => (row[index] === null ? h("span.muted", "NULL") : String(row[index]).slice(0, 500)) })), rows, { caption: "Result", none: "No rows", most: 300 })),
    );
  }

  function remember(text) {
    const list = [text, ...kept().filter((each) => each !== text)].slice(0, MOST_KEPT);
    try {
      localStorage.setItem(KEY, JSON.stringify(list));
    } catch {
      // private windows may have no storage
    }
    drawHistory();
  }

  function drawHistory() {
    const list = kept();
    replace(past, list.length ? list.map((text) => h("button", { type: "button", title: text, onclick: () => ((area.value = text), area.focus()) }, text.replaceAll(/\s+/g, " "))) : h("p.muted", "Statements that you run are kept here, in this browser."));
  }
}

function wide(box) {
  box.querySelector("table")?.classList.add("wide");
  return box;
}

function kept() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "[]");
  } catch {
    return [];
  }
}

function csv(columns, rows) {
  const cell = (value) => (/[",\n\r]/.test(String(value ?? "")) ? `"${String(value).replaceAll('"', '""')}"` : String(value ?? ""));
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\n");
}
