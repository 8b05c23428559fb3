// A list of thousands of rows of which only those in sight are elements. Rows have one height.

import { h } from "./dom.js";

const BEYOND = 8; // rows made above and below what can be seen

/**
 * `draw(item, index)` makes the cells of a row; `open(index)` is called for a click or Enter. The list is one stop of
 * the Tab key: arrows, Page, Home and End move in it.
 */
export class VirtualList {
  constructor({ label, height, draw, open, columns }) {
    this.items = [];
    this.height = height;
    this.draw = draw;
    this.open = open;
    this.active = -1;
    this.rows = new Map(); // index → element
    this.space = h("div.vspace", { role: "rowgroup" });
    this.element = h("div.vlist", { role: "grid", tabindex: "0", "aria-label": label, "aria-colcount": columns, onkeydown: (event) => this.key(event) }, this.space);
    this.element.addEventListener("scroll", () => this.schedule(), { passive: true });
    this.resizing = new ResizeObserver(() => this.schedule());
    this.resizing.observe(this.element);
    this.frame = 0;
  }

  close() {
    this.resizing.disconnect();
    cancelAnimationFrame(this.frame);
  }

  set(items, { keepAnchor = false } = {}) {
    const grown = items.length - this.items.length;
    this.items = items;
    this.element.setAttribute("aria-rowcount", items.length);
    this.space.style.setProperty("height", `${items.length * this.height}px`);
    if (this.active >= items.length) this.active = items.length - 1;
    if (keepAnchor && grown > 0 && this.element.scrollTop > this.height) this.element.scrollTop += grown * this.height;
    this.forget();
    this.schedule();
  }

  /** Rows are made anew. */
  forget() {
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
  }

  schedule() {
    if (!this.frame) this.frame = requestAnimationFrame(() => this.render());
  }

  render() {
    this.frame = 0;
    const first = Math.max(0, Math.floor(this.element.scrollTop / this.height) - BEYOND);
    const last = Math.min(this.items.length, Math.ceil((this.element.scrollTop + this.element.clientHeight) / this.height) + BEYOND);
    for (const [index, row] of this.rows) {
      if (index < first || index >= last) {
        row.remove();
        this.rows.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) if (!this.rows.has(index)) this.make(index);
    this.mark();
  }

  make(index) {
    const row = h("div.vrow", { role: "row", id: `row-${index}`, "aria-rowindex": index + 1, onclick: () => this.choose(index, true) }, this.draw(this.items[index], index));
    row.style.setProperty("transform", `translateY(${index * this.height}px)`);
    row.style.setProperty("height", `${this.height}px`);
    this.rows.set(index, row);
    this.space.append(row);
  }

  mark() {
    for (const [index, row] of this.rows) {
      row.classList.toggle("active", index === this.active);
      row.setAttribute("aria-selected", index === this.active);
    }
    if (this.rows.has(this.active)) this.element.setAttribute("aria-activedescendant", `row-${this.active}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  choose(index, open = false) {
    if (index < 0 || index >= this.items.length) return;
    this.active = index;
    const top = index * this.height;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + this.height > this.element.scrollTop + this.element.clientHeight) this.element.scrollTop = top + this.height - this.element.clientHeight;
    this.render();
    if (open) this.open(index);
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in moves && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      this.choose(Math.max(0, Math.min(this.items.length - 1, this.active + moves[event.key])), this.following);
    } else if (event.key === "Enter") {
      this.choose(Math.max(0, this.active), true);
    }
  }
}
