// The problem × group matrix: the share of accepted programs, sorted and filtered.

const ROWS_AT_FIRST = 200; // more on request
const SLIM_FROM = 6; // with more groups, their names are vertical

function matrixKinds(data) {
  const trained = data.columns.map((_, i) => i).filter((i) => !data.bases[i]);
  const bases = data.columns.map((_, i) => i).filter((i) => data.bases[i]);
  const solvers = (p, columns) => columns.filter((i) => data.accepted[i][p] > 0).length;
  const kinds = [
    ["all problems", () => true],
    ["solved by no group", (p) => solvers(p, trained) === 0],
    ["solved by every group", (p) => solvers(p, trained) === trained.length],
  ];
  if (trained.length > 1) kinds.splice(1, 0, ["solved by one group only", (p) => solvers(p, trained) === 1]);
  if (bases.length) {
    kinds.push(["lost: the base solved it, a group does not", (p) => solvers(p, bases) > 0 && solvers(p, trained) < trained.length]);
    kinds.push(["won: the base did not solve it, a group does", (p) => solvers(p, bases) === 0 && solvers(p, trained) > 0]);
  }
  return kinds;
}

// `linked`: the names of problems lead to their programs.
function matrix(section, box, data, linked) {
  const kinds = matrixKinds(data);
  const state = { kind: 0, words: [], key: (p) => p, descending: false, all: false };
  const said = make("span", { class: "soft", role: "status" });
  const select = make("select", {}, ...kinds.map(([name], i) => make("option", { value: i }, name)));
  const field = make("input", { type: "search", size: "16", placeholder: "name or difficulty" });
  const body = make("tbody");
  const more = make("button", { type: "button", class: "button" });
  const tiers = data.difficulty.some(Boolean);
  const headings = ["problem", ...(tiers ? ["difficulty"] : []), ...data.columns];
  const share = (i, p) => (data.judged[i][p] ? data.accepted[i][p] / data.judged[i][p] : -1);
  const orders = [(p) => p, ...(tiers ? [(p) => data.difficulty[p]] : []), ...data.columns.map((_, i) => (p) => share(i, p))];
  const head = headings.map((name, place) => {
    const button = make("button", { type: "button" }, make("span", {}, ...breakable(name)));
    const cell = make("th", { scope: "col", "aria-sort": "none" }, button);
    button.onclick = () => {
      state.descending = state.key === orders[place] ? !state.descending : place > orders.length - data.columns.length - 1;
      state.key = orders[place];
      head.forEach((other) => other.setAttribute("aria-sort", "none"));
      cell.setAttribute("aria-sort", state.descending ? "descending" : "ascending");
      show();
    };
    return cell;
  });
  state.key = orders[0];
  head[0].setAttribute("aria-sort", "ascending");

  function chosen() {
    const found = data.problems.map((_, p) => p).filter((p) => {
      const text = `${data.problems[p]} ${data.difficulty[p]}`.toLowerCase();
      return kinds[state.kind][1](p) && state.words.every((word) => text.includes(word));
    });
    const key = state.key;
    found.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      return (x < y ? -1 : x > y ? 1 : 0) * (state.descending ? -1 : 1) || a - b;
    });
    return found;
  }

  function row(p) {
    const parts = breakable(data.problems[p]);
    const name = linked ? [make("a", { href: addressOf(section, data.problems[p]), title: "show its programs" }, ...parts)] : parts;
    const cells = data.columns.map((_, i) => {
      const [c, n] = [data.accepted[i][p], data.judged[i][p]];
      const text = n ? percent(c, n) : "–";
      const cell = make("td", { title: `${c.toLocaleString("en")} of ${count(n, "program")} accepted` }, c && text === "0 %" ? "<1 %" : text);
      if (c) cell.style.backgroundColor = `rgba(var(--heat), ${(0.08 + (0.5 * c) / n).toFixed(2)})`;
      return cell;
    });
    return make("tr", {}, make("th", { scope: "row" }, ...name), ...(tiers ? [make("td", {}, ...readable(data.difficulty[p]))] : []), ...cells);
  }

  function show() {
    const found = chosen();
    const shown = state.all ? found : found.slice(0, ROWS_AT_FIRST);
    body.replaceChildren(...shown.map(row));
    said.textContent = `${count(found.length, "problem")} of ${data.problems.length.toLocaleString("en")}`;
    more.textContent = `Show ${(found.length - shown.length).toLocaleString("en")} more`;
    more.classList.toggle("hidden", shown.length === found.length);
  }

  select.onchange = () => { state.kind = Number(select.value); show(); };
  field.oninput = () => { state.words = field.value.toLowerCase().split(/\s+/).filter(Boolean); show(); };
  more.onclick = () => { state.all = true; show(); };
  const table = make("table", { class: data.columns.length > SLIM_FROM ? "matrix slim" : "matrix" }, make("caption", {}, "Share of each group’s programs that are accepted, seeds pooled."), make("thead", {}, make("tr", {}, ...head)), body);
  box.replaceChildren(
    make("div", { class: "tools" }, make("label", {}, "Show", select), make("label", {}, "Filter", field), said),
    make("div", { class: "scroll tall", tabindex: "0", role: "region", "aria-label": "Problems by group" }, table),
    more,
  );
  show();
}
