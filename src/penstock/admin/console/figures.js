// The broker's figures (`/metrics`), and what follows from two readings of them: rates, and latencies of histograms.

import * as api from "./api.js";

export class Figures {
  constructor(samples, at) {
    this.at = at;
    this.byName = new Map();
    for (const { name, labels, value } of samples) {
      if (!this.byName.has(name)) this.byName.set(name, []);
      this.byName.get(name).push({ labels, value: value ?? Infinity });
    }
  }

  static async read(options) {
    const samples = await api.all("/metrics", { prefix: "penstock_" }, { most: 5000, ...options });
    return new Figures(samples, Date.now());
  }

  /** The sum over all labels that fit. */
  sum(name, labels = {}) {
    let total = 0;
    for (const each of this.byName.get(`penstock_${name}`) ?? []) if (fits(each.labels, labels)) total += each.value;
    return total;
  }

  labels(name, label) {
    return [...new Set((this.byName.get(`penstock_${name}`) ?? []).map((each) => each.labels[label]))];
  }

  buckets(name) {
    const found = new Map();
    for (const { labels, value } of this.byName.get(`penstock_${name}_bucket`) ?? []) {
      const bound = labels.le === "+Inf" ? Infinity : Number(labels.le);
      found.set(bound, (found.get(bound) ?? 0) + value);
    }
    return found;
  }
}

function fits(labels, wanted) {
  return Object.entries(wanted).every(([name, value]) => labels[name] === value);
}

/** By how much a figure grew in a second between two readings. */
export function rate(before, after, name, labels) {
  if (!before) return null;
  const span = (after.at - before.at) / 1000;
  return span > 0 ? Math.max(0, after.sum(name, labels) - before.sum(name, labels)) / span : null;
}

/** The time within which this share of requests between two readings was answered; null: there were none. */
export function quantile(before, after, name, share) {
  if (!before) return null;
  const earlier = before.buckets(name);
  const bounds = [...after.buckets(name)].sort(([a], [b]) => a - b).map(([bound, value]) => [bound, value - (earlier.get(bound) ?? 0)]);
  const total = bounds.length ? bounds[bounds.length - 1][1] : 0;
  if (total <= 0) return null;
  let low = 0;
  let below = 0;
  for (const [bound, value] of bounds) {
    if (value >= total * share) {
      if (bound === Infinity) return low;
      return low + (bound - low) * ((total * share - below) / Math.max(1e-9, value - below));
    }
    [low, below] = [bound, value];
  }
  return low;
}
