// Work queues and subscriptions: what is under way, and ending one.

import * as api from "../api.js";
import { h } from "../dom.js";
import { ago, count, time } from "../format.js";
import { listScreen, listed } from "../list_screen.js";
import { link } from "../router.js";
import { badge, button, confirm, empty, toast } from "../widgets.js";

export function queues(view) {
  listScreen(view, {
    title: "Queues",
    noun: "queues",
    load: () => listed(view, "/queues"),
    filter: (row) => `${row.id} ${row.topic}`,
    none: empty("No queues", "BlipMQ's subscriptions and work queues are here while they exist."),
    columns: (refresh) => [
      { title: "Queue", value: (row) => row.id, cell: (row) => h("strong", row.id) },
      { title: "Topic", value: (row) => row.topic, cell: (row) => h("a", { href: link("/topics", row.topic) }, row.topic) },
      { title: "Delivery", cell: (row) => badge(row.at_least_once ? "at least once" : "at most once", row.at_least_once ? "ok" : "") },
      { title: "In flight", end: true, value: (row) => row.in_flight, cell: (row) => count(row.in_flight) },
      { title: "Lag", end: true, value: (row) => row.lag, cell: (row) => count(row.lag) },
      { title: "Last polled", value: (row) => row.used, cell: (row) => h("span", { title: time(row.used) }, ago(row.used)) },
      { title: "", end: true, cell: (row) => button("Delete", () => remove(row, refresh), { kind: "small" }) },
    ],
  });
}

async function remove(row, refresh) {
  const done = await confirm({ title: `Delete queue ${row.id}?`, text: `Queue ${row.id} of ${row.topic} ends for whoever reads it. ${count(row.in_flight)} messages in flight and ${count(row.lag)} that were never delivered are delivered to nobody; in the topic they stay.`, action: "Delete the queue", send: () => api.del(api.path`/queues/${row.id}`) });
  if (done) {
    toast(`Queue ${row.id} is deleted`);
    refresh();
  }
}
