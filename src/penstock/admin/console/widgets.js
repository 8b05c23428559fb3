// Parts that screens are made of: buttons, badges, tables, dialogs, notices. No screen's own knowledge is here.

import { append, h, icon, replace } from "./dom.js";
import { count } from "./format.js";

export function button(text, onclick, { kind = "", icon: picture, title, disabled, id, type = "button" } = {}) {
  return h("button.button", { type, class: kind, onclick, title, disabled, id }, picture && icon(picture), h("span", text));
}

export function iconButton(picture, label, onclick, props = {}) {
  return h("button.icon-button", { type: "button", "aria-label": label, title: label, onclick, ...props }, icon(picture));
}

/** kind: ok, warn, bad, info or nothing. */
export function badge(text, kind = "") {
  return h("span.badge", { class: kind }, text);
}

export function loading(text = "Loading…") {
  return h("div.state", { role: "status" }, h("span.spinner", { "aria-hidden": "true" }), text);
}

export function empty(title, text, ...actions) {
  return h("div.state.empty", h("strong", title), text && h("p", text), actions.length > 0 && h("div.actions", actions));
}

export function failure(error, retry) {
  const denied = error.status === 403;
  return h(
    "div.state.failed",
    { role: "alert" },
    h("strong", denied ? "You may not see this" : "This did not work"),
    h("p", error.message),
    error.code && h("p.code", `${error.status || ""} ${error.code}`),
    retry && h("div.actions", button("Try again", retry, { icon: "refresh" })),
  );
}

export function card(title, ...children) {
  return h("section.card", title && h("h2", title), children);
}

export function tile(label, value, more) {
  return h("div.tile", h("span.label", label), h("span.value", value), more && h("span.more", more));
}

export function field(label, control, hint) {
  const id = control.id || `f${(field.next = (field.next ?? 0) + 1)}`;
  control.id = id;
  if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
  return h("div.field", h("label", { for: id }, label), control, hint && h("small", { id: `${id}-hint` }, hint));
}

export function select(options, value, onchange, props = {}) {
  const list = options.map((each) => (Array.isArray(each) ? each : [each, each]));
  return h("select", { onchange: onchange && ((event) => onchange(event.target.value)), ...props }, list.map(([key, text]) => h("option", { value: key, selected: String(key) === String(value) }, text)));
}

export function definitions(pairs) {
  return h("dl.pairs", pairs.filter(Boolean).map(([term, value]) => h("div", h("dt", term), h("dd", value))));
}

// -- tables

/**
 * A table that sorts and filters. columns: [{title, value: row => for sorting, cell: row => shown, end: right-aligned}].
 * `state` keeps sort and filter in the view's address: {get(name), set(name, value)}.
 */
export function table(columns, rows, { state, caption, filter, none = "Nothing here", onopen, most = 500 } = {}) {
  const box = h("div.table-box");
  let shown = most;

  function draw() {
    const by = columns.findIndex((each) => each.title === state?.get("sort"));
    const down = state?.get("dir") === "desc";
    const text = (state?.get("q") ?? "").toLowerCase();
    let found = text && filter ? rows.filter((row) => filter(row).toLowerCase().includes(text)) : [...rows];
    if (by >= 0) found.sort((a, b) => compare(columns[by].value(a), columns[by].value(b)) * (down ? -1 : 1));
    replace(
      box,
      found.length === 0
        ? text
          ? empty("Nothing fits", `None of ${count(rows.length)} has “${text}”.`)
          : none instanceof Node
            ? none
            : empty(none)
        : h(
            "table",
            caption && h("caption.visually-hidden", caption),
            h("thead", h("tr", columns.map((column, at) => head(column, at === by, down)))),
            h("tbody", found.slice(0, shown).map(line)),
          ),
      found.length > shown && h("div.actions.center", button(`Show more: ${count(found.length - shown)} left`, () => ((shown += most), draw()))),
    );
  }

  function head(column, chosen, down) {
    const props = { scope: "col", class: column.end ? "end" : "", "aria-sort": chosen ? (down ? "descending" : "ascending") : null };
    if (!column.value || !state) return h("th", props, column.title);
    const sort = () => {
      state.set({ sort: column.title, dir: chosen && !down ? "desc" : chosen ? "" : column.end ? "desc" : "" });
      draw();
      [...box.querySelectorAll("th button")].find((each) => each.textContent.startsWith(column.title))?.focus();
    };
    return h("th", props, h("button.sort", { type: "button", onclick: sort }, column.title, h("span", { "aria-hidden": "true" }, chosen ? (down ? " ↓" : " ↑") : "")));
  }

  function line(row) {
    const cells = columns.map((column) => h("td", { class: [column.end && "end", column.mono && "mono"].filter(Boolean).join(" "), "data-label": column.title }, column.cell(row)));
    return h("tr", onopen && { class: "opens", onclick: (event) => !event.target.closest("a, button, input") && onopen(row) }, cells);
  }

  draw();
  return Object.assign(box, {
    redraw: draw,
    update(next) {
      rows = next;
      draw();
    },
  });
}

function compare(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a < b ? -1 : 1;
}

/** The field above a table: what it says is in the address, and narrows the table as it is typed. */
export function tableFilter(view, box, label) {
  const state = view.state;
  return h("input.filter", {
    type: "search",
    placeholder: label,
    "aria-label": label,
    "data-hotkey": "/",
    value: state.get("q") ?? "",
    oninput: (event) => (state.set({ q: event.target.value }), box().redraw?.()),
  });
}

// -- dialogs

/** A dialog with a form. `send(form)` may throw: the message is shown, and the dialog stays. Resolves with what it gives. */
export function dialog({ title, body, action = "Save", danger = false, send, cancel = "Cancel", wide = false }) {
  return new Promise((resolve) => {
    const problem = h("p.problem", { role: "alert" });
    const submit = h("button.button", { type: "submit", class: danger ? "danger" : "primary" }, h("span", action));
    const form = h(
      "form",
      { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      h("div.body", body),
      problem,
      h("div.actions", cancel && h("button.button", { type: "button", onclick: () => box.close() }, cancel), action && submit),
    );
    const box = h("dialog", { "aria-labelledby": "dialog-title", class: wide ? "wide" : "" }, form);
    let result;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (!form.reportValidity()) return;
      submit.disabled = true;
      replace(problem);
      try {
        result = (await send?.(form)) ?? true;
        box.close();
      } catch (error) {
        replace(problem, error.message);
        submit.disabled = false;
      }
    });
    box.addEventListener("close", () => {
      box.remove();
      resolve(result);
    });
    document.body.append(box);
    box.showModal();
  });
}

/** Ask once, and say exactly what will be done. */
export function confirm({ title, text, details = [], action, danger = true, send }) {
  const body = [h("p", text), details.length > 0 && h("ul.details", details.map((each) => h("li", each)))];
  return dialog({ title, body, action, danger, send });
}

/** Something to be read and copied: a secret that is shown once, say. */
export function show(title, ...body) {
  return dialog({ title, body, action: "", cancel: "Close" });
}

// -- notices

export function toast(text, kind = "ok") {
  let box = document.querySelector(".toasts");
  if (!box) document.body.append((box = h("div.toasts", { role: "status", "aria-live": "polite" })));
  const one = h("div.toast", { class: kind }, icon(kind === "ok" ? "check" : "warn"), h("span", text), iconButton("close", "Dismiss", () => one.remove()));
  box.append(one);
  if (kind === "ok") setTimeout(() => one.remove(), 5000);
}

/** Run something that changes the broker, and say how it went. True: it did. */
export async function attempt(work, done) {
  try {
    await work();
    if (done) toast(done);
    return true;
  } catch (error) {
    toast(error.message, "bad");
    return false;
  }
}

export async function copy(text, what = "Copied") {
  try {
    await navigator.clipboard.writeText(text);
    toast(what);
  } catch {
    const area = h("textarea.visually-hidden", { value: text });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    toast(what);
  }
}

export function download(name, parts, type = "application/octet-stream") {
  const address = URL.createObjectURL(new Blob(parts, { type }));
  const anchor = h("a", { href: address, download: name });
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

/** Tabs as links: each has an address. [{id, text, href, chosen}] */
export function tabs(label, items) {
  return h("nav.tabs", { "aria-label": label }, items.map((each) => h("a", { href: each.href, "aria-current": each.chosen ? "page" : null }, each.text)));
}

export function bar(share, label, kind = "") {
  const percent = Math.max(0, Math.min(100, share * 100));
  return h("div.bar", { role: "img", "aria-label": label, class: kind }, h("span", { style: { width: `${percent}%` } }));
}

export { append };
