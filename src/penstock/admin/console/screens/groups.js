// Consumer groups: who reads, how far behind, and moving a group to other offsets after a look at what that means.

import * as api from "../api.js";
import { h, replace } from "../dom.js";
import { count, fromLocalInput, localInput, plural } from "../format.js";
import { listScreen, listed } from "../list_screen.js";
import { go, link } from "../router.js";
import { badge, button, confirm, dialog, empty, field, select, table, tile, toast } from "../widgets.js";

export function groups(view) {
  listScreen(view, {
    title: "Groups",
    noun: "groups",
    load: () => listed(view, "/groups"),
    filter: (row) => `${row.group} ${row.topic}`,
    none: empty("No consumer groups", "A group is there once it has committed an offset in a topic."),
    onopen: (row) => go(link("/groups", row.group, row.topic)),
    columns: () => [
      { title: "Group", value: (row) => row.group, cell: (row) => h("a", { href: link("/groups", row.group, row.topic) }, row.group) },
      { title: "Topic", value: (row) => row.topic, cell: (row) => h("a", { href: link("/topics", row.topic) }, row.topic) },
      { title: "Members", end: true, value: (row) => row.members.length, cell: (row) => (row.members.length ? count(row.members.length) : badge("nobody", row.lag ? "warn" : "")) },
      { title: "Lag", end: true, value: (row) => row.lag, cell: (row) => count(row.lag) },
    ],
  });
}

export function group(view) {
  const { group: name, topic } = view.names;
  const where = api.path`/groups/${name}/${topic}`;
  const body = h("div.screen-body");
  view.show(
    h("nav.crumbs", { "aria-label": "Where you are" }, h("a", { href: link("/groups") }, "Groups"), "/"),
    view.title(`${name} in ${topic}`, button("Move…", move, { icon: "replay" }), button("Delete", remove, { icon: "trash" })),
    body,
  );
  view.trouble = (error) => replace(body, empty("This did not work", error.message));
  const refresh = view.poll(3, async () => draw(await api.get(where, {}, { signal: view.signal })));

  function draw(found) {
    replace(
      body,
      h("div.tiles", tile("Lag", count(found.lag), "records"), tile("Members", count(found.members.length), found.members.join(", ") || "nobody reads at the moment"), tile("Topic", h("a", { href: link("/topics", topic) }, topic))),
      h(
        "section.card.flush",
        table(
          [
            { title: "Partition", cell: (row) => row.partition },
            { title: "Next offset of the group", end: true, mono: true, cell: (row) => (row.committed === null ? "–" : h("a", { href: link(`/topics/${encodeURIComponent(topic)}/messages`, { from: "offset", offset: row.committed, partition: row.partition }) }, count(row.committed))) },
            { title: "End", end: true, mono: true, cell: (row) => count(row.end) },
            { title: "Lag", end: true, cell: (row) => count(row.lag) },
          ],
          found.partitions,
          { caption: "Offsets by partition" },
        ),
      ),
    );
  }

  async function move() {
    const to = select([["earliest", "the beginning"], ["latest", "the end"], ["offset", "an offset"], ["time", "a time"]], "earliest");
    const offset = h("input", { type: "number", min: 0, value: 0 });
    const time = h("input", { type: "datetime-local", step: "0.001", value: localInput((Date.now() - 3_600_000) * 1000) });
    const partition = h("input", { type: "number", min: 0, placeholder: "all" });
    const plan = h("div");
    const body = (dry) => ({ ...(to.value === "offset" ? { offset: Number(offset.value) } : to.value === "time" ? { time: fromLocalInput(time.value) } : { to: to.value }), ...(partition.value === "" ? {} : { partition: Number(partition.value) }), dry_run: dry });
    const look = async () => {
      try {
        const { moves } = await api.post(`${where}/offsets`, body(true));
        replace(plan, h("ul.details", moves.map((each) => h("li", `partition ${each.partition}: from ${each.before === null ? "nothing" : count(each.before)} to ${count(each.after)}`))));
      } catch (error) {
        replace(plan, h("p.problem", error.message));
      }
    };
    for (const each of [to, offset, time, partition]) each.addEventListener("change", look);
    look();
    const done = await dialog({
      title: `Move ${name} in ${topic}`,
      action: "Move the group",
      body: [h("div.row", field("To", to), field("Partition", partition)), h("div.row", field("Offset", offset), field("Time", time)), h("p", "What will be done:"), plan],
      send: () => api.post(`${where}/offsets`, body(false)),
    });
    if (done) {
      toast(`${name} goes on at other offsets in ${plural(done.moves.length, "partition")}`);
      refresh();
    }
  }

  async function remove() {
    const done = await confirm({ title: `Delete ${name} in ${topic}?`, text: `The offsets of ${name} in ${topic} are forgotten. When it reads again, it begins as a new group does.`, action: "Delete the group", send: () => api.del(where) });
    if (done) go(link("/groups"));
  }
}
