// A value as somebody wants to see it: a tree of JSON, text, or hex. Base64 in, elements out; nothing is trusted.

import { h, replace } from "./dom.js";

const MAX_TEXT = 500_000; // characters shown at once; the rest is for the download
const MAX_CHILDREN = 200; // of one node, until more are asked for
const MAX_HEX = 16_384; // bytes
const MAX_MARKS = 2000;

export function decode(base64) {
  const text = atob(base64 ?? "");
  const data = new Uint8Array(text.length);
  for (let at = 0; at < text.length; at += 1) data[at] = text.charCodeAt(at);
  return data;
}

export function size(base64) {
  return base64 ? Math.floor((base64.length * 3) / 4) - (base64.endsWith("==") ? 2 : base64.endsWith("=") ? 1 : 0) : 0;
}

/** A number that a float cannot hold, as it was written. */
class Exact {
  constructor(source) {
    this.source = source;
  }
}

/** JSON with all digits of its numbers; undefined if it is none, or deeper than a reader here can go. */
export function parse(text) {
  if (text === null || !/^\s*[[{"\-0-9tfn]/.test(text)) return undefined;
  try {
    return JSON.parse(text, (key, value, context) => (typeof value === "number" && context?.source && String(value) !== context.source && !/[.eE]/.test(context.source) ? new Exact(context.source) : value));
  } catch (error) {
    if (!(error instanceof RangeError)) return undefined;
  }
  try {
    return JSON.parse(text); // very deep: without a look at each number
  } catch {
    return undefined;
  }
}

const isParent = (value) => value !== null && typeof value === "object" && !(value instanceof Exact);

export function tree(value) {
  return h("div.tree", node(null, value, 0));
}

function node(name, value, depth) {
  const label = name === null ? null : [h("span.name", name), ": "];
  if (!isParent(value)) return h("div", label, leaf(value));
  const entries = Array.isArray(value) ? value : Object.entries(value);
  const total = entries.length;
  const sum = Array.isArray(value) ? `[${total}]` : `{${total}}`;
  if (total === 0) return h("div", label, h("span.sum", Array.isArray(value) ? "[]" : "{}"));
  const children = h("div.children");
  const arrow = h("span.sum", { "aria-hidden": "true" });
  let open = false;
  let made = 0;
  const more = () => {
    children.querySelector(":scope > .more")?.remove();
    const next = entries.slice(made, made + MAX_CHILDREN);
    children.append(...next.map((entry, at) => (Array.isArray(value) ? node(String(made + at), entry, depth + 1) : node(entry[0], entry[1], depth + 1))));
    made += next.length;
    if (made < total) children.append(h("button.more", { type: "button", onclick: more }, `… ${total - made} more`));
  };
  const toggle = () => {
    open = !open;
    arrow.textContent = open ? "▾ " : "▸ ";
    handle.setAttribute("aria-expanded", open);
    children.hidden = !open;
    if (open && !made) more();
  };
  const handle = h("button", { type: "button", onclick: toggle, "aria-expanded": "false" }, arrow, label, h("span.sum", sum));
  children.hidden = true;
  arrow.textContent = "▸ ";
  if (depth < 2 && total <= 50) toggle();
  return h("div", handle, children);
}

function leaf(value) {
  if (value instanceof Exact) return h("span.number", value.source);
  if (typeof value === "string") return h("span.string", JSON.stringify(value.length > 10_000 ? `${value.slice(0, 10_000)}…` : value));
  if (typeof value === "number") return h("span.number", String(value));
  return h("span.word", String(value));
}

/** Indented JSON of a parsed value. */
export function pretty(value) {
  const exact = [];
  const text = JSON.stringify(value, (key, each) => (each instanceof Exact ? (exact.push(each.source), `\u0001${exact.length - 1}\u0001`) : each), 2);
  return text.replace(/"\\u0001(\d+)\\u0001"/g, (all, at) => exact[at]);
}

export function hex(data) {
  const lines = [];
  const end = Math.min(data.length, MAX_HEX);
  for (let at = 0; at < end; at += 16) {
    const row = [...data.subarray(at, Math.min(at + 16, end))];
    const digits = row.map((each) => each.toString(16).padStart(2, "0")).join(" ");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits.padEnd(47)}  ${row.map((each) => (each > 31 && each < 127 ? String.fromCharCode(each) : "·")).join("")}`);
  }
  if (data.length > end) lines.push(`… ${data.length - end} more bytes: download the value to see all`);
  return lines.join("\n");
}

/** Text with every place marked that has `wanted` in it. Returns the element and the marks. */
export function marked(text, wanted, kind = "") {
  const shown = text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}\n… ${text.length - MAX_TEXT} more characters: download the value to see all` : text;
  const box = h("pre", { class: kind });
  const marks = [];
  if (!wanted) return [replace(box, shown), marks];
  const lower = shown.toLowerCase();
  const needle = wanted.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(needle); at >= 0 && marks.length < MAX_MARKS; at = lower.indexOf(needle, from)) {
    const mark = h("mark", shown.slice(at, at + needle.length));
    box.append(shown.slice(from, at), mark);
    marks.push(mark);
    from = at + needle.length;
  }
  box.append(shown.slice(from));
  return [box, marks];
}
