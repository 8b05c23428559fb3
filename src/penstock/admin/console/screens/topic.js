// One topic: partitions, settings, consumers, table and access.

import * as api from "../api.js";
import { h } from "../dom.js";
import { bytes, count, seconds, short, time } from "../format.js";
import { go, link } from "../router.js";
import { badge, bar, button, card, confirm, definitions, dialog, empty, field, select, table, tabs, tile, toast } from "../widgets.js";

/** What the screens of one topic have in common: where one is, and the way to the others. */
export function topicHead(view, name, chosen, ...actions) {
  const to = (part) => (part ? link(`/topics/${encodeURIComponent(name)}/${part}`) : link("/topics", name));
  return [
    h("nav.crumbs", { "aria-label": "Where you are" }, h("a", { href: link("/topics") }, "Topics"), "/"),
    view.title(name, actions),
    tabs(`Topic ${name}`, [
      { text: "Messages", href: to("messages"), chosen: chosen === "messages" },
      { text: "About", href: to(""), chosen: chosen === "about" },
    ]),
  ];
}

export function topic(view) {
  const name = view.names.topic;
  const load = () => Promise.all([api.get(api.path`/topics/${name}`, {}, { signal: view.signal }), optional(api.all("/acls", {}, { signal: view.signal })), optional(api.all("/groups", {}, { signal: view.signal }))]);
  const again = () => view.load(load, ([found, acls, groups]) => draw(found, acls?.find((each) => each.topic === name), (groups ?? []).filter((each) => each.topic === name)));
  again();

  function draw(found, acl, groups) {
    const { topic: summary, partitions, settings, table: kept } = found;
    const most = Math.max(1, ...partitions.map((each) => each.end - each.start));
    const dash = (value, format = String) => (value === undefined || value === null ? h("span.muted", "the broker's default") : format(value));
    view.show(
      topicHead(view, name, "about", button("Change settings", () => change(settings), { icon: "edit" }), button("Delete", remove, { icon: "trash" })),
      h("div.tiles", tile("Records", short(summary.records), count(summary.records)), tile("Size", bytes(summary.bytes), "in segments and table"), tile("Rate", summary.records_per_second === null ? "–" : `${short(summary.records_per_second)}/s`), tile("Partitions", count(summary.partitions)), tile("Consumers", count(groups.length), groups.length ? `${short(groups.reduce((sum, each) => sum + each.lag, 0))} behind` : null)),
      h(
        "section.card.flush",
        h("h2", "Partitions"),
        table(
          [
            { title: "Partition", cell: (row) => h("a", { href: link(`/topics/${encodeURIComponent(name)}/messages`, { partition: row.partition }) }, row.partition) },
            { title: "First offset", end: true, mono: true, cell: (row) => count(row.start) },
            { title: "Next offset", end: true, mono: true, cell: (row) => count(row.end) },
            { title: "Records", end: true, cell: (row) => count(row.end - row.start) },
            { title: "Share", cell: (row) => bar((row.end - row.start) / most, `${count(row.end - row.start)} records`) },
            { title: "Segments", end: true, cell: (row) => count(row.segments) },
          ],
          partitions,
          { caption: "Partitions" },
        ),
      ),
      h(
        "div.grid",
        card(
          "Settings",
          definitions([
            ["Retention", dash(settings.retention_seconds, seconds)],
            ["Retention by size", dash(settings.retention_bytes, bytes)],
            ["Records expire after", dash(settings.expiry_seconds, seconds)],
            ["Schema", settings.schema ? h("a", { href: link("/schemas", settings.schema) }, settings.schema) : h("span.muted", "none")],
            settings.schema && ["A record that does not fit", settings.rejected === "dead-letter" ? "becomes a dead letter" : "is refused"],
            ["Kept as a table", dash(settings.table, (value) => (value ? "yes" : "no"))],
            ["Created", time(summary.created)],
            settings.data_class && ["Data class", settings.data_class],
          ]),
        ),
        card(
          "Consumers",
          groups.length === 0 ? empty("No consumer groups", "A group is there once it has committed an offset.") : table(
            [
              { title: "Group", cell: (row) => h("a", { href: link("/groups", row.group, row.topic) }, row.group) },
              { title: "Members", end: true, cell: (row) => (row.members.length ? count(row.members.length) : badge("nobody", row.lag ? "warn" : "")) },
              { title: "Lag", end: true, cell: (row) => count(row.lag) },
            ],
            groups,
          ),
        ),
        card(
          "Table",
          kept
            ? definitions([["Location", h("code", kept.location)], ["Reaches to", Object.entries(kept.ends).map(([partition, end]) => h("div", `partition ${partition}: offset ${count(end)}`))]])
            : empty("No table", settings.table === false ? "This topic is not kept as a table." : "Closed segments are moved to a table; there is none yet."),
          h("div.actions", { style: { "margin-top": "12px" } }, h("a.button.small", { href: link("/sql", { sql: `SELECT * FROM "${name.replaceAll('"', '""')}" LIMIT 100` }) }, "Query it with SQL"), summary.typed && h("a.button.small", { href: link("/sql", { sql: `SELECT * FROM "${summary.typed.replaceAll('"', '""')}" LIMIT 100` }) }, "Query its typed table")),
        ),
        card("Access", access(acl)),
      ),
    );
  }

  function access(acl) {
    if (!acl) return h("p.muted", "No list of its own: the roles of users and keys decide.");
    return definitions([["Public", acl.public ? "yes" : "no"], ["Users", acl.users.join(", ") || "–"], ["Roles", acl.roles.join(", ") || "–"], ["Others with a role that allows it", acl.restrict ? "may not" : "may too"]]);
  }

  async function change(settings) {
    const hours = h("input", { type: "number", min: 0, step: "any", value: settings.retention_seconds ? settings.retention_seconds / 3600 : "", placeholder: "default" });
    const size = h("input", { type: "number", min: 1, value: settings.retention_bytes ? settings.retention_bytes / 1048576 : "", placeholder: "default" });
    const expiry = h("input", { type: "number", min: 0, step: "any", value: settings.expiry_seconds ?? "", placeholder: "never" });
    const schemas = (await optional(api.all("/schemas"))) ?? [];
    const schema = select([["", "none"], ...new Set(schemas.map((each) => each.name))], settings.schema ?? "");
    const rejected = select([["error", "is refused"], ["dead-letter", "becomes a dead letter"]], settings.rejected ?? "error");
    const keep = select([["", "the broker's default"], ["true", "yes"], ["false", "no"]], settings.table === null || settings.table === undefined ? "" : String(settings.table));
    const number = (input, factor) => (input.value === "" ? null : Number(input.value) * factor);
    const changed = await dialog({
      title: `Settings of ${name}`,
      action: "Change the settings",
      body: [field("Retention in hours", hours), field("Retention of each partition in MiB", size), field("Records expire after seconds", expiry), field("Schema", schema), field("A record that does not fit it", rejected), field("Keep its past as a table", keep)],
      send: () =>
        api.patch(api.path`/topics/${name}`, {
          retention_seconds: number(hours, 3600),
          retention_bytes: size.value === "" ? null : Math.round(Number(size.value) * 1048576),
          expiry_seconds: number(expiry, 1),
          schema: schema.value || null,
          rejected: schema.value ? rejected.value : null,
          table: keep.value === "" ? null : keep.value === "true",
        }),
    });
    if (changed) {
      toast(`Settings of ${name} are changed`);
      again();
    }
  }

  async function remove() {
    const done = await confirm({ title: `Delete ${name}?`, text: `The topic ${name} is deleted with all its records and its table. This cannot be undone.`, action: "Delete the topic", send: () => api.del(api.path`/topics/${name}`) });
    if (done) {
      toast(`Topic ${name} is deleted`);
      go(link("/topics"));
    }
  }
}

export async function optional(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.status === 403 || error.status === 404) return null;
    throw error;
  }
}
