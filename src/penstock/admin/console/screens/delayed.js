// Records that appear later, and open transactions: both wait for something, and can be called off.

import * as api from "../api.js";
import { h } from "../dom.js";
import { ago, bytes, count, plural, time } from "../format.js";
import { listScreen, listed } from "../list_screen.js";
import { link } from "../router.js";
import { badge, button, confirm, empty, toast } from "../widgets.js";

const topicLink = (name) => h("a", { href: link("/topics", name) }, name);

export function delayed(view) {
  listScreen(view, {
    title: "Delayed",
    noun: "delayed records",
    load: () => listed(view, "/delayed"),
    filter: (row) => `${row.id} ${row.topic}`,
    none: empty("Nothing is delayed", "Records that are produced with a delay wait here until their time comes."),
    columns: (refresh) => [
      { title: "Number", value: (row) => row.id, cell: (row) => row.id },
      { title: "Topic", value: (row) => row.topic, cell: (row) => topicLink(row.topic) },
      { title: "Partition", end: true, cell: (row) => row.partition ?? "by its key" },
      { title: "Appears", value: (row) => row.due, cell: (row) => h("span", { title: time(row.due) }, `${ago(row.due)}, ${time(row.due)}`) },
      { title: "Scheduled", value: (row) => row.created, cell: (row) => h("span.muted", time(row.created)) },
      { title: "", end: true, cell: (row) => button("Cancel", () => cancel(row, refresh), { kind: "small" }) },
    ],
  });
}

async function cancel(row, refresh) {
  const done = await confirm({ title: `Cancel record ${row.id}?`, text: `The record that would appear in ${row.topic} at ${time(row.due)} will not appear.`, action: "Cancel the record", send: () => api.del(api.path`/delayed/${row.id}`) });
  if (done) toast(`Record ${row.id} will not appear`);
  refresh();
}

export function transactions(view) {
  listScreen(view, {
    title: "Transactions",
    noun: "transactions",
    load: () => listed(view, "/transactions"),
    filter: (row) => `${row.id} ${row.topics.join(" ")}`,
    none: empty("No open transactions", "A transaction is here until it is committed or rolled back."),
    columns: (refresh) => [
      { title: "Transaction", mono: true, value: (row) => row.id, cell: (row) => row.id },
      { title: "State", cell: (row) => badge(row.state, row.state === "committing" ? "info" : "") },
      { title: "Began", value: (row) => row.began, cell: (row) => h("span", { title: time(row.began) }, ago(row.began)) },
      { title: "Records", end: true, value: (row) => row.records, cell: (row) => count(row.records) },
      { title: "Size", end: true, value: (row) => row.bytes, cell: (row) => bytes(row.bytes) },
      { title: "Topics", cell: (row) => row.topics.join(", ") },
      { title: "", end: true, cell: (row) => button("Roll back", () => abort(row, refresh), { kind: "small" }) },
    ],
  });
}

async function abort(row, refresh) {
  const done = await confirm({ title: "Roll this transaction back?", text: `Transaction ${row.id} is rolled back, whosever it is: its ${plural(row.records, "record")} will never be seen by anybody.`, action: "Roll back", send: () => api.del(api.path`/transactions/${row.id}`) });
  if (done) toast("The transaction is rolled back");
  refresh();
}
