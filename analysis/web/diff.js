// The difference of two programs: lines by longest common subsequence, then words within changed lines.

const MOST_DIFFED = 1500; // lines or words of a side; beyond that everything counts as changed

// Pairs [i, j] of equal items, in order.
function common(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let endA = a.length, endB = b.length;
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) { endA--; endB--; }
  const rows = endA - start, columns = endB - start;
  const pairs = [];
  for (let i = 0; i < start; i++) pairs.push([i, i]);
  if (rows <= MOST_DIFFED && columns <= MOST_DIFFED) {
    const best = Array.from({ length: rows + 1 }, () => new Uint16Array(columns + 1));
    for (let i = rows - 1; i >= 0; i--)
      for (let j = columns - 1; j >= 0; j--)
        best[i][j] = a[start + i] === b[start + j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
    for (let i = 0, j = 0; i < rows && j < columns; ) {
      if (a[start + i] === b[start + j]) pairs.push([start + i++, start + j++]);
      else if (best[i + 1][j] >= best[i][j + 1]) i++;
      else j++;
    }
  }
  for (let i = 0; endA + i < a.length; i++) pairs.push([endA + i, endB + i]);
  return pairs;
}

// Rows {left, right}, each a line or null; both are lines if they are equal or correspond.
function aligned(a, b) {
  const rows = [];
  let i = 0, j = 0;
  for (const [nextI, nextJ] of [...common(a, b), [a.length, b.length]]) {
    while (i < nextI || j < nextJ)
      rows.push({ left: i < nextI ? a[i++] : null, right: j < nextJ ? b[j++] : null, same: false });
    if (i < a.length) rows.push({ left: a[i++], right: b[j++], same: true });
  }
  return rows;
}

const words = (line) => line.match(/\s+|\w+|[^\s\w]/gu) || [];

// The line as nodes; words missing from the other line are in <del> or <ins>.
function marked(line, other, name) {
  const mine = words(line);
  const theirs = words(other);
  const equal = new Set(common(mine, theirs).map(([i]) => i));
  // Lines with little in common get no marks, which would cover nearly all of them.
  const sharedLength = mine.filter((word, i) => equal.has(i)).join("").trim().length;
  if (sharedLength < 0.4 * Math.max(line.trim().length, other.trim().length)) return readable(line);
  const nodes = [];
  for (let i = 0; i < mine.length; ) {
    let end = i;
    while (end < mine.length && equal.has(end) === equal.has(i)) end++;
    const part = readable(mine.slice(i, end).join(""));
    nodes.push(...(equal.has(i) ? part : [make(name, {}, ...part)]));
    i = end;
  }
  return nodes;
}

// Two <pre> of the same number of lines.
function sideBySide(left, right) {
  const panes = [make("pre", { tabindex: "0" }), make("pre", { tabindex: "0" })];
  for (const row of aligned(left.split("\n"), right.split("\n"))) {
    const sides = [[row.left, row.right, "del", "−", "gone"], [row.right, row.left, "ins", "+", "come"]];
    sides.forEach(([own, other, name, sign, kind], side) => {
      const changed = !row.same && own !== null;
      const inside = own === null ? [] : row.same ? readable(own) : other === null ? readable(own) : marked(own, other, name);
      panes[side].append(make("span", { class: changed ? `row ${kind}` : "row", "data-sign": changed ? sign : " " }, ...inside, "\n"));
    });
  }
  return panes;
}
