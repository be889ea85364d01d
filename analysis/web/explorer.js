// The matrix of problems, and the sample explorer: the programs of two groups for a problem. Programs
// of one normal form differ only in names, comments and layout, and are shown once.

const ROWS_AT_FIRST = 200; // of the matrix; more on request
const FORMS_AT_FIRST = 3;
const MOST_DIFFED = 1500; // lines or words of a side; beyond that everything counts as changed

function matrixKinds(data) {
  const columns = data.columns.map((_, i) => i);
  const [trained, bases] = [columns.filter((i) => !data.bases[i]), columns.filter((i) => data.bases[i])];
  const solvers = (p, among) => among.filter((i) => data.accepted[i][p] > 0).length;
  return [
    ["all problems", () => true],
    ["solved by one group only", (p) => solvers(p, trained) === 1],
    ["solved by no group", (p) => solvers(p, trained) === 0],
    ["solved by every group", (p) => solvers(p, trained) === trained.length],
    ["lost: the base solved it, a group does not", (p) => solvers(p, bases) > 0 && solvers(p, trained) < trained.length],
    ["won: the base did not solve it, a group does", (p) => solvers(p, bases) === 0 && solvers(p, trained) > 0],
  ];
}

// The problem × group matrix: the share of accepted programs. `linked`: names lead to programs.
function matrix(section, box, data, linked) {
  const kinds = matrixKinds(data), tiers = data.difficulty.some(Boolean);
  const share = (i, p) => (data.judged[i][p] ? data.accepted[i][p] / data.judged[i][p] : -1);
  const orders = [(p) => p, ...(tiers ? [(p) => data.difficulty[p]] : []), ...data.columns.map((_, i) => (p) => share(i, p))];
  const state = { kind: 0, words: "", order: 0, descending: false, all: false };
  const body = make("tbody"), said = make("span", { class: "soft", role: "status" });
  const more = make("button", { type: "button", class: "button" });
  const head = ["problem", ...(tiers ? ["difficulty"] : []), ...data.columns].map((name, place) => {
    const button = make("button", { type: "button" }, ...breakable(name));
    button.onclick = () => {
      state.descending = state.order === place ? !state.descending : place > 0;
      state.order = place;
      show();
    };
    return make("th", { scope: "col" }, button);
  });

  function row(p) {
    const parts = breakable(data.problems[p]);
    const name = linked ? [make("a", { href: addressOf(section, data.problems[p]) }, ...parts)] : parts;
    const cells = data.columns.map((_, i) => {
      const [c, n] = [data.accepted[i][p], data.judged[i][p]];
      const cell = make("td", { title: `${c.toLocaleString("en")} of ${count(n, "program")} accepted` }, n ? `${Math.round((100 * c) / n)} %` : "–");
      if (c) cell.style.backgroundColor = `rgba(var(--heat), ${(0.08 + (0.5 * c) / n).toFixed(2)})`;
      return cell;
    });
    return make("tr", {}, make("th", { scope: "row" }, ...name), ...(tiers ? [make("td", {}, readable(data.difficulty[p]))] : []), ...cells);
  }

  function show() {
    const words = state.words.toLowerCase().split(/\s+/), key = orders[state.order];
    const found = data.problems.map((_, p) => p).filter((p) => {
      const text = `${data.problems[p]} ${data.difficulty[p]}`.toLowerCase();
      return kinds[state.kind][1](p) && words.every((word) => text.includes(word));
    });
    found.sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (state.descending ? -1 : 1) || a - b);
    head.forEach((cell, i) => cell.setAttribute("aria-sort", i !== state.order ? "none" : state.descending ? "descending" : "ascending"));
    const shown = state.all ? found : found.slice(0, ROWS_AT_FIRST);
    body.replaceChildren(...shown.map(row));
    said.textContent = `${count(found.length, "problem")} of ${data.problems.length.toLocaleString("en")}`;
    more.textContent = `Show ${(found.length - shown.length).toLocaleString("en")} more`;
    more.classList.toggle("hidden", shown.length === found.length);
  }

  const select = make("select", { onchange: () => { state.kind = Number(select.value); show(); } }, ...kinds.map(([name], i) => make("option", { value: i }, name)));
  const field = make("input", { type: "search", placeholder: "name or difficulty", oninput: () => { state.words = field.value; show(); } });
  more.onclick = () => { state.all = true; show(); };
  box.replaceChildren(
    make("div", { class: "tools" }, make("label", {}, "Show", select), make("label", {}, "Filter", field), said),
    make("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Problems by group" },
      make("table", { class: "matrix" }, make("caption", {}, "Share of each group’s programs that are accepted, seeds pooled."), make("thead", {}, make("tr", {}, ...head)), body)),
    more,
  );
  show();
}

// Addresses of problems: #problem=NAME, with experiment=SLUG where the page has several.
const explorers = new Map(); // section id → a function that opens a problem there

function addressOf(section, problem) {
  const parts = new URLSearchParams(explorers.size > 1 ? { experiment: section.id } : {});
  parts.append("problem", problem);
  return `#${parts}`;
}

function openAddress() {
  const address = new URLSearchParams(location.hash.slice(1));
  if (!address.has("problem")) return document.getElementById(decodeURIComponent(location.hash.slice(1)))?.scrollIntoView();
  for (const [id, open] of explorers) if ([null, id].includes(address.get("experiment")) && open(address.get("problem"))) return;
}

// Pairs [i, j] of equal items of a longest common subsequence, in order.
function common(a, b) {
  let start = 0, end = 0;
  while (start < Math.min(a.length, b.length) && a[start] === b[start]) start++;
  while (end < Math.min(a.length, b.length) - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const rows = a.length - end - start, columns = b.length - end - start;
  const pairs = Array.from({ length: start }, (_, i) => [i, i]);
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
  for (let i = end; i > 0; i--) pairs.push([a.length - i, b.length - i]);
  return pairs;
}

// Two <pre> of the same number of lines; lines without a partner are marked.
function sideBySide(left, right) {
  const [a, b] = [left.split("\n"), right.split("\n")];
  const panes = [make("pre", { tabindex: "0" }), make("pre", { tabindex: "0" })];
  const line = (pane, text, kind) => panes[pane].append(make("span", { class: `row ${text === null ? "" : kind}` }, text === null ? "" : readable(text), "\n"));
  let i = 0, j = 0;
  for (const [nextI, nextJ] of [...common(a, b), [a.length, b.length]]) {
    while (i < nextI || j < nextJ) {
      line(0, i < nextI ? a[i++] : null, "gone");
      line(1, j < nextJ ? b[j++] : null, "come");
    }
    if (i < a.length) { line(0, a[i++], ""); line(1, b[j++], ""); }
  }
  return panes;
}

// A long line is wrapped: its partner becomes as high.
function align(panes) {
  const rows = panes.map((pane) => [...pane.children]);
  const heights = rows[0].map((row, i) => Math.max(row.offsetHeight, rows[1][i].offsetHeight));
  for (const side of rows) side.forEach((row, i) => { row.style.minHeight = `${heights[i]}px`; });
}

// Build the explorer; returns a function that opens a problem, false where it has no such problem.
function explorer(section, box, data, columns, bases) {
  const trained = columns.map((_, i) => i).filter((i) => !bases[i]), every = columns.map((_, i) => i);
  const chosen = (trained.length > 1 ? trained : every).slice(0, 2); // the group of each column
  const names = make("select", { "aria-label": "Problem" });
  const words = make("input", { type: "search", size: "22", placeholder: "e.g. sorted(", "aria-label": "Search in the programs" });
  const wanted = make("select", { "aria-label": "Verdict" }, make("option", { value: "-1" }, "any verdict"), ...data.verdicts.map((name, i) => make("option", { value: i }, inWords(name))));
  const said = make("span", { class: "soft", role: "status" });
  const prompt = make("pre", { class: "prompt", tabindex: "0" });
  const grid = make("div", { class: "columns" }), compare = make("div", { class: "compare" });
  const sides = [null, null]; // the programs side by side, with their titles
  const accepted = data.verdicts[0] === "ACCEPTED";
  const total = (counts) => counts.reduce((sum, number) => sum + number, 0);
  const verdict = (name, text) => make("span", { class: name === "ACCEPTED" ? "verdict accepted" : "verdict" }, text);
  const verdicts = (counts) => data.verdicts.map((name, i) => [name, counts[i]]).filter(([, n]) => n).map(([name, n]) => verdict(name, `${n.toLocaleString("en")} × ${inWords(name)}`));

  // Rows of a problem and a column that the search and the verdict let through.
  let found = null; // places of the programs with the searched words; null: all
  const fits = ([number, place, ...counts]) => (found === null || (number && found.has(place))) && (wanted.value < 0 || counts[wanted.value] > 0);
  const rowsOf = (problem, i) => (problem.cells[i] || []).filter(fits);

  function filter() {
    const text = words.value.toLowerCase(), texts = (place) => [data.programs[place], ...(data.conversations?.[place] ?? []).map(([program]) => program)];
    found = text ? new Set(data.programs.map((_, place) => place).filter((place) => texts(place).some((one) => one.toLowerCase().includes(text)))) : null;
    const open = names.value, left = data.problems.map((problem, i) => [problem, i]).filter(([problem]) => (found === null && wanted.value < 0) || chosen.some((i) => rowsOf(problem, i).length));
    names.replaceChildren(...left.map(([problem, i]) => make("option", { value: i }, readable(problem.name))));
    if (left.some(([, i]) => String(i) === open)) names.value = open;
    said.textContent = left.length === data.problems.length ? "" : `in ${left.length.toLocaleString("en")} of ${count(data.problems.length, "problem")}`;
    show();
  }

  function showSides() {
    if (sides[0] && sides[1]) {
      const panes = sideBySide(sides[0].program, sides[1].program);
      compare.replaceChildren(...sides.map((one, i) => make("div", {}, make("h5", {}, readable(`${"AB"[i]}: ${one.title}`)), panes[i])));
      align(panes);
    } else compare.replaceChildren(make("p", { class: "soft" }, "Press A on one program and B on another to see them side by side."));
  }

  const pickers = (program, title) => ["A", "B"].map((letter, i) => make("button", { type: "button", class: "button", onclick: () => { sides[i] = { program, title }; showSides(); } }, letter));

  function answer([program, open, hidden, observation], place, title) {
    const head = make("header", {}, make("strong", {}, place), verdict(open, `public: ${inWords(open)}`), verdict(hidden, `hidden: ${inWords(hidden)}`), ...pickers(program, `${title}, ${place}`));
    const parts = [head, make("pre", { tabindex: "0" }, readable(program || "no program in the response"))];
    if (observation) parts.push(make("p", { class: "soft" }, "What the model read then:"), make("pre", { class: "observation", tabindex: "0" }, readable(observation)));
    return make("li", {}, ...parts);
  }

  function form([number, place, ...counts], label) {
    if (!number) return make("p", { class: "soft" }, `and ${count(place, "rarer program")}: `, ...verdicts(counts));
    const title = `${label}, program ${number}`, answers = data.conversations ? data.conversations[place] : [];
    const head = make("header", {}, make("strong", {}, `program ${number}`), ...verdicts(counts));
    const article = make("article", { class: "form" }, head);
    if (answers.length) article.append(make("ol", { class: "conversation" }, ...answers.map((one, i) => answer(one, `answer ${i + 1} of ${answers.length}`, title))));
    else {
      head.append(...pickers(data.programs[place], title));
      article.append(make("pre", { tabindex: "0" }, readable(data.programs[place] || "no program in the response")));
    }
    return article;
  }

  function column(i, problem) {
    const rows = problem.cells[i] || [], heading = make("h5", {}, ...breakable(columns[i]));
    const sum = rows.reduce((all, [, , ...counts]) => all + total(counts), 0);
    const right = accepted ? rows.reduce((all, row) => all + row[2], 0) : 0;
    const forms = rows.filter(fits).map((row) => form(row, columns[i]));
    const rest = forms.slice(FORMS_AT_FIRST);
    return make("div", { class: "column" }, heading, make("p", {}, `${right.toLocaleString("en")} of ${count(sum, "sample")} accepted`), ...forms.slice(0, FORMS_AT_FIRST),
      ...(rest.length ? [make("details", {}, make("summary", {}, `${rest.length} more`), ...rest)] : []));
  }

  function show() {
    const problem = data.problems[names.value];
    if (!problem) return grid.replaceChildren(make("p", { class: "soft" }, "No program of these two groups fits."));
    prompt.textContent = readable(problem.prompt || "The run folder has no prompt for it (problems.parquet).");
    grid.replaceChildren(...chosen.map((i) => column(i, problem)));
    chosen.forEach((i, side) => {
      const [row] = rowsOf(problem, i);
      sides[side] = row?.[0] ? { program: data.programs[row[1]], title: `${columns[i]}, program ${row[0]}` } : null;
    });
    showSides();
  }

  const groups = chosen.map((i, side) => {
    const select = make("select", { "aria-label": side ? "Right group" : "Left group" }, ...columns.map((label, j) => make("option", { value: j }, readable(label))));
    select.value = i;
    select.onchange = () => { chosen[side] = Number(select.value); filter(); };
    return make("label", {}, side ? "Right" : "Left", select);
  });
  const move = (by) => () => {
    if (!names.length) return;
    names.selectedIndex = (names.selectedIndex + by + names.length) % names.length;
    names.onchange();
  };
  names.onchange = () => { history.pushState(null, "", addressOf(section, data.problems[names.value].name)); show(); };
  words.oninput = wanted.onchange = filter;
  box.replaceChildren(
    make("div", { class: "tools" }, make("label", {}, "Problem", names), make("button", { type: "button", class: "button", onclick: move(-1) }, "← Previous"), make("button", { type: "button", class: "button", onclick: move(1) }, "Next →"),
      make("label", {}, "Search", words), make("label", {}, "With", wanted), said),
    make("div", { class: "tools" }, ...groups),
    make("details", { open: "" }, make("summary", {}, "Prompt"), prompt), grid, make("h4", {}, "Side by side"), compare,
  );
  filter();
  return (name) => {
    const place = data.problems.findIndex((problem) => problem.name === name);
    if (place < 0) return false;
    words.value = "";
    wanted.value = -1;
    filter();
    names.value = place;
    show();
    section.querySelector(".explorer-title").scrollIntoView();
    return true;
  };
}

async function start() {
  contents();
  document.querySelectorAll("table.sortable").forEach(sortable);
  document.querySelectorAll("[data-choice]").forEach(choosable);
  for (const section of document.querySelectorAll("main > section")) {
    keys(section);
    const packed = section.querySelector("script.packed");
    if (packed) {
      const data = await unpacked(packed);
      if (data.explorer) explorers.set(section.id, explorer(section, section.querySelector(".explorer"), data.explorer, data.matrix.columns, data.matrix.bases));
      matrix(section, section.querySelector(".matrix-box"), data.matrix, Boolean(data.explorer));
    }
    section.dataset.ready = "";
  }
  addEventListener("hashchange", openAddress);
  if (location.hash) openAddress();
}

start();
