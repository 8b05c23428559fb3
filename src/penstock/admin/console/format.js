// Numbers, sizes and times as people read them. Times are in the viewer's own zone, to the millisecond.

export function count(value) {
  if (value === null || value === undefined) return "–";
  return Math.round(value).toLocaleString("en-US");
}

/** 12.3k, 4.5M: for tiles and axes. */
export function short(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${trim(value / 1e9)}G`;
  if (size >= 1e6) return `${trim(value / 1e6)}M`;
  if (size >= 1e4) return `${trim(value / 1e3)}k`;
  if (size >= 100 || Number.isInteger(value)) return String(Math.round(value));
  if (size < 0.005) return "0";
  return trim(value);
}

function trim(value) {
  return String(Number(value.toPrecision(3)));
}

export function bytes(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (Math.abs(value) >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit ? trim(value) : Math.round(value)} ${units[unit]}`;
}

/** Seconds as 830 µs, 1.2 ms, 3 s, 4 min, 2 h. */
export function seconds(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  if (value < 1e-3) return `${trim(value * 1e6)} µs`;
  if (value < 1) return `${trim(value * 1e3)} ms`;
  if (value < 120) return `${trim(value)} s`;
  if (value < 7200) return `${Math.round(value / 60)} min`;
  if (value < 172800) return `${trim(value / 3600)} h`;
  return `${Math.round(value / 86400)} days`;
}

const two = (value) => String(value).padStart(2, "0");

/** µs since 1970 as 2026-11-17 09:12:33.123, where the viewer is. */
export function time(micros) {
  if (!micros) return "–";
  const date = new Date(Math.floor(micros / 1000));
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(date)}`;
}

export function clock(date) {
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/** The same moment in UTC, to the microsecond: what a tooltip adds. */
export function utc(micros) {
  if (!micros) return "";
  return new Date(Math.floor(micros / 1000)).toISOString().replace(/\.(\d{3})Z$/, `.$1${String(micros % 1000).padStart(3, "0")}Z`);
}

export const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;

export function ago(micros, now = Date.now() * 1000) {
  if (!micros) return "–";
  const distance = (now - micros) / 1e6;
  return distance < 0 ? `in ${seconds(-distance)}` : distance < 1 ? "just now" : `${seconds(Math.round(distance))} ago`;
}

/** For <input type="datetime-local">, and back. */
export function localInput(micros) {
  return time(micros).replace(" ", "T");
}

export function fromLocalInput(text) {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? null : date.getTime() * 1000;
}

export function plural(number, noun, more = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : more}`;
}
