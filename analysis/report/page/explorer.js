// The sample explorer: a problem, its prompt, and each group's programs by normal form.

const FORMS_AT_FIRST = 3;

// The problem shown first: the one on which the trained groups differ most.
function mostContested(data, columns, bases) {
  let best = 0, most = -1;
  const last = data.steps[data.steps.length - 1];
  data.problems.forEach((problem, place) => {
    const shares = [];
    columns.forEach((_, i) => {
      const rows = bases[i] ? null : problem.cells[`${i}:${last}`];
      if (!rows) return;
      const all = rows.reduce((sum, [, , ...counts]) => sum + counts.reduce((a, b) => a + b, 0), 0);
      shares.push(data.verdicts[0] === "ACCEPTED" && all ? rows.reduce((sum, row) => sum + row[2], 0) / all : 0);
    });
    const spread = shares.length ? Math.max(...shares) - Math.min(...shares) : 0;
    if (spread > most) [best, most] = [place, spread];
  });
  return best;
}

function explorer(box, data, columns, bases) {
  const at = new Map(data.problems.map((problem, i) => [problem.name, i]));
  const state = { problem: 0, step: data.steps[data.steps.length - 1], sides: [null, null] };
  const names = make("select", { "aria-label": "Problem" }, ...data.problems.map((problem, i) => make("option", { value: i }, ...readable(problem.name).map((node) => node.textContent ?? node))));
  const trained = data.steps.filter((step) => step > 0);
  const steps = make("select", {}, ...trained.map((step) => make("option", { value: step }, `after step ${step.toLocaleString("en")}`)));
  if (trained.length) steps.value = state.step;
  const prompt = make("pre", { class: "prompt", tabindex: "0" });
  const asked = make("details", { open: "" }, make("summary", {}, "Prompt"), prompt);
  const grid = make("div", { class: "columns" });
  const compare = make("section", { "aria-label": "Two programs side by side" });

  function verdicts(counts) {
    return data.verdicts
      .map((name, i) => [name, counts[i]])
      .filter(([, number]) => number)
      .map(([name, number]) => make("span", { class: name === "ACCEPTED" ? "verdict accepted" : "verdict" }, `${number.toLocaleString("en")} × ${name.toLowerCase().replaceAll("_", " ")}`));
  }

  const total = (counts) => counts.reduce((sum, number) => sum + number, 0);

  function picker(side, form, program, label, step) {
    const pressed = state.sides[side] && state.sides[side].key === `${label}:${step}:${form}`;
    const letter = "AB"[side];
    return make("button", {
      type: "button", class: "button", "aria-pressed": String(Boolean(pressed)), "data-side": letter,
      title: `show on the ${side ? "right" : "left"}`,
      onclick: () => {
        state.sides[side] = { key: `${label}:${step}:${form}`, program, label, form };
        for (const other of grid.querySelectorAll(`[data-side=${letter}]`)) other.setAttribute("aria-pressed", "false");
        for (const other of grid.querySelectorAll(`[data-side=${letter}]`)) if (other.dataset.key === state.sides[side].key) other.setAttribute("aria-pressed", "true");
        showSides();
      },
      "data-key": `${label}:${step}:${form}`,
    }, letter);
  }

  function form([number, place, ...counts], label, step) {
    if (!number) return make("p", { class: "soft" }, `and ${count(place, "rarer form")}, ${count(total(counts), "program")}: `, ...verdicts(counts));
    const program = data.programs[place];
    const head = make("header", {}, make("strong", {}, `form ${number}`), ...verdicts(counts), make("span", { class: "spacer" }), picker(0, number, program, label, step), picker(1, number, program, label, step));
    const text = program ? readable(program) : [make("em", {}, "no program in the response")];
    return make("article", { class: "form", "aria-label": `form ${number}` }, head, make("pre", { tabindex: "0" }, ...text));
  }

  function column(i, problem) {
    const step = bases[i] ? 0 : state.step;
    const rows = problem.cells[`${i}:${step}`];
    const inside = [make("h5", {}, ...readable(columns[i]))];
    if (!rows) return make("div", { class: "column" }, ...inside, make("p", {}, "No evaluation at this step."));
    const sum = rows.reduce((all, [, , ...counts]) => all + total(counts), 0);
    const accepted = data.verdicts[0] === "ACCEPTED" ? rows.reduce((all, row) => all + row[2], 0) : 0;
    const different = rows.reduce((all, [number, place]) => all + (number ? 1 : place), 0);
    inside.push(make("p", {}, `${accepted.toLocaleString("en")} of ${count(sum, "program")} accepted, ${count(different, "different form")}`));
    const forms = rows.map((row) => form(row, columns[i], step));
    inside.push(...forms.slice(0, FORMS_AT_FIRST));
    const rest = forms.slice(FORMS_AT_FIRST);
    if (rest.length) inside.push(make("details", {}, make("summary", {}, `${rest.length.toLocaleString("en")} more`), ...rest));
    return make("div", { class: "column" }, ...inside);
  }

  function showSides() {
    const [left, right] = state.sides;
    if (!left || !right) {
      compare.replaceChildren(make("p", { class: "soft" }, "Press A on one program and B on another to see them side by side."));
      return;
    }
    const panes = sideBySide(left.program, right.program);
    const titled = (one, letter, pane) => make("div", {}, make("h5", {}, `${letter}: `, ...readable(one.label), `, form ${one.form}`), pane);
    const same = left.program === right.program ? [make("p", { role: "status" }, "The two programs are identical.")] : [];
    compare.replaceChildren(...same, make("div", { class: "compare" }, titled(left, "A", panes[0]), titled(right, "B", panes[1])));
  }

  // Shown first: the most frequent forms of the first two groups that differ.
  function firstSides(problem) {
    const found = [];
    columns.forEach((label, i) => {
      const step = bases[i] ? 0 : state.step;
      const row = (problem.cells[`${i}:${step}`] || [])[0];
      if (row && row[0] && !bases[i] && !found.some((one) => one.form === row[0]))
        found.push({ key: `${label}:${step}:${row[0]}`, program: data.programs[row[1]], label, form: row[0] });
    });
    state.sides = [found[0] || null, found[1] || null];
  }

  function show() {
    const problem = data.problems[state.problem];
    names.value = state.problem;
    prompt.replaceChildren(...readable(problem.prompt || "The run folder has no prompt for it (problems.parquet)."));
    firstSides(problem);
    grid.replaceChildren(...columns.map((_, i) => column(i, problem)));
    showSides();
  }

  const move = (by) => () => { state.problem = (state.problem + by + data.problems.length) % data.problems.length; show(); };
  names.onchange = () => { state.problem = Number(names.value); show(); };
  steps.onchange = () => { state.step = Number(steps.value); show(); };
  const tools = make("div", { class: "tools" }, make("label", {}, "Problem", names),
    make("button", { type: "button", class: "button", onclick: move(-1) }, "← Previous"),
    make("button", { type: "button", class: "button", onclick: move(1) }, "Next →"));
  if (trained.length > 1) tools.append(make("label", {}, "Trained groups", steps));
  box.replaceChildren(tools, asked, grid, make("h4", {}, "Side by side"), compare);
  state.problem = mostContested(data, columns, bases);
  show();
  return (name) => {
    if (!at.has(name)) return false;
    state.problem = at.get(name);
    show();
    return true;
  };
}
