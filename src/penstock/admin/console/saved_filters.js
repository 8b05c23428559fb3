// Filters that somebody has given a name, kept in this browser. To share one, share the address.

const KEY = "penstock.filters";

export function savedFilters() {
  try {
    return JSON.parse(localStorage.getItem(KEY) ?? "[]");
  } catch {
    return [];
  }
}

export function saveFilter(name, topic, query) {
  store([...savedFilters().filter((each) => each.name !== name || each.topic !== topic), { name, topic, query }]);
}

export function removeFilter(name, topic) {
  store(savedFilters().filter((each) => each.name !== name || each.topic !== topic));
}

function store(filters) {
  try {
    localStorage.setItem(KEY, JSON.stringify(filters.slice(-200)));
  } catch {
    // private windows may have no storage
  }
}
