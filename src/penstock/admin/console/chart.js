// Live charts, in SVG: lines of the last minutes, with a reading where the pointer is.

import { h, replace, s } from "./dom.js";
import { clock } from "./format.js";

const HEIGHT = 150;
const LEFT = 52;
const BOTTOM = 20;
const TOP = 8;

/** series: [{name, color: 1…4}]. `format` writes a value, `least` is the lowest top of the axis. Points are kept for `seconds`. */
export class LiveChart {
  constructor(title, series, format, least, { seconds = 300, round = nice } = {}) {
    this.round = round;
    this.title = title;
    this.series = series;
    this.format = format;
    this.least = least; // the top of the axis is never below
    this.seconds = seconds;
    this.points = []; // {at, values}
    this.width = 0;
    this.hover = null;
    this.plot = s("svg", { class: "chart", role: "img", height: HEIGHT });
    this.legend = h("div.legend", h("span.muted", "waiting for the first readings"));
    this.element = h("figure.chart-card", h("figcaption", h("h3", title), this.legend), this.plot);
    this.plot.addEventListener("pointermove", (event) => this.point(event));
    this.plot.addEventListener("pointerleave", () => ((this.hover = null), this.draw()));
    this.resizing = new ResizeObserver(([entry]) => {
      if (Math.abs(entry.contentRect.width - this.width) >= 1) {
        this.width = entry.contentRect.width;
        this.draw();
      }
    });
    this.resizing.observe(this.plot);
  }

  push(at, values) {
    this.points.push({ at, values });
    while (this.points.length > 2 && at - this.points[0].at > this.seconds * 1000) this.points.shift();
    this.draw();
  }

  close() {
    this.resizing.disconnect();
  }

  point(event) {
    const x = event.offsetX;
    if (!this.points.length) return;
    this.hover = this.points.reduce((best, each) => (Math.abs(this.x(each.at) - x) < Math.abs(this.x(best.at) - x) ? each : best));
    this.draw();
  }

  x(at) {
    const end = this.points[this.points.length - 1].at;
    return LEFT + (this.width - LEFT - 6) * (1 - (end - at) / (this.seconds * 1000));
  }

  draw() {
    if (!this.points.length || this.width < 80) return;
    const top = this.round(Math.max(...this.points.flatMap((each) => each.values.map((value) => value ?? 0)), this.least));
    const y = (value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
    const shown = this.hover ?? this.points[this.points.length - 1];
    const lines = [0, 0.5, 1].map((share) => [
      s("line", { class: "grid", x1: LEFT, x2: this.width, y1: y(top * share), y2: y(top * share) }),
      s("text", { class: "tick", x: LEFT - 6, y: y(top * share) + 4, "text-anchor": "end" }, this.format(top * share)),
    ]);
    const times = [0, 0.5, 1].map((share) => {
      const at = shown && this.points[this.points.length - 1].at - this.seconds * 1000 * (1 - share);
      const anchor = share === 0 ? "start" : share === 1 ? "end" : "middle";
      return s("text", { class: "tick", x: this.x(at), y: HEIGHT - 4, "text-anchor": anchor }, clock(new Date(at)).slice(0, 8));
    });
    const curves = this.series.map((each, index) => {
      const known = this.points.filter((point) => point.values[index] !== null && point.values[index] !== undefined);
      if (!known.length) return null;
      const path = known.map((point, at) => `${at ? "L" : "M"}${this.x(point.at).toFixed(1)} ${y(point.values[index]).toFixed(1)}`).join("");
      const area = `${path}L${this.x(known[known.length - 1].at).toFixed(1)} ${y(0)}L${this.x(known[0].at).toFixed(1)} ${y(0)}Z`;
      return [s("path", { class: `area c${each.color}`, d: area }), s("path", { class: `line c${each.color}`, d: path })];
    });
    const mark = this.hover && [
      s("line", { class: "mark", x1: this.x(shown.at), x2: this.x(shown.at), y1: TOP, y2: HEIGHT - BOTTOM }),
      this.series.map((each, index) => shown.values[index] !== null && shown.values[index] !== undefined && s("circle", { class: `dot c${each.color}`, cx: this.x(shown.at), cy: y(shown.values[index]), r: 3.5 })),
    ];
    replace(this.plot, lines, times, curves, mark);
    const reading = this.series.map((each, index) => `${each.name} ${shown.values[index] === null ? "–" : this.format(shown.values[index])}`);
    replace(this.legend, this.hover && h("span.at", clock(new Date(shown.at)).slice(0, 8)), this.series.map((each, index) => h("span", h("i", { class: `c${each.color}` }), reading[index])));
    this.plot.setAttribute("aria-label", `${this.title}: ${reading.join(", ")}`);
  }
}

/** The next round number of bytes above: of KiB, MiB, … */
export function niceBytes(value) {
  const unit = 1024 ** Math.floor(Math.log(value) / Math.log(1024));
  return nice(value / unit) * unit;
}

/** The next round number above. */
export function nice(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  const step = [1, 2, 5, 10].find((each) => each * power >= value * 0.9999) ?? 10;
  return step * power;
}

/** Bars or a line of a result: [{label, values}] with the names of the values. */
export function resultChart(names, rows, kind) {
  const width = 900;
  const height = 320;
  const shown = rows.slice(0, kind === "bar" ? 60 : 2000);
  const numbers = shown.flatMap((row) => row.values.filter((value) => typeof value === "number"));
  const top = nice(Math.max(...numbers, 1e-9));
  const low = Math.min(0, ...numbers);
  const y = (value) => 12 + (height - 60) * (1 - (value - low) / (top - low));
  const step = (width - 70) / Math.max(1, shown.length);
  const marks = shown.map((row, at) =>
    names.map((name, index) => {
      const value = row.values[index];
      if (typeof value !== "number" || kind !== "bar") return null;
      const size = (step * 0.8) / names.length;
      const x = 60 + at * step + index * size + step * 0.1;
      return s("rect", { class: `fill c${(index % 4) + 1}`, x, width: size, y: Math.min(y(value), y(0)), height: Math.abs(y(value) - y(0)) }, s("title", {}, `${row.label}: ${name} ${value}`));
    }),
  );
  const curves =
    kind === "line" &&
    names.map((name, index) => {
      const known = shown.map((row, at) => [60 + (at + 0.5) * step, row.values[index]]).filter(([, value]) => typeof value === "number");
      return s("path", { class: `line c${(index % 4) + 1}`, d: known.map(([x, value], at) => `${at ? "L" : "M"}${x.toFixed(1)} ${y(value).toFixed(1)}`).join("") });
    });
  const every = Math.ceil(shown.length / 8);
  return h(
    "figure.chart-card",
    h("figcaption", h("div.legend", names.map((name, index) => h("span", h("i", { class: `c${(index % 4) + 1}` }), name)), rows.length > shown.length && h("span", `the first ${shown.length} of ${rows.length} rows`))),
    s(
      "svg",
      { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${names.join(", ")} of ${shown.length} rows` },
      [low, (low + top) / 2, top].map((value) => [s("line", { class: "grid", x1: 60, x2: width, y1: y(value), y2: y(value) }), s("text", { class: "tick", x: 54, y: y(value) + 4, "text-anchor": "end" }, String(Number(value.toPrecision(4))))]),
      shown.map((row, at) => at % every === 0 && s("text", { class: "tick", x: 60 + (at + 0.5) * step, y: height - 22, "text-anchor": "middle" }, String(row.label).slice(0, 16))),
      marks,
      curves,
    ),
  );
}
