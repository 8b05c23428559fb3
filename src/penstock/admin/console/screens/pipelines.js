// Pipelines that this broker knows, with the progress of their queries.

import { h, replace } from "../dom.js";
import { ago, count, seconds, short } from "../format.js";
import { listed } from "../list_screen.js";
import { badge, card, definitions, empty, failure, loading, table } from "../widgets.js";

export function pipelines(view) {
  const box = h("div.grid.single", loading());
  view.show(view.title("Pipelines"), box);
  view.trouble = (error) => replace(box, failure(error, refresh));
  const refresh = view.poll(5, async () => {
    const found = await listed(view, "/pipelines");
    replace(box, found.length === 0 ? card("", empty("No pipelines", "Pipelines of penstock up and penstock pipeline that this broker knows are here.")) : found.map(one));
  });
}

function one(pipeline) {
  const kind = pipeline.running ? "ok" : ["failed", "killed"].includes(pipeline.phase) ? "bad" : "";
  return card(
    pipeline.name,
    definitions([
      ["State", badge(pipeline.phase || "never run", kind)],
      ["Kind", pipeline.kind],
      ["Folder", h("code", pipeline.directory)],
      pipeline.started && ["Started", ago(pipeline.started * 1e6)],
      (pipeline.error || pipeline.unreadable) && ["Error", h("span.problem", pipeline.error || pipeline.unreadable)],
      !pipeline.running && ["To start it", h("code", `penstock pipeline run ${pipeline.directory}`)],
    ]),
    table(
      [
        { title: "Query", cell: (row) => h("strong", row.name) },
        { title: "State", cell: (row) => row.state || "–" },
        { title: "Rows", end: true, cell: (row) => count(row.rows) },
        { title: "Rate", end: true, cell: (row) => (row.rate === null ? "–" : `${short(row.rate)}/s`) },
        { title: "Last batch", end: true, cell: (row) => (row.committed ? `${row.batch}, ${ago(row.committed * 1e6)}` : "–") },
        { title: "Lag", end: true, cell: (row) => count(row.lag) },
        { title: "Caught up in", end: true, cell: (row) => (row.eta === null ? "–" : seconds(row.eta)) },
      ],
      pipeline.queries,
      { none: "No queries yet" },
    ),
  );
}
