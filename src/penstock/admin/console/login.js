// Logging in and out. The broker answers a login with a cookie that no script can read.

import * as api from "./api.js";
import { h, replace } from "./dom.js";
import { current } from "./router.js";
import { field } from "./widgets.js";

export function login(root, picture, then) {
  document.title = "Log in · Penstock";
  const problem = h("p.problem", { role: "alert" });
  const user = h("input", { name: "user", autocomplete: "username", required: true, autocapitalize: "none", spellcheck: "false" });
  const password = h("input", { name: "password", type: "password", autocomplete: "current-password" });
  const key = h("input", { name: "key", type: "password", autocomplete: "off" });
  const tenant = h("input", { name: "tenant", autocomplete: "organization", placeholder: "default", value: current().query.get("tenant") ?? "" });
  const fields = h("div.body");
  let byKey = false;
  const other = h("button.button.quiet", { type: "button", onclick: () => ((byKey = !byKey), draw()) });
  const submit = h("button.button.primary", { type: "submit" }, "Log in");

  function draw() {
    replace(fields, byKey ? field("API key or token", key) : [field("User", user), field("Password", password), field("Tenant", tenant)]);
    replace(other, byKey ? "Use a name and password" : "Use an API key or token");
    user.required = !byKey;
    key.required = byKey;
    (byKey ? key : user).focus();
  }

  async function send(event) {
    event.preventDefault();
    replace(problem);
    submit.disabled = true;
    try {
      const body = byKey ? { key: key.value } : { user: user.value, password: password.value };
      await api.post("/session", body, { quiet: true, query: { tenant: byKey ? "" : tenant.value.trim(), namespace: "" } });
      password.value = key.value = "";
      then();
    } catch (error) {
      replace(problem, error.message);
      submit.disabled = false;
      (byKey ? key : password).focus();
    }
  }

  replace(root, h("main.login", h("form", { onsubmit: send }, h("img", { src: picture, alt: "" }), h("h1", "Log in to Penstock"), fields, problem, submit, other)));
  draw();
}

export async function logout(then) {
  try {
    await api.del("/session", { quiet: true });
  } catch {
    // the session was over already
  }
  then();
}
