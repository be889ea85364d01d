// A conversation in the sample explorer: each answer with its verdicts, and the observation after it.

function verdictOf(tests, name) {
  const said = name ? name.toLowerCase().replaceAll("_", " ") : "not run";
  return make("span", { class: name === "ACCEPTED" ? "verdict accepted" : "verdict" }, `${tests}: ${said}`);
}

// `answers` have program, public and hidden verdict, and observation; `pickers(number, program)`
// are an answer's buttons for the comparison side by side.
function conversation(answers, pickers) {
  const turns = answers.map(([program, open, hidden, observation], i) => {
    const text = program ? readable(program) : [make("em", {}, "no program in the response")];
    const head = make("header", {}, make("strong", {}, `answer ${i + 1}`), verdictOf("public", open), verdictOf("hidden", hidden), make("span", { class: "spacer" }), ...pickers(i + 1, program));
    const parts = [head, make("pre", { tabindex: "0" }, ...text)];
    if (observation) parts.push(make("p", { class: "soft" }, "What the model read then:"), make("pre", { class: "observation", tabindex: "0", "aria-label": `Observation after answer ${i + 1}` }, ...readable(observation)));
    return make("li", {}, ...parts);
  });
  return make("ol", { class: "conversation" }, ...turns);
}
