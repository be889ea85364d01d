// A conversation in the sample explorer: each answer with its verdicts, and the observation after it.

const inWords = (name) => (name ? name.toLowerCase().replaceAll("_", " ") : "not run");

function verdictOf(tests, name) {
  return make("span", { class: name === "ACCEPTED" ? "verdict accepted" : "verdict" }, `${tests}: ${inWords(name)}`);
}

// The verdicts of an answer; one without a program was not run.
function verdictsOf(program, open, hidden) {
  if (!program) return [make("span", { class: "verdict" }, `no program (${inWords(hidden)})`)];
  return [verdictOf("public", open), verdictOf("hidden", hidden)];
}

// `answers` have program, public and hidden verdict, and observation; `pickers(number, program)`
// are an answer's buttons for the comparison side by side.
function conversation(answers, pickers) {
  const turns = answers.map(([program, open, hidden, observation], i) => {
    const title = `answer ${i + 1} of ${answers.length}`;
    const head = make("header", {}, make("strong", {}, title), ...verdictsOf(program, open, hidden));
    const before = answers.findIndex(([earlier]) => program && earlier === program);
    if (before < i && before >= 0) head.append(make("span", { class: "soft" }, `the program of answer ${before + 1} again`));
    const parts = [head];
    if (program) {
      head.append(make("span", { class: "pair" }, ...pickers(i + 1, program)));
      parts.push(make("pre", { tabindex: "0" }, ...readable(program)));
    }
    if (observation) parts.push(make("p", { class: "soft" }, "What the model read then:"), make("pre", { class: "observation", tabindex: "0", "aria-label": `Observation after answer ${i + 1}` }, ...readable(observation)));
    return make("li", {}, ...parts);
  });
  return make("ol", { class: "conversation" }, ...turns);
}
