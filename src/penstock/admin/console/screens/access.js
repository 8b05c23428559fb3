// Who may do what: users, keys, roles, access lists and tenants. A secret is shown once, when it is made.

import * as api from "../api.js";
import { h } from "../dom.js";
import { count, fromLocalInput, time } from "../format.js";
import { listScreen, listed } from "../list_screen.js";
import { link } from "../router.js";
import { badge, button, confirm, copy, dialog, empty, field, iconButton, show, tabs, toast } from "../widgets.js";

const PARTS = [["users", "Users"], ["keys", "API keys"], ["roles", "Roles"], ["acls", "Access lists"], ["tenants", "Tenants"]];

const chips = (values) => h("div.chips", values.map((each) => badge(each)));
const words = (input) => input.value.split(/[\s,]+/).filter(Boolean);

function screen(view, chosen, options) {
  const notice = tabs("Access", PARTS.map(([id, text]) => ({ text, href: link(`/access/${id}`), chosen: id === chosen })));
  listScreen(view, { title: "Access", seconds: 10, notice, ...options });
}

async function done(question, text, refresh) {
  const made = await question;
  if (made) toast(text);
  refresh();
  return made;
}

export function users(view) {
  screen(view, "users", {
    noun: "users",
    load: () => listed(view, "/users"),
    filter: (row) => `${row.name} ${row.roles.join(" ")}`,
    none: empty("No users", "With security on, everybody needs a user, a key or a token."),
    actions: (refresh) => [button("Add a user", () => add(refresh), { kind: "primary", icon: "plus" })],
    columns: (refresh) => [
      { title: "User", value: (row) => row.name, cell: (row) => h("strong", row.name) },
      { title: "Roles", cell: (row) => chips(row.roles) },
      { title: "May", cell: (row) => chips(row.permissions) },
      { title: "State", value: (row) => row.enabled, cell: (row) => badge(row.enabled ? "enabled" : "disabled", row.enabled ? "ok" : "bad") },
      { title: "Created", value: (row) => row.created, cell: (row) => h("span.muted", time(row.created).slice(0, 16)) },
      { title: "", end: true, cell: (row) => h("div.actions", button("Change", () => change(row, refresh), { kind: "small" }), button("Password", () => password(row, refresh), { kind: "small" }), button("Remove", () => remove(row, refresh), { kind: "small" })) },
    ],
  });

  function add(refresh) {
    const name = h("input", { required: true, autofocus: true, autocomplete: "off" });
    const secret = h("input", { type: "password", required: true, autocomplete: "new-password" });
    const roles = h("input", { placeholder: "consumer, producer" });
    return done(dialog({ title: "Add a user", action: "Add the user", body: [field("Name", name), field("Password", secret), field("Roles", roles, "with commas; what there is stands under Roles")], send: () => api.post("/users", { name: name.value, password: secret.value, roles: words(roles) }) }), "The user is added", refresh);
  }

  function change(row, refresh) {
    const roles = h("input", { value: row.roles.join(", ") });
    const enabled = h("input", { type: "checkbox", checked: row.enabled });
    return done(dialog({ title: `Change ${row.name}`, action: "Change the user", body: [field("Roles", roles, "with commas"), h("label.check", enabled, "may log in")], send: () => api.patch(api.path`/users/${row.name}`, { roles: words(roles), enabled: enabled.checked }) }), `${row.name} is changed`, refresh);
  }

  function password(row, refresh) {
    const secret = h("input", { type: "password", required: true, autocomplete: "new-password", autofocus: true });
    return done(dialog({ title: `Another password for ${row.name}`, action: "Change the password", body: [field("New password", secret, "Sessions of this user end.")], send: () => api.put(api.path`/users/${row.name}/password`, { password: secret.value }) }), "The password is changed", refresh);
  }

  function remove(row, refresh) {
    return done(confirm({ title: `Remove ${row.name}?`, text: `The user ${row.name} is removed, from access lists too, and can do nothing any more.`, action: "Remove the user", send: () => api.del(api.path`/users/${row.name}`) }), `${row.name} is removed`, refresh);
  }
}

export function keys(view) {
  screen(view, "keys", {
    noun: "keys",
    load: () => listed(view, "/keys"),
    filter: (row) => `${row.name} ${row.permissions.join(" ")} ${row.roles.join(" ")}`,
    none: empty("No API keys", "Keys are for programs: with a few permissions, some topics, and an end."),
    actions: (refresh) => [button("Add a key", () => add(refresh), { kind: "primary", icon: "plus" })],
    columns: (refresh) => [
      { title: "Key", value: (row) => row.name, cell: (row) => [h("strong", row.name), h("span.muted", ` ${row.id}`)] },
      { title: "May", cell: (row) => chips([...row.permissions, ...row.roles]) },
      { title: "Topics", mono: true, cell: (row) => row.topics.join(", ") },
      { title: "State", value: (row) => row.state, cell: (row) => badge(row.state, row.state === "active" ? "ok" : "bad") },
      { title: "Expires", value: (row) => row.expires, cell: (row) => (row.expires ? time(row.expires).slice(0, 16) : h("span.muted", "never")) },
      { title: "", end: true, cell: (row) => row.state === "active" && h("div.actions", button("Rotate", () => rotate(row, refresh), { kind: "small" }), button("Revoke", () => revoke(row, refresh), { kind: "small" })) },
    ],
  });

  async function add(refresh) {
    const name = h("input", { required: true, autofocus: true });
    const may = h("input", { value: "read", placeholder: "read, write, commit" });
    const topics = h("input", { value: "*" });
    const expires = h("input", { type: "datetime-local" });
    const made = await dialog({ title: "Add an API key", action: "Add the key", body: [field("Name", name), field("Permissions", may, "with commas: read, write, commit, …"), field("Topics", topics, "names, or * for all"), field("Expires", expires)], send: () => api.post("/keys", { name: name.value, permissions: words(may), topics: words(topics), ...(expires.value ? { expires: fromLocalInput(expires.value) } : {}) }) });
    if (made) await secret(made);
    refresh();
  }

  async function rotate(row, refresh) {
    const made = await confirm({ title: `Rotate ${row.name}?`, text: `A new key on the same terms takes the place of ${row.name}, which is revoked at once: programs that use it are refused.`, action: "Rotate the key", send: () => api.post(api.path`/keys/${row.id}/rotate`) });
    if (made) await secret(made);
    refresh();
  }

  function revoke(row, refresh) {
    return done(confirm({ title: `Revoke ${row.name}?`, text: `The key ${row.name} does nothing any more, for good.`, action: "Revoke the key", send: () => api.del(api.path`/keys/${row.id}`) }), `${row.name} is revoked`, refresh);
  }

  function secret(made) {
    return show(`The key ${made.key.name}`, h("p", "This is the only time that it is shown. Keep it where the program finds it."), h("div.secret", h("span", made.secret), iconButton("copy", "Copy the key", () => copy(made.secret, "Key copied"))));
  }
}

export function roles(view) {
  screen(view, "roles", {
    noun: "roles",
    load: () => listed(view, "/roles"),
    filter: (row) => `${row.name} ${row.description}`,
    actions: (refresh) => [button("Make a role", () => set({ name: "", permissions: [], description: "" }, refresh), { kind: "primary", icon: "plus" })],
    columns: (refresh) => [
      { title: "Role", value: (row) => row.name, cell: (row) => h("strong", row.name) },
      { title: "May", cell: (row) => chips(row.permissions) },
      { title: "For", cell: (row) => row.description },
      { title: "", end: true, cell: (row) => (row.built_in ? badge("built in") : h("div.actions", button("Change", () => set(row, refresh), { kind: "small" }), button("Remove", () => remove(row, refresh), { kind: "small" }))) },
    ],
  });

  function set(row, refresh) {
    const name = h("input", { required: true, value: row.name, readonly: Boolean(row.name) });
    const may = h("input", { value: row.permissions.join(", "), required: true });
    const text = h("input", { value: row.description });
    return done(dialog({ title: row.name ? `Change the role ${row.name}` : "Make a role", action: "Set the role", body: [field("Name", name), field("Permissions", may, "with commas"), field("For", text)], send: () => api.put(api.path`/roles/${name.value}`, { permissions: words(may), description: text.value }) }), "The role is set", refresh);
  }

  function remove(row, refresh) {
    return done(confirm({ title: `Remove the role ${row.name}?`, text: `Whoever has ${row.name} may no longer do what it allows.`, action: "Remove the role", send: () => api.del(api.path`/roles/${row.name}`) }), `${row.name} is removed`, refresh);
  }
}

export function acls(view) {
  screen(view, "acls", {
    noun: "access lists",
    load: () => listed(view, "/acls"),
    filter: (row) => `${row.topic} ${row.users.join(" ")} ${row.roles.join(" ")}`,
    none: empty("No access lists", "Without one, the roles and permissions of users and keys decide."),
    actions: (refresh) => [button("Set an access list", () => set({ topic: "", public: false, users: [], roles: [], restrict: false }, refresh), { kind: "primary", icon: "plus" })],
    columns: (refresh) => [
      { title: "Topic", value: (row) => row.topic, cell: (row) => h("a", { href: link("/topics", row.topic) }, row.topic) },
      { title: "Public", cell: (row) => badge(row.public ? "yes" : "no", row.public ? "warn" : "") },
      { title: "Users", cell: (row) => chips(row.users ?? []) },
      { title: "Roles", cell: (row) => chips(row.roles ?? []) },
      { title: "Others with a role", cell: (row) => (row.restrict ? badge("may not", "info") : "may too") },
      { title: "", end: true, cell: (row) => h("div.actions", button("Change", () => set(row, refresh), { kind: "small" }), button("Remove", () => remove(row, refresh), { kind: "small" })) },
    ],
  });

  function set(row, refresh) {
    const topic = h("input", { required: true, value: row.topic, readonly: Boolean(row.topic) });
    const open = h("input", { type: "checkbox", checked: row.public });
    const names = h("input", { value: (row.users ?? []).join(", "), placeholder: "ada, key:3, token:ci" });
    const groups = h("input", { value: (row.roles ?? []).join(", ") });
    const only = h("input", { type: "checkbox", checked: row.restrict });
    return done(dialog({ title: row.topic ? `Access to ${row.topic}` : "Set an access list", action: "Set the list", body: [field("Topic", topic), field("Users", names, "with commas"), field("Roles", groups, "with commas"), h("label.check", only, "only these: a role that allows it is not enough"), h("label.check", open, "public")], send: () => api.put(api.path`/acls/${topic.value}`, { public: open.checked, users: words(names), roles: words(groups), restrict: only.checked }) }), "The access list is set", refresh);
  }

  function remove(row, refresh) {
    return done(confirm({ title: `Remove the list of ${row.topic}?`, text: `Roles and permissions alone decide who may use ${row.topic}.`, action: "Remove the list", send: () => api.del(api.path`/acls/${row.topic}`) }), "The list is removed", refresh);
  }
}

export function tenants(view) {
  screen(view, "tenants", {
    noun: "tenants",
    load: () => listed(view, "/tenants", { tenant: "", namespace: "" }),
    filter: (row) => `${row.name} ${row.label}`,
    none: empty("No tenants are registered", "Everything is in the tenant “default”."),
    actions: (refresh) => [button("Register a tenant", () => add(refresh), { kind: "primary", icon: "plus" })],
    columns: (refresh) => [
      { title: "Tenant", value: (row) => row.name, cell: (row) => h("a", { href: link("/topics", { tenant: row.name, namespace: "" }) }, row.name) },
      { title: "Label", cell: (row) => row.label },
      { title: "Topics", end: true, value: (row) => row.topics, cell: (row) => count(row.topics) },
      { title: "Created", value: (row) => row.created, cell: (row) => h("span.muted", time(row.created).slice(0, 16)) },
      { title: "", end: true, cell: (row) => button("Delete", () => remove(row, refresh), { kind: "small" }) },
    ],
  });

  function add(refresh) {
    const name = h("input", { required: true, autofocus: true });
    const label = h("input");
    return done(dialog({ title: "Register a tenant", action: "Register the tenant", body: [field("Name", name), field("Label", label)], send: () => api.put(api.path`/tenants/${name.value}`, label.value ? { label: label.value } : {}, { query: { tenant: "", namespace: "" } }) }), "The tenant is registered", refresh);
  }

  function remove(row, refresh) {
    const typed = h("input", { required: true, pattern: row.name.replaceAll(/[.*+?^${}()|[\]\\]/g, "\\$&"), autocomplete: "off", autofocus: true });
    return done(dialog({ title: `Delete all of ${row.name}?`, danger: true, action: "Delete the tenant", body: [h("p", `All that the tenant ${row.name} has is deleted for good: ${count(row.topics)} topics with their records and tables, users, keys, schemas, groups and caches.`), field(`To go on, write ${row.name}`, typed)], send: () => api.del(api.path`/tenants/${row.name}`, { query: { tenant: "", namespace: "" } }) }), `${row.name} is deleted`, refresh);
  }
}
