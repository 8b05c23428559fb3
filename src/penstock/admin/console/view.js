// A view: one screen as it is shown. It knows its address, polls while it can be seen, and ends what it began.

import { h, replace } from "./dom.js";
import { current, go, search } from "./router.js";
import { failure, loading } from "./widgets.js";

export class View {
  constructor(names, query, options) {
    this.names = names;
    this.query = query;
    this.options = options;
    this.element = h("div.screen");
    this.aborter = new AbortController();
    this.left = false;
    this.endings = [];
    this.state = {
      get: (name) => current().query.get(name),
      all: (name) => current().query.getAll(name),
      set: (values, { push = false } = {}) => this.setQuery(values, push),
    };
  }

  get signal() {
    return this.aborter.signal;
  }

  /** Change the address without showing the screen anew. Empty values go. */
  setQuery(values, push = false) {
    if (this.left) return;
    const { path, query } = current();
    const merged = {};
    for (const key of new Set(query.keys())) merged[key] = query.getAll(key);
    const address = `#${path}${search({ ...merged, ...values })}`;
    if (push) history.pushState(null, "", address);
    else go(address, { replace: true });
  }

  title(text, ...actions) {
    document.title = `${text} · Penstock`;
    return h("header.screen-head", h("h1", { tabindex: "-1" }, text), h("div.actions", actions));
  }

  show(...children) {
    if (!this.left) replace(this.element, ...children);
  }

  /** Show what `load` gives, with what to see until then and if it fails. */
  async load(load, draw) {
    this.show(loading());
    try {
      const found = await load();
      if (!this.left) draw(found);
    } catch (error) {
      if (error.name !== "AbortError") this.show(failure(error, () => this.load(load, draw)));
    }
  }

  /** Again and again while the tab can be seen, one at a time: a console that nobody looks at asks nothing. */
  poll(seconds, work) {
    let timer = 0;
    let running = false;
    const turn = async () => {
      clearTimeout(timer);
      if (this.left || running || document.hidden) return;
      running = true;
      try {
        await work();
      } catch (error) {
        if (error.name !== "AbortError") this.trouble?.(error);
      }
      running = false;
      if (!this.left) timer = setTimeout(turn, seconds * 1000);
    };
    const seen = () => !document.hidden && turn();
    document.addEventListener("visibilitychange", seen);
    this.onleave(() => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    });
    turn();
    return turn;
  }

  onleave(ending) {
    this.endings.push(ending);
  }

  leave() {
    this.left = true;
    this.aborter.abort();
    for (const ending of this.endings) ending();
  }
}
