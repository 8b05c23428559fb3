// The overview: is it well, what goes through it, who is behind, what takes room.

import * as api from "../api.js";
import { LiveChart, niceBytes } from "../chart.js";
import { h, icon, replace } from "../dom.js";
import { Figures, quantile, rate } from "../figures.js";
import { bytes, count, seconds, short } from "../format.js";
import { link } from "../router.js";
import { problems } from "../trouble.js";
import { badge, bar, card, empty, failure, loading, table, tile } from "../widgets.js";

const FAST = 2; // seconds between two readings of the figures
const SLOW = 10; // and of lists

export function overview(view) {
  const facts = { broker: null, figures: null, before: null, earlier: null, groups: null, topics: null, letters: null, tables: null };
  const health = h("div.problems", { "aria-live": "polite" });
  const tiles = h("div.tiles");
  const doors = h("div");
  const storage = h("div");
  const lag = h("div");
  const busy = h("div");
  const charts = [
    new LiveChart("Records per second", [{ name: "in", color: 1 }, { name: "out", color: 2 }], short, 10),
    new LiveChart("Bytes per second", [{ name: "in", color: 1 }, { name: "out", color: 2 }], bytes, 1024, { round: niceBytes }),
    new LiveChart("Produce latency", [{ name: "median", color: 1 }, { name: "99 %", color: 3 }], seconds, 0.001),
    new LiveChart("Requests per second", [{ name: "requests", color: 4 }, { name: "errors", color: 2 }], short, 10),
  ];
  const chartBox = h("div.grid", charts.map((each) => each.element));
  view.onleave(() => charts.forEach((each) => each.close()));
  view.show(
    view.title("Overview"),
    health,
    tiles,
    chartBox,
    h("section.card.flush", h("h2", "Doors"), doors),
    h("div.grid", card("Storage", storage), card("Consumers that are behind", lag), card("Busiest topics", busy)),
  );
  replace(health, loading());
  let denied = false;

  view.trouble = (error) => replace(health, failure(error));
  view.poll(FAST, async () => {
    facts.broker = await api.get("/broker", {}, { signal: view.signal });
    if (!denied) await readFigures();
    drawFast();
  });
  view.poll(SLOW, async () => {
    const options = { signal: view.signal, most: 2000 };
    [facts.groups, facts.topics, facts.letters, facts.tables] = await Promise.all(["/groups", "/topics", "/dead-letters", "/tables"].map((path) => optional(api.all(path, {}, options))));
    drawSlow();
  });

  async function readFigures() {
    try {
      const next = await Figures.read({ signal: view.signal });
      if (!facts.earlier || next.at - facts.earlier.at > 120_000) facts.earlier = facts.figures ?? next;
      [facts.before, facts.figures] = [facts.figures, next];
    } catch (error) {
      if (error.status !== 403) throw error;
      denied = true;
      replace(chartBox, card("Figures", empty("No figures for you", "Rates and latencies take the permission “metrics” for all tenants.")));
    }
  }

  function drawFast() {
    const { broker, figures, before } = facts;
    const found = problems(facts);
    replace(
      health,
      found.length === 0
        ? h("div.ok", icon("check"), h("p", h("strong", "Everything works. "), `Up for ${seconds(Math.round(broker.uptime_seconds))}; acknowledged means ${broker.durability}.`))
        : found.map((each) => h("div", { class: each.kind }, icon("warn"), h("p", h("strong", each.text), " ", each.todo), each.href && h("a.button.small", { href: each.href }, each.action))),
    );
    const now = (name, labels) => (figures ? rate(before, figures, name, labels) : null);
    const [inward, outward] = [now("messages_produced_total"), now("messages_fetched_total")];
    const totalLag = facts.groups?.reduce((sum, each) => sum + each.lag, 0);
    replace(
      tiles,
      figures && tile("Records in", `${short(inward)}/s`, `${bytes(now("bytes_in_total"))}/s`),
      figures && tile("Records out", `${short(outward)}/s`, `${bytes(now("bytes_out_total"))}/s`),
      figures && tile("Connections", count(figures.sum("active_connections")), `${bytes(figures.sum("held_bytes"))} held`),
      tile("Log position", count(broker.position), "records and events"),
      tile("Consumer lag", totalLag === undefined ? "–" : short(totalLag), facts.groups ? `${count(facts.groups.length)} groups` : null),
      facts.topics && tile("Topics", count(facts.topics.length), bytes(facts.topics.reduce((sum, each) => sum + each.bytes, 0))),
    );
    drawDoors(broker, now);
    if (!figures || !before) return;
    const at = figures.at;
    charts[0].push(at, [inward, outward]);
    charts[1].push(at, [now("bytes_in_total"), now("bytes_out_total")]);
    charts[2].push(at, [quantile(before, figures, "produce_latency_seconds", 0.5), quantile(before, figures, "produce_latency_seconds", 0.99)]);
    charts[3].push(at, [now("requests_total"), now("request_errors_total")]);
  }

  function drawDoors(broker, now) {
    const per = (name) => (door) => (facts.figures ? `${short(now(name, { door: door.name }))}/s` : "–");
    const columns = [
      { title: "Door", cell: (door) => h("strong", door.name) },
      { title: "Address", mono: true, cell: (door) => door.address },
      { title: "Encryption", cell: (door) => (door.transport === "udp" ? badge("QUIC", "ok") : badge(door.tls === "off" ? "off" : `TLS ${door.tls}`, door.tls === "off" ? "" : "ok")) },
      { title: "Connections", end: true, cell: (door) => (facts.figures ? count(facts.figures.sum("sessions", { door: door.name })) : "–") },
      { title: "Requests", end: true, cell: per("requests_total") },
      { title: "Records in", end: true, cell: per("messages_produced_total") },
      { title: "Records out", end: true, cell: per("messages_fetched_total") },
      { title: "Errors", end: true, cell: per("request_errors_total") },
    ];
    replace(doors, table(columns, broker.doors, { caption: "Open doors", none: "No door is open" }));
  }

  function drawSlow() {
    const { figures, topics, groups, tables } = facts;
    const size = figures?.sum("disk_size_bytes");
    const free = figures?.sum("disk_free_bytes");
    const stored = topics?.reduce((sum, each) => sum + each.bytes, 0) ?? 0;
    const inTables = tables?.reduce((sum, each) => sum + (each.bytes ?? 0), 0) ?? 0;
    const used = size ? (size - free) / size : 0;
    replace(
      storage,
      size > 0 && [h("p", `${bytes(free)} free of ${bytes(size)}`), bar(used, `${Math.round(used * 100)} % of the disk are in use`, used > 0.97 ? "bad" : used > 0.9 ? "warn" : "")],
      h("dl.pairs", { style: { "margin-top": "12px" } }, [["Journal", bytes(stored - inTables)], ["Tables", `${bytes(inTables)} in ${count(tables?.length ?? 0)}`], figures && ["Waiting for tables", bytes(figures.sum("table_lag_bytes"))]].filter(Boolean).map(([term, text]) => h("div", h("dt", term), h("dd", text)))),
    );
    const behind = (groups ?? []).filter((each) => each.lag > 0).sort((a, b) => b.lag - a.lag).slice(0, 6);
    const most = Math.max(1, ...behind.map((each) => each.lag));
    replace(lag, behind.length === 0 ? h("p.muted", groups?.length ? "All groups have read everything." : "No consumer groups yet.") : behind.map((each) => ranked(link("/groups", each.group, each.topic), `${each.group} · ${each.topic}`, short(each.lag), each.lag / most)));
    const topicsByRate = (topics ?? []).filter((each) => each.records_per_second > 0).sort((a, b) => b.records_per_second - a.records_per_second).slice(0, 6);
    const top = Math.max(1, ...topicsByRate.map((each) => each.records_per_second));
    replace(busy, topicsByRate.length === 0 ? h("p.muted", topics?.length ? "Nothing is being produced." : "No topics yet.") : topicsByRate.map((each) => ranked(link("/topics", each.name), each.name, `${short(each.records_per_second)}/s`, each.records_per_second / top)));
  }
}

function ranked(href, name, value, share) {
  return h("div.ranked", h("a", { href }, name), h("span", value), bar(share, `${name}: ${value}`));
}

/** A list that one may not see is left out. */
async function optional(promise) {
  try {
    return await promise;
  } catch (error) {
    if (error.status === 403) return null;
    throw error;
  }
}
