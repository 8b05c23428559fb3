// Elements, made by hand. Text goes in as text nodes only: nothing that a record holds is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element: h("a.link", {href, onclick}, "text", child, [more]). Null, undefined and false are left out. */
export function h(tag, props, ...children) {
  return fill(document.createElement(name(tag)), tag, props, children);
}

/** The same of SVG. */
export function s(tag, props, ...children) {
  return fill(document.createElementNS(SVG, name(tag)), tag, props, children);
}

function name(tag) {
  return tag.split(".", 1)[0];
}

function fill(element, tag, props, children) {
  const classes = tag.split(".").slice(1);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  if (props !== null && props !== undefined && (props instanceof Node || typeof props !== "object" || Array.isArray(props))) {
    children = [props, ...children];
    props = null;
  }
  for (const [key, value] of Object.entries(props ?? {})) set(element, key, value);
  append(element, children);
  return element;
}

function set(element, key, value) {
  if (value === null || value === undefined || (value === false && !key.startsWith("aria-"))) return;
  if (key.startsWith("aria-")) element.setAttribute(key, String(value));
  else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
  else if (key === "style") for (const [property, text] of Object.entries(value)) element.style.setProperty(property, text);
  else if (key === "class") element.setAttribute("class", [element.getAttribute("class"), value].filter(Boolean).join(" "));
  else if (key === "value" || key === "checked" || key === "selected" || key === "indeterminate") element[key] = value;
  else element.setAttribute(key, value === true ? "" : String(value));
}

export function append(parent, children) {
  for (const child of [children].flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === true) continue;
    parent.append(child instanceof Node ? child : String(child));
  }
  return parent;
}

/** Put these in the place of all children. */
export function replace(parent, ...children) {
  parent.replaceChildren();
  return append(parent, children);
}

/** Lines of an icon on 24 × 24. */
const ICONS = {
  overview: "M3 13h8V3H3zM13 21h8V11h-8zM3 21h8v-4H3zM13 3v4h8V3z",
  topics: "M4 6h16M4 12h16M4 18h10",
  messages: "M4 5h16v11H9l-5 4z",
  sql: "M5 6c0-4 14-4 14 0v12c0 4-14 4-14 0zM5 6c0 4 14 4 14 0M5 12c0 4 14 4 14 0",
  groups: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.500 20c0-4 3-6 6.500-6s6.500 2 6.500 6M16 4.500a3.500 3.500 0 0 1 0 6.500M18 14.500c2.300.8 3.500 2.700 3.500 5.500",
  queues: "M3 8h11v8H3zM17 8v8M21 8v8",
  dead: "M12 3 2 20h20zM12 10v4M12 17v.5",
  delayed: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3.500 2",
  transactions: "M4 8h14l-4-4M20 16H6l4 4",
  schemas: "M8 4H5v6l-2 2 2 2v6h3M16 4h3v6l2 2-2 2v6h-3",
  access: "M7 15a4 4 0 1 1 3.500-6H21v3h-2v3h-3v-3h-5.500A4 4 0 0 1 7 15z",
  audit: "M6 3h9l4 4v14H6zM9 12h7M9 16h7M9 8h3",
  cache: "M13 2 4 14h7l-1 8 9-12h-7z",
  connections: "M9 15l6-6M8 11l-3 3a3.500 3.500 0 0 0 5 5l3-3M16 13l3-3a3.500 3.500 0 0 0-5-5l-3 3",
  pipelines: "M4 5h5v5H4zM15 14h5v5h-5zM9 7.500h4a3 3 0 0 1 3 3V14",
  jobs: "M12 4v4M12 16v4M4 12h4M16 12h4M6.500 6.500l2.500 2.500M15 15l2.500 2.500M6.500 17.500 9 15M15 9l2.500-2.500",
  menu: "M4 6h16M4 12h16M4 18h16",
  close: "M6 6l12 12M18 6 6 18",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.500 1.500M17.500 17.500 19 19M5 19l1.500-1.500M17.500 6.500 19 5",
  moon: "M20 14.500A8.500 8.500 0 1 1 9.500 4a7 7 0 0 0 10.500 10.500z",
  search: "M10.500 17a6.500 6.500 0 1 0 0-13 6.500 6.500 0 0 0 0 13zM15.500 15.500 21 21",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  download: "M12 4v11M7 11l5 5 5-5M4 20h16",
  play: "M7 4l13 8-13 8z",
  stop: "M6 6h12v12H6z",
  plus: "M12 5v14M5 12h14",
  trash: "M4 7h16M9 7V4h6v3M6 7l1 14h10l1-14M10 11v6M14 11v6",
  link: "M9 15l6-6M8 11l-3 3a3.500 3.500 0 0 0 5 5l3-3M16 13l3-3a3.500 3.500 0 0 0-5-5l-3 3",
  replay: "M4 12a8 8 0 1 0 3-6.200M4 4v5h5",
  refresh: "M20 11a8 8 0 1 0-2 6.500M20 5v6h-6",
  check: "M5 12.500 10 17 19 7",
  warn: "M12 3 2 20h20zM12 10v4M12 17v.5",
  star: "M12 3.500l2.600 5.600 6 .7-4.500 4.100 1.200 6-5.300-3-5.300 3 1.200-6L3.400 9.800l6-.7z",
  edit: "M4 20h4L20 8l-4-4L4 16zM14 6l4 4",
  logout: "M10 4H5v16h5M14 8l4 4-4 4M18 12H9",
};

export function icon(kind, label) {
  const props = { viewBox: "0 0 24 24", class: "icon" };
  return s("svg", label ? { ...props, role: "img", "aria-label": label } : { ...props, "aria-hidden": "true" }, s("path", { d: ICONS[kind] }));
}
