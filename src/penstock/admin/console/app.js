// The console starts here: who is asking, the frame around every screen, and which screen the address means.

import * as api from "./api.js";
import { h, icon, replace } from "./dom.js";
import { current, go, link, match, route } from "./router.js";
import { View } from "./view.js";
import { dialog, empty, iconButton, select } from "./widgets.js";
import { login, logout } from "./login.js";
import { applyTheme, toggleTheme } from "./theme.js";
import { shortcuts, showHelp } from "./keyboard.js";
import { overview } from "./screens/overview.js";
import { topics } from "./screens/topics.js";
import { topic } from "./screens/topic.js";
import { messages } from "./screens/messages.js";
import { sql } from "./screens/sql.js";
import { group, groups } from "./screens/groups.js";
import { queues } from "./screens/queues.js";
import { deadLetters, deadLettersOf } from "./screens/dead_letters.js";
import { delayed, transactions } from "./screens/delayed.js";
import { schema, schemas } from "./screens/schemas.js";
import { cache, caches } from "./screens/caches.js";
import { connections } from "./screens/connections.js";
import { pipelines } from "./screens/pipelines.js";
import { acls, keys, roles, tenants, users } from "./screens/access.js";
import { audit } from "./screens/audit.js";

/** The navigation: what is here is there. */
const MENU = [
  ["", [["/", "Overview", "overview", "o"], ["/topics", "Topics", "topics", "t"], ["/sql", "SQL", "sql", "s"], ["/schemas", "Schemas", "schemas", "m"]]],
  ["Delivery", [["/groups", "Groups", "groups", "g"], ["/queues", "Queues", "queues", "q"], ["/dead-letters", "Dead letters", "dead", "d"], ["/delayed", "Delayed", "delayed", "l"], ["/transactions", "Transactions", "transactions", "x"], ["/caches", "Caches", "cache", "c"]]],
  ["Operation", [["/connections", "Connections", "connections", "n"], ["/pipelines", "Pipelines", "pipelines", "p"], ["/access/users", "Access", "access", "u"], ["/audit", "Audit", "audit", "a"]]],
];

const access = { menu: "/access/users" };
route("/", overview);
route("/topics", topics);
route("/topics/:topic", topic, { menu: "/topics" });
route("/topics/:topic/messages", messages, { menu: "/topics" });
route("/sql", sql);
route("/schemas", schemas);
route("/schemas/:schema", schema, { menu: "/schemas" });
route("/groups", groups);
route("/groups/:group/:topic", group, { menu: "/groups" });
route("/queues", queues);
route("/dead-letters", deadLetters);
route("/dead-letters/:topic", deadLettersOf, { menu: "/dead-letters" });
route("/delayed", delayed);
route("/transactions", transactions);
route("/caches", caches);
route("/caches/:cache", cache, { menu: "/caches" });
route("/connections", connections);
route("/pipelines", pipelines);
route("/access/users", users, access);
route("/access/keys", keys, access);
route("/access/roles", roles, access);
route("/access/acls", acls, access);
route("/access/tenants", tenants, access);
route("/audit", audit);

const root = document.getElementById("app");
const asset = (name) => new URL(name, import.meta.url).pathname;
const session = { identity: null, broker: null };
let view = null;
let shell = null;

async function start() {
  applyTheme();
  try {
    session.identity = await api.get("/identity", {}, { quiet: true });
  } catch (error) {
    if (error.status !== 401) return broken(error);
  }
  const who = session.identity;
  if (!who || (who.security && !who.name)) return showLogin();
  if (!shell) shell = frame();
  replace(root, shell.element);
  shell.refresh();
  render(false);
}

function broken(error) {
  replace(root, h("div.login", h("form", h("img", { src: asset("icon.svg"), alt: "" }), h("h1", "The broker does not answer"), h("p", error.message), h("button.button.primary", { type: "button", onclick: start }, "Try again"))));
}

function showLogin() {
  view?.leave();
  view = null;
  shell = null;
  login(root, asset("icon.svg"), start);
}

api.whenLoginIsNeeded(() => {
  if (view) showLogin();
});

function frame() {
  const links = new Map();
  const close = () => element.classList.remove("menu");
  const menu = MENU.map(([title, items]) => [
    title && h("h2", title),
    h("nav", { "aria-label": title || "Main" }, items.map(([path, text, picture]) => {
      const one = h("a", { onclick: close }, icon(picture), text);
      links.set(path, one);
      return one;
    })),
  ]);
  const version = h("div.foot");
  const who = h("div.who");
  const scopeBox = h("div.scope");
  const theme = iconButton("moon", "Switch between light and dark", () => toggleTheme());
  const jump = h("form.jump", { role: "search", onsubmit: jumpTo }, h("input", { type: "search", name: "topic", list: "jump-topics", placeholder: "Go to a topic", title: "g, then /", "aria-label": "Go to a topic", autocomplete: "off", onfocus: fillTopics, style: { width: "100%" } }), h("datalist", { id: "jump-topics" }));
  const main = h("main", { id: "main", tabindex: "-1" });
  const element = h(
    "div.shell",
    h("a.skip", { href: "#main", onclick: (event) => (event.preventDefault(), main.focus()) }, "Skip to the content"),
    h("aside.side", h("a.brand", { href: "#/" }, h("img", { src: asset("icon.svg"), alt: "" }), "Penstock"), menu, version),
    h("div.veil", { onclick: close }),
    h("header.top", iconButton("menu", "Menu", () => element.classList.toggle("menu"), { class: "menu-button" }), h("div.grow", jump), scopeBox, iconButton("search", "Keyboard shortcuts", () => showHelp(MENU), { class: "help" }), theme, who),
    main,
  );
  element.querySelector(".help").replaceChildren(h("span", { "aria-hidden": "true" }, "?"));

  function refresh() {
    const identity = session.identity;
    replace(
      who,
      identity.security
        ? [h("strong", identity.name), h("span.role", identity.roles.join(", ")), iconButton("logout", `Log out ${identity.name}`, () => logout(showLogin))]
        : h("span.badge.warn", { title: "Everybody who can connect is administrator (security.enabled)" }, "security off"),
    );
    address();
    api.get("/broker", {}, { quiet: true }).then((broker) => replace(version, `Penstock ${broker.version}`), () => {});
  }

  /** Links keep the tenant and namespace that one looks at. */
  function address() {
    const { path } = current();
    const chosen = match(path)?.options.menu ?? path;
    for (const [to, one] of links) {
      one.setAttribute("href", link(to));
      if (to === chosen) one.setAttribute("aria-current", "page");
      else one.removeAttribute("aria-current");
    }
    fillScope();
  }

  let shownScope = null;

  async function fillScope() {
    const { query } = current();
    const scope = `${query.get("tenant")} ${query.get("namespace")}`;
    if (scope === shownScope) return;
    shownScope = scope;
    const chosen = query.get("tenant") ?? session.identity.tenant ?? "default";
    let tenants = [];
    try {
      tenants = (await api.all("/tenants", { tenant: "", namespace: "" }, { quiet: true, most: 1000 })).map((each) => each.name);
    } catch {
      // not an administrator: one's own tenant is all there is
    }
    const names = [...new Set(["default", ...tenants, chosen])].sort();
    const space = query.get("namespace") ?? "";
    replace(
      scopeBox,
      (names.length > 1 || space) && [
        select(names, chosen, (tenant) => move({ tenant: tenant === "default" && !session.identity.tenant ? "" : tenant, namespace: space }), { "aria-label": "Tenant" }),
        space && h("span.muted", ` / ${space}`),
      ],
    );
  }

  function move(where) {
    const menu = match(current().path)?.options.menu ?? current().path;
    const query = new URLSearchParams(Object.entries(where).filter(([, value]) => value));
    go(`#${menu}${query.size ? `?${query}` : ""}`);
  }

  async function fillTopics() {
    const list = element.querySelector("#jump-topics");
    try {
      replace(list, (await api.all("/topics", {}, { most: 2000, quiet: true })).map((each) => h("option", { value: each.name })));
    } catch {
      replace(list);
    }
  }

  function jumpTo(event) {
    event.preventDefault();
    const name = new FormData(event.target).get("topic").trim();
    if (name) go(link("/topics", name));
    event.target.reset();
    main.focus();
  }

  return { element, main, refresh, address };
}

function render(moved) {
  if (!shell) return;
  view?.leave();
  document.querySelectorAll("dialog").forEach((each) => each.close());
  const { path, query } = current();
  const found = match(path);
  view = new View(found?.names ?? {}, query, found?.options ?? {});
  replace(shell.main, view.element);
  shell.main.scrollTop = 0;
  shell.address();
  if (found) found.screen(view, session);
  else view.show(view.title("Not found"), empty("There is nothing at this address", path, h("a.button", { href: "#/" }, "To the overview")));
  if (moved) view.element.querySelector("h1")?.focus({ preventScroll: true }); // a reader is told where it is now
}

window.addEventListener("hashchange", () => render(true));
shortcuts({ menu: MENU, go: (path) => go(link(path)), dialog });
start();
