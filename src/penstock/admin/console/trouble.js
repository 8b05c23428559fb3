// What is wrong with a broker, and what to do about it: rules over its health, figures, groups and dead letters.

import { bytes, count, plural } from "./format.js";
import { link } from "./router.js";

const bad = (text, todo, href, action) => ({ kind: "bad", text, todo, href, action });
const warn = (text, todo, href, action) => ({ kind: "warn", text, todo, href, action });

/** Rules: each gives a problem, or nothing. `earlier` are the figures of a minute before, if there are any. */
const RULES = [
  ({ broker }) => !broker.health.writable && bad(`Read-only: ${broker.health.reason}`, "Records are refused, reads go on. Make room on the disk, or restart the broker after a failed sync.", null),
  ({ broker }) => broker.health.phase !== "serving" && warn(`The broker is ${broker.health.phase}.`, "Clients connect again by themselves."),
  ({ broker }) => broker.health.missing.length > 0 && warn(`Not there at the moment: ${broker.health.missing.join(", ")}.`, "It is started again by itself; the broker's log says why it ended."),
  ({ broker }) => broker.health.tables && warn(`Tables: ${broker.health.tables}`, "penstock table verify says what is damaged, penstock table repair repairs it."),
  ({ figures }) => {
    const size = figures?.sum("disk_size_bytes");
    const free = figures?.sum("disk_free_bytes");
    if (!size || free / size > 0.1) return null;
    return (free / size < 0.03 ? bad : warn)(`${bytes(free)} of the disk are left.`, "Give topics a shorter retention, or move the data directory to a larger disk.", link("/topics", { sort: "Size", dir: "desc" }), "Largest topics");
  },
  ({ figures }) => figures?.sum("tables_damaged") > 0 && bad(`${plural(figures.sum("tables_damaged"), "range")} of offsets in tables cannot be read.`, "A file is damaged: penstock table repair.", null),
  ({ figures }) => figures?.sum("log_write_failures_total") > 0 && warn(`${plural(figures.sum("log_write_failures_total"), "write")} to the journal failed since the start.`, "Look at the disk and at the broker's log."),
  ({ figures }) => figures?.sum("internal_errors_total") > 0 && warn(`${plural(figures.sum("internal_errors_total"), "request")} ended in a mistake of the broker.`, "Its log has the details: please report them, with penstock debug bundle."),
  ({ letters }) => {
    const some = (letters ?? []).filter((each) => each.letters > 0);
    const total = some.reduce((sum, each) => sum + each.letters, 0);
    return total > 0 && warn(`${plural(total, "dead letter")} in ${plural(some.length, "topic")}.`, "Records that could not be delivered, or do not fit their schema: look why, and send them again.", some.length === 1 ? link("/dead-letters", some[0].topic) : link("/dead-letters"), "Look at them");
  },
  ({ groups }) => {
    const idle = (groups ?? []).filter((each) => each.lag > 0 && each.members.length === 0);
    return idle.length > 0 && warn(`${idle.map((each) => each.group).slice(0, 3).join(", ")}${idle.length > 3 ? " and others" : ""}: ${count(idle.reduce((sum, each) => sum + each.lag, 0))} records behind, and no member reads.`, "Start a consumer of the group, move it to another offset, or delete it if nobody uses it.", link("/groups", { sort: "Lag", dir: "desc" }), "Groups");
  },
  ({ figures, earlier }) => grown("connections_refused_total", figures, earlier) && warn("Connections are refused because of a limit.", "Look who holds them, or raise the limit.", link("/connections"), "Connections"),
  ({ figures, earlier }) => grown("authentication_failures_total", figures, earlier) && warn("Somebody logs in with wrong credentials.", "The audit log says from where.", link("/audit", { types: "auth" }), "Audit"),
  ({ figures, earlier }) => grown("audit_lost_total", figures, earlier) && bad("Audit events could not be written.", "The journal does not take writes."),
  ({ figures, earlier }) => grown("worker_restarts_total", figures, earlier) && warn("A worker process ended and was started again.", "The broker's log says why."),
];

function grown(name, figures, earlier) {
  return figures && earlier && figures.sum(name) > earlier.sum(name);
}

export function problems(facts) {
  return RULES.map((rule) => rule(facts)).filter(Boolean);
}
