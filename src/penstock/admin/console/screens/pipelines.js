// Pipelines that this broker knows, with the progress of their queries; one that runs can be restarted.

import * as api from "../api.js";
import { h, replace } from "../dom.js";
import { ago, count, seconds, short } from "../format.js";
import { listed } from "../list_screen.js";
import { badge, button, card, confirm, definitions, empty, failure, loading, table, toast } from "../widgets.js";

export function pipelines(view) {
  const box = h("div.grid.single", loading());
  view.show(view.title("Pipelines"), box);
  view.trouble = (error) => replace(box, failure(error, refresh));
  const refresh = view.poll(5, async () => {
    const found = await listed(view, "/pipelines");
    replace(box, found.length === 0 ? card("", empty("No pipelines", "Pipelines of penstock up and penstock pipeline that this broker knows are here.")) : found.map((each) => one(each, refresh)));
  });
}

function one(pipeline, refresh) {
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
        { title: "State", cell: (row) => (["failed", "quarantined"].includes(row.state) ? badge(row.state, "bad") : row.state || "–") },
        { title: "Rows", end: true, cell: (row) => count(row.rows) },
        { title: "Rate", end: true, cell: (row) => (row.rate === null ? "–" : `${short(row.rate)}/s`) },
        { title: "Last batch", end: true, cell: (row) => (row.committed ? `${row.batch}, ${ago(row.committed * 1e6)}` : "–") },
        { title: "Lag", end: true, cell: (row) => count(row.lag) },
        { title: "Caught up in", end: true, cell: (row) => (row.eta === null ? "–" : seconds(row.eta)) },
      ],
      pipeline.queries,
      { none: "No queries yet" },
    ),
    definitions(pipeline.queries.filter((row) => row.error).map((row) => [failures(row), h("span.problem", row.error)])),
    pipeline.running && h("div.actions", { style: { "margin-top": "12px" } }, button("Restart…", () => restart(pipeline, refresh), { icon: "replay" })),
  );
}

function failures(row) {
  return `${row.name}, ${row.restarts === 1 ? "restarted once" : `restarted ${count(row.restarts)} times`}; last failure`;
}

async function restart(pipeline, refresh) {
  const asked = await confirm({ title: `Restart ${pipeline.name}?`, text: `The process that runs ${pipeline.name} finishes its batch and ends; whoever started it (penstock up, penstock pipeline run) starts another with the code that is in the folder now. It goes on where it was: no record is lost or taken twice.`, action: "Restart the pipeline", danger: false, send: () => api.post(api.path`/pipelines/${pipeline.name}/restart`) });
  if (asked) toast(`${pipeline.name} is restarted: process ${asked.process} was asked to end`);
  refresh();
}
