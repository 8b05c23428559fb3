// The list of topics: rates, sizes, and a new one.

import * as api from "../api.js";
import { h } from "../dom.js";
import { bytes, count, short, time } from "../format.js";
import { go, link } from "../router.js";
import { button, dialog, empty, field, loading, select, table, tableFilter, toast } from "../widgets.js";

export function topics(view) {
  let list = null;
  const box = h("section.card.flush", loading());
  const internal = h("input", { type: "checkbox", checked: view.state.get("internal") === "1", onchange: (event) => (view.state.set({ internal: event.target.checked }), refresh()) });
  view.show(
    view.title("Topics", button("New topic", create, { kind: "primary", icon: "plus" })),
    h("div.row", tableFilter(view, () => list ?? {}, "Filter topics by name"), h("label.check", internal, "the broker's own too")),
    box,
  );
  const columns = [
    { title: "Topic", value: (row) => row.name, cell: (row) => h("a", { href: link("/topics", row.name) }, row.name) },
    { title: "Partitions", end: true, value: (row) => row.partitions, cell: (row) => count(row.partitions) },
    { title: "Records", end: true, value: (row) => row.records, cell: (row) => count(row.records) },
    { title: "Rate", end: true, value: (row) => row.records_per_second, cell: (row) => (row.records_per_second === null ? "–" : `${short(row.records_per_second)}/s`) },
    { title: "Size", end: true, value: (row) => row.bytes, cell: (row) => bytes(row.bytes) },
    { title: "Created", value: (row) => row.created, cell: (row) => h("span.muted", time(row.created).slice(0, 16)) },
    { title: "", end: true, cell: (row) => h("a.button.small", { href: link(`/topics/${encodeURIComponent(row.name)}/messages`), "aria-label": `Messages of ${row.name}` }, "Messages") },
  ];
  view.trouble = (error) => box.replaceChildren(empty("This did not work", error.message));
  const refresh = view.poll(4, async () => {
    const rows = await api.all("/topics", { internal: view.state.get("internal") === "1" ? "true" : "" }, { signal: view.signal });
    if (list && box.contains(document.activeElement) && box.contains(list)) return list.update(rows);
    if (list?.isConnected) return list.update(rows);
    const none = empty("No topics yet", "Most clients make a topic when they first write to it. Or make one here.", button("New topic", create, { kind: "primary", icon: "plus" }));
    list = table(columns, rows, { state: view.state, caption: "Topics", filter: (row) => row.name, none, onopen: (row) => go(link("/topics", row.name)) });
    box.replaceChildren(list);
  });

  async function create() {
    const name = h("input", { required: true, maxlength: 255, autocomplete: "off", autofocus: true });
    const partitions = h("input", { type: "number", min: 1, max: 1000, value: 1, required: true });
    const retention = h("input", { type: "number", min: 1, placeholder: "the broker's default" });
    const keep = select([["", "the broker's default"], ["true", "yes"], ["false", "no"]], "");
    const made = await dialog({
      title: "New topic",
      action: "Create the topic",
      body: [field("Name", name), field("Partitions", partitions, "They cannot be changed later."), field("Retention in hours", retention), field("Keep its past as a table", keep)],
      send: () => {
        const settings = {};
        if (retention.value) settings.retention_seconds = Number(retention.value) * 3600;
        if (keep.value) settings.table = keep.value === "true";
        return api.post("/topics", { name: name.value, partitions: Number(partitions.value), settings });
      },
    });
    if (made) {
      toast(`Topic ${made.name} is there`);
      go(link("/topics", made.name));
    }
  }
}
