// The audit log: who did what, and whether they were allowed to.

import * as api from "../api.js";
import { h, replace } from "../dom.js";
import { time } from "../format.js";
import { badge, button, download, empty, failure, loading, select, table, toast } from "../widgets.js";

const FAMILIES = [["", "all events"], ["auth", "logins"], ["access", "access denied"], ["topic", "topics"], ["user", "users"], ["key", "keys"], ["acl", "access lists"], ["schema", "schemas"], ["group", "groups"], ["dlq", "dead letters"], ["tenant", "tenants"]];

export function audit(view) {
  const { state } = view;
  const box = h("section.card.flush", loading());
  let size = 200;
  const query = () => ({ types: state.get("types"), result: state.get("result"), search: state.get("q") });
  const kinds = select(FAMILIES, state.get("types") ?? "", (value) => (state.set({ types: value }), refresh()), { "aria-label": "Events" });
  const results = select([["", "any result"], "success", "denied", "failure"], state.get("result") ?? "", (value) => (state.set({ result: value }), refresh()), { "aria-label": "Result" });
  const text = h("input.filter", { type: "search", "data-hotkey": "/", placeholder: "Search in events", "aria-label": "Search in events", value: state.get("q") ?? "", onchange: (event) => (state.set({ q: event.target.value }), refresh()) });
  view.show(view.title("Audit", button("Verify", verify, { icon: "check" }), button("Export", exportAll, { icon: "download" })), h("div.row", text, kinds, results), box);
  view.trouble = (error) => replace(box, error.status === 404 ? empty("No audit log", error.message) : failure(error, refresh));
  const refresh = view.poll(10, async () => {
    const found = await api.get("/audit", { ...query(), limit: size }, { signal: view.signal });
    const columns = [
      { title: "Time", cell: (row) => h("span.muted", time(row.timestamp * 1000)) },
      { title: "Event", cell: (row) => h("strong", row.type) },
      { title: "Who", cell: (row) => row.user || "–" },
      { title: "On what", mono: true, cell: (row) => row.resource || "–" },
      { title: "From", mono: true, cell: (row) => row.client_ip },
      { title: "Result", cell: (row) => badge(row.result, { success: "ok", denied: "bad", failure: "warn" }[row.result]) },
    ];
    const none = empty("No events", "The audit log is kept while security is on, or with security.audit = \"on\".");
    replace(box, table(columns, found.events, { caption: "Audit events", none, most: 2000 }), found.has_more && h("div.actions.center", button("Show more", () => ((size = Math.min(1000, size * 2)), refresh()))));
  });

  async function verify() {
    try {
      const report = await api.post("/audit/verify", {});
      toast(report.text, report.ok ? "ok" : "bad");
    } catch (error) {
      toast(error.message, "bad");
    }
  }

  async function exportAll() {
    try {
      download("audit.json", [JSON.stringify(await api.get("/audit/export", query()), null, 1)]);
    } catch (error) {
      toast(error.message, "bad");
    }
  }
}
