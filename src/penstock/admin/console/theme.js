// Light or dark: as the system says, until somebody chooses here.

const KEY = "penstock.theme";
const system = matchMedia("(prefers-color-scheme: dark)");

function chosen() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export function applyTheme() {
  document.documentElement.dataset.theme = chosen() ?? (system.matches ? "dark" : "light");
}

export function toggleTheme() {
  const next = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // private windows may have no storage
  }
  document.documentElement.dataset.theme = next;
}

system.addEventListener("change", applyTheme);
