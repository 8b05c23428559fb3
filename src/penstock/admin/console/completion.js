// Completion in the SQL editor: tables, columns of those that the statement names, and words of SQL.

import { h, replace } from "./dom.js";

const WORDS = "SELECT FROM WHERE GROUP BY ORDER BY LIMIT JOIN LEFT JOIN ON AND OR NOT IN BETWEEN LIKE IS NULL AS COUNT(*) SUM( AVG( MIN( MAX( DISTINCT HAVING WITH CASE WHEN THEN ELSE END INTERVAL DESC ASC UNION ALL now()".split(/ (?!BY|JOIN|ALL)/);
const MOST = 12;

/** `tables()` gives names, `columns(table)` those of one, or a promise of them. */
export function completion(area, tables, columns) {
  const box = h("div.completions", { role: "listbox", id: "completions", hidden: true });
  area.setAttribute("role", "combobox");
  area.setAttribute("aria-controls", "completions");
  area.setAttribute("aria-expanded", "false");
  area.setAttribute("aria-autocomplete", "list");
  let found = [];
  let at = 0;

  const word = () => /[\w$"]*$/.exec(area.value.slice(0, area.selectionStart))[0];

  async function suggest() {
    const typed = word();
    if (!typed) return close();
    const names = tables();
    const used = names.filter((name) => area.value.includes(name));
    const ofTables = (await Promise.all(used.slice(0, 4).map(columns))).flat();
    const all = [...names.map((text) => [text, "table"]), ...ofTables.map((text) => [text, "column"]), ...WORDS.map((text) => [text, ""])];
    const seen = new Set();
    const start = typed.replace('"', "").toLowerCase();
    found = all.filter(([text]) => text.toLowerCase().startsWith(start) && text.toLowerCase() !== start && !seen.has(text) && seen.add(text)).slice(0, MOST);
    at = 0;
    draw();
  }

  function draw() {
    if (!found.length) return close();
    replace(box, found.map(([text, kind], index) => h("div", { role: "option", id: `completion-${index}`, "aria-selected": index === at, onpointerdown: (event) => (event.preventDefault(), (at = index), accept()) }, h("span", text), h("span.muted", kind))));
    box.hidden = false;
    area.setAttribute("aria-expanded", "true");
    area.setAttribute("aria-activedescendant", `completion-${at}`);
    const lines = area.value.slice(0, area.selectionStart).split("\n");
    box.style.setProperty("top", `${Math.min(area.clientHeight, 16 + lines.length * 20.2 - area.scrollTop)}px`);
    box.style.setProperty("left", `${Math.min(area.clientWidth - 190, 14 + lines[lines.length - 1].length * 7.8)}px`);
  }

  function close() {
    box.hidden = true;
    found = [];
    area.setAttribute("aria-expanded", "false");
    area.removeAttribute("aria-activedescendant");
  }

  function accept() {
    const [text, kind] = found[at];
    const written = kind && !/^[a-z_][a-z0-9_]*$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    const from = area.selectionStart - word().length;
    area.setRangeText(written, from, area.selectionStart, "end");
    close();
    area.focus();
  }

  area.addEventListener("input", suggest);
  area.addEventListener("blur", close);
  area.addEventListener("keydown", (event) => {
    if (box.hidden) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") at = (at + (event.key === "ArrowDown" ? 1 : -1) + found.length) % found.length;
    else if ((event.key === "Enter" && !event.ctrlKey && !event.metaKey) || event.key === "Tab") accept();
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
    if (found.length) draw();
  });
  return box;
}
