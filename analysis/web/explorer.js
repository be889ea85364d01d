// The sample explorer: a problem, its prompt, and each group's programs by normal form.

const FORMS_AT_FIRST = 3;

// The columns compared at first: the trained groups, or the only one and its base.
function compared(columns, bases) {
  const trained = columns.map((_, i) => i).filter((i) => !bases[i]);
  return trained.length > 1 ? trained : [...columns.keys()];
}

// The problem shown first: the one on which the compared columns differ most.
function mostContested(data, columns, bases) {
  let best = 0, most = -1;
  const last = data.steps[data.steps.length - 1];
  data.problems.forEach((problem, place) => {
    const shares = [];
    compared(columns, bases).forEach((i) => {
      const rows = problem.cells[`${i}:${bases[i] ? 0 : last}`];
      if (!rows) return;
      const all = rows.reduce((sum, [, , ...counts]) => sum + counts.reduce((a, b) => a + b, 0), 0);
      shares.push(data.verdicts[0] === "ACCEPTED" && all ? rows.reduce((sum, row) => sum + row[2], 0) / all : 0);
    });
    const spread = shares.length ? Math.max(...shares) - Math.min(...shares) : 0;
    if (spread > most) [best, most] = [place, spread];
  });
  return best;
}

// Build the explorer; returns a function that opens an address in it, false where it has no such problem.
function explorer(section, box, data, columns, bases) {
  const at = new Map(data.problems.map((problem, i) => [problem.name, i]));
  const state = { problem: 0, step: data.steps[data.steps.length - 1], sides: [null, null], chosen: false };
  const names = make("select", { "aria-label": "Problem" }, ...data.problems.map((problem, i) => make("option", { value: i }, ...readable(problem.name).map((node) => node.textContent ?? node))));
  const link = make("a", { class: "button" }, "Link to what is shown");
  const trained = data.steps.filter((step) => step > 0);
  const steps = make("select", {}, ...trained.map((step) => make("option", { value: step }, `after step ${step.toLocaleString("en")}`)));
  if (trained.length) steps.value = state.step;
  const prompt = make("pre", { class: "prompt", tabindex: "0" });
  const asked = make("details", { open: "" }, make("summary", {}, "Prompt"), prompt);
  const grid = make("div", { class: "columns" });
  const compare = make("section", { "aria-label": "Two programs side by side" });
  const noun = data.conversations ? "sample" : "program";

  function verdicts(counts) {
    return data.verdicts
      .map((name, i) => [name, counts[i]])
      .filter(([, number]) => number)
      .map(([name, number]) => make("span", { class: name === "ACCEPTED" ? "verdict accepted" : "verdict" }, `${number.toLocaleString("en")} × ${name.toLowerCase().replaceAll("_", " ")}`));
  }

  const total = (counts) => counts.reduce((sum, number) => sum + number, 0);

  // `answer`: the number of an answer that is not the last of its conversation.
  function picker(side, form, program, label, step, answer = 0) {
    const key = `${label}:${step}:${form}` + (answer ? `:${answer}` : "");
    const pressed = state.sides[side] && state.sides[side].key === key;
    const letter = "AB"[side];
    return make("button", {
      type: "button", class: "button", "aria-pressed": String(Boolean(pressed)), "data-side": letter,
      title: `show on the ${side ? "right" : "left"}`,
      onclick: () => {
        state.sides[side] = { key, program, label, form, answer };
        for (const other of grid.querySelectorAll(`[data-side=${letter}]`)) other.setAttribute("aria-pressed", String(other.dataset.key === state.sides[side].key));
        state.chosen = true;
        showSides();
        keep();
      },
      "data-key": key,
    }, letter);
  }

  function form([number, place, ...counts], label, step) {
    if (!number) return make("p", { class: "soft" }, `and ${count(place, "rarer form")}, ${count(total(counts), noun)}: `, ...verdicts(counts));
    const program = data.programs[place];
    const own = make("a", { class: "anchor", href: address([[label, number]]), "aria-label": `Link to form ${number} of ${label}` }, "#");
    const pickers = (text, answer) => [0, 1].map((side) => picker(side, number, text, label, step, answer));
    const head = make("header", {}, make("strong", {}, `form ${number}`, own), ...verdicts(counts));
    const answers = data.conversations ? data.conversations[place] : [];
    const article = make("article", { class: "form", tabindex: "-1", "data-key": `${label}:${step}:${number}`, "aria-label": `form ${number}` }, head);
    if (answers.length) {
      article.append(conversation(answers, (i, text) => pickers(text, i < answers.length ? i : 0)));
      return article;
    }
    head.append(make("span", { class: "spacer" }), ...pickers(program, 0));
    const text = program ? readable(program) : [make("em", {}, "no program in the response")];
    article.append(make("pre", { tabindex: "0" }, ...text));
    return article;
  }

  function column(i, problem) {
    const step = bases[i] ? 0 : state.step;
    const rows = problem.cells[`${i}:${step}`];
    const inside = [make("h5", {}, ...breakable(columns[i]))];
    if (!rows) return make("div", { class: "column" }, ...inside, make("p", {}, "No evaluation at this step."));
    const sum = rows.reduce((all, [, , ...counts]) => all + total(counts), 0);
    const accepted = data.verdicts[0] === "ACCEPTED" ? rows.reduce((all, row) => all + row[2], 0) : 0;
    const different = rows.reduce((all, [number, place]) => all + (number ? 1 : place), 0);
    inside.push(make("p", {}, `${accepted.toLocaleString("en")} of ${count(sum, noun)} accepted, ${count(different, "different form")}`));
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
    const titled = (one, letter, pane) => make("div", {}, make("h5", {}, `${letter}: `, ...readable(one.label), `, form ${one.form}${one.answer ? `, answer ${one.answer}` : ""}`), pane);
    const same = left.program === right.program ? [make("p", { role: "status" }, "The two programs are identical.")] : [];
    compare.replaceChildren(...same, make("div", { class: "compare" }, titled(left, "A", panes[0]), titled(right, "B", panes[1])));
  }

  const stepOf = (i) => (bases[i] ? 0 : state.step);

  function side(i, [form, place]) {
    return { key: `${columns[i]}:${stepOf(i)}:${form}`, program: data.programs[place], label: columns[i], form };
  }

  // Shown first: the first forms of the first two compared columns that differ.
  function firstSides(problem) {
    const found = [];
    for (const i of compared(columns, bases)) {
      const row = (problem.cells[`${i}:${stepOf(i)}`] || [])[0];
      if (row && row[0] && !found.some((one) => one.form === row[0])) found.push(side(i, row));
    }
    state.sides = [found[0] || null, found[1] || null];
    state.chosen = false;
  }

  // The programs that an address names: of an arm without a form, its first.
  function addressedSides(problem, samples) {
    const found = samples.map(([arm, form]) => {
      const i = columns.indexOf(arm);
      const rows = (problem.cells[`${i}:${stepOf(i)}`] || []).filter(([number]) => number);
      const row = form === null ? rows[0] : rows.find(([number]) => number === form);
      return row ? side(i, row) : null;
    }).filter(Boolean);
    if (!found.length) return;
    const [left, right] = state.sides;
    const other = [right, left].find((one) => one && one.key !== found[0].key) || null;
    state.sides = [found[0], found[1] || other];
    state.chosen = true;
  }

  function address(samples = null) {
    const chosen = state.chosen ? state.sides.filter(Boolean).map(({ label, form }) => [label, form]) : [];
    const step = state.step === data.steps[data.steps.length - 1] ? null : state.step;
    return addressOf(section, data.problems[state.problem].name, samples || chosen, step);
  }

  function keep() {
    link.setAttribute("href", address());
    remember(address());
  }

  function show(samples = []) {
    const problem = data.problems[state.problem];
    names.value = state.problem;
    if (trained.length) steps.value = state.step;
    prompt.replaceChildren(...readable(problem.prompt || "The run folder has no prompt for it (problems.parquet)."));
    firstSides(problem);
    addressedSides(problem, samples);
    link.setAttribute("href", address());
    grid.replaceChildren(...columns.map((_, i) => column(i, problem)));
    showSides();
  }

  const move = (by) => () => { state.problem = (state.problem + by + data.problems.length) % data.problems.length; show(); keep(); };
  names.onchange = () => { state.problem = Number(names.value); show(); keep(); };
  steps.onchange = () => { state.step = Number(steps.value); show(); keep(); };
  const tools = make("div", { class: "tools" }, make("label", {}, "Problem", names),
    make("button", { type: "button", class: "button", onclick: move(-1) }, "← Previous"),
    make("button", { type: "button", class: "button", onclick: move(1) }, "Next →"));
  if (trained.length > 1) tools.append(make("label", {}, "Trained groups", steps));
  tools.append(link);
  box.replaceChildren(tools, asked, grid, make("h4", {}, "Side by side"), compare);
  state.problem = mostContested(data, columns, bases);
  show();

  return ({ problem, step, samples }) => {
    if (!at.has(problem)) return false;
    state.problem = at.get(problem);
    state.step = step !== null && data.steps.includes(step) ? step : data.steps[data.steps.length - 1];
    show(samples);
    const forms = [...grid.querySelectorAll(".form")].filter((one) => state.chosen && one.dataset.key === state.sides[0].key);
    forms.forEach((one) => { one.classList.add("chosen"); const folded = one.closest("details"); if (folded) folded.open = true; });
    (forms[0] || section.querySelector(".explorer-title")).scrollIntoView();
    (forms[0] || names).focus({ preventScroll: true });
    return true;
  };
}
