// What changed between two texts, line by line: the longest common sequence stays.

const MOST = 2000; // lines of each; beyond that all old ones go and all new ones come

/** [kind, line] with kind "same", "removed" or "added". */
export function diffLines(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  if (a.length > MOST || b.length > MOST) return [...a.map((line) => ["removed", line]), ...b.map((line) => ["added", line])];
  const common = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) for (let j = b.length - 1; j >= 0; j -= 1) common[i][j] = a[i] === b[j] ? common[i + 1][j + 1] + 1 : Math.max(common[i + 1][j], common[i][j + 1]);
  const found = [];
  let [i, j] = [0, 0];
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      found.push(["same", a[i]]);
      i += 1;
      j += 1;
    } else if (j < b.length && (i === a.length || common[i][j + 1] > common[i + 1][j])) found.push(["added", b[j++]]);
    else found.push(["removed", a[i++]]);
  }
  return found;
}
