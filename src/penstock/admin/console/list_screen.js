// A screen that is a list: a title, what to do, a filter, and a table that is kept up to date.

import * as api from "./api.js";
import { h } from "./dom.js";
import { failure, loading, table, tableFilter } from "./widgets.js";

/** `load` gives the rows; `columns(refresh)` the columns, whose actions may ask for them again. */
export function listScreen(view, { title, noun, actions = () => [], load, columns, filter, none, onopen, seconds = 5, notice }) {
  const box = h("section.card.flush", loading());
  let list = null;
  const refresh = view.poll(seconds, async () => {
    const rows = await load();
    if (view.left) return;
    if (list?.isConnected) return list.update(rows);
    list = table(columns(refresh), rows, { state: view.state, caption: title, filter, none, onopen });
    box.replaceChildren(list);
  });
  view.trouble = (error) => {
    list = null;
    box.replaceChildren(failure(error, refresh));
  };
  view.show(view.title(title, actions(refresh)), notice, filter && h("div.row", tableFilter(view, () => list ?? {}, `Filter ${noun}`)), box);
  return refresh;
}

export const listed = (view, path, query) => api.all(path, query, { signal: view.signal });
