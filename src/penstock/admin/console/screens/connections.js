// Open connections: who, by which door, how much; and closing one.

import * as api from "../api.js";
import { h } from "../dom.js";
import { ago, bytes, time } from "../format.js";
import { listScreen, listed } from "../list_screen.js";
import { badge, button, confirm, toast } from "../widgets.js";

export function connections(view) {
  listScreen(view, {
    title: "Connections",
    noun: "connections",
    seconds: 3,
    load: () => listed(view, "/connections"),
    filter: (row) => `${row.door} ${row.peer} ${row.identity} ${row.request}`,
    columns: (refresh) => [
      { title: "From", mono: true, value: (row) => row.peer, cell: (row) => row.peer },
      { title: "Door", value: (row) => row.door, cell: (row) => (row.door ? badge(row.door, "info") : "–") },
      { title: "Who", value: (row) => row.identity, cell: (row) => row.identity || h("span.muted", "nobody") },
      { title: "Encrypted", cell: (row) => (row.encrypted ? badge("TLS", "ok") : badge("no")) },
      { title: "Since", value: (row) => row.since, cell: (row) => h("span", { title: time(row.since) }, ago(row.since)) },
      { title: "Received", end: true, value: (row) => row.received, cell: (row) => bytes(row.received) },
      { title: "Sent", end: true, value: (row) => row.sent, cell: (row) => bytes(row.sent) },
      { title: "Last request", mono: true, value: (row) => row.request, cell: (row) => row.request },
      { title: "", end: true, cell: (row) => button("Close", () => close(row, refresh), { kind: "small" }) },
    ],
  });
}

async function close(row, refresh) {
  const done = await confirm({ title: `Close the connection from ${row.peer}?`, text: `${row.identity || "Its client"} is disconnected at once from ${row.door || "the broker"}. Most clients connect again.`, action: "Close the connection", send: () => api.del(api.path`/connections/${row.id}`) });
  if (done) toast(`The connection from ${row.peer} is closed`);
  refresh();
}
