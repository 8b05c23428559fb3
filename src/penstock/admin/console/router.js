// The address: `#/topics/orders/messages?text=failed`. Each view's state is in it, so that a link shows the same again.

const routes = [];

/** A path such as "/topics/:topic", and the screen that it shows: a function of the view. */
export function route(path, screen, options = {}) {
  routes.push({ parts: path.split("/").slice(1), screen, options, path });
}

export function current() {
  const [path, query = ""] = location.hash.replace(/^#/, "").split(/\?(.*)/s);
  return { path: path || "/", query: new URLSearchParams(query) };
}

export function match(path) {
  const parts = path.split("/").slice(1);
  for (const each of routes) {
    if (each.parts.length !== parts.length) continue;
    const names = {};
    const fits = each.parts.every((part, at) => {
      if (!part.startsWith(":")) return part === parts[at];
      try {
        names[part.slice(1)] = decodeURIComponent(parts[at]);
      } catch {
        return false;
      }
      return parts[at] !== "";
    });
    if (fits) return { ...each, names };
  }
  return null;
}

/** The tenant and namespace that the viewer looks at: in every address, unless they are the usual ones. */
export function scope() {
  const { query } = current();
  return { tenant: query.get("tenant") ?? "", namespace: query.get("namespace") ?? "" };
}

/** An address of the console: link("/topics", name, "messages", {text: "x"}). Names are encoded; the scope goes along. */
export function link(path, ...rest) {
  const query = rest.length && typeof rest[rest.length - 1] === "object" ? rest.pop() : {};
  const parts = rest.map((part) => `/${encodeURIComponent(part)}`).join("");
  const { tenant, namespace } = scope();
  return `#${path}${parts}${search({ tenant, namespace, ...query })}`;
}

export function search(values) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(values)) {
    for (const each of [value].flat()) if (each !== "" && each !== null && each !== undefined && each !== false) query.append(key, each === true ? "1" : each);
  }
  const text = query.toString();
  return text ? `?${text}` : "";
}

export function go(address, { replace = false } = {}) {
  if (replace) history.replaceState(null, "", address);
  else location.hash = address;
}
