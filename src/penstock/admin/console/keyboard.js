// Keys: `g` and a letter go to a screen, `/` to the filter, `?` shows all of them, Escape closes.

import { h } from "./dom.js";
import { show } from "./widgets.js";

let items = [];

export function shortcuts({ menu, go }) {
  items = menu.flatMap(([, entries]) => entries);
  let waiting = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest?.("input, textarea, select, dialog")) return;
    if (waiting) {
      waiting = false;
      const found = items.find(([, , , letter]) => letter === event.key);
      if (found) {
        event.preventDefault();
        go(found[0]);
      } else if (event.key === "/") {
        event.preventDefault();
        document.querySelector(".jump input")?.focus();
      }
      return;
    }
    if (event.key === "g") {
      waiting = true;
      setTimeout(() => (waiting = false), 1500);
    } else if (event.key === "/") {
      event.preventDefault();
      document.querySelector("[data-hotkey='/']")?.focus();
    } else if (event.key === "?") {
      showHelp();
    }
  });
}

export function showHelp() {
  const row = (keys, text) => h("div", h("dt", keys.map((key) => h("kbd", key))), h("dd", text));
  return show(
    "Keyboard shortcuts",
    h(
      "dl.pairs",
      items.map(([, text, , letter]) => letter && row(["g", letter], text)),
      row(["g", "/"], "Go to a topic"),
      row(["/"], "Filter or search"),
      row(["j", "k", "↑", "↓"], "Move in a list of messages"),
      row(["Enter"], "Open a message"),
      row(["Esc"], "Close"),
      row(["?"], "This list"),
    ),
  );
}
