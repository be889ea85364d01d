// What the names of groups mean: a line of the key, as the title of a name wherever it stands.

function meanings(section) {
  const names = [...section.querySelectorAll(".names dt")];
  const lines = new Map(names.map((name) => [name.textContent, name.nextElementSibling.textContent]));
  if (!lines.size) return;
  for (const statement of section.querySelectorAll(".answer .metrics li")) markNames(statement, lines);
  // Tables are sorted and the explorer is drawn anew, so a name gets its title when it is pointed at.
  section.addEventListener("pointerover", (event) => {
    const name = event.target.closest("th, td, h5, .keys .button");
    if (!name || name.title) return;
    const found = name.textContent.trim().split(" − ").filter((one) => lines.has(one));
    if (found.length) name.title = found.map((one) => `${one}: ${lines.get(one)}`).join("\n");
  });
}

// Mark the names in a statement, each with its line.
function markNames(statement, lines) {
  const longestFirst = [...lines.keys()].sort((a, b) => b.length - a.length);
  const escaped = longestFirst.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const pattern = new RegExp(`(?<![\\w.=-])(?:${escaped.join("|")})(?![\\w=]|[.-]\\w)`, "g");
  const texts = document.createTreeWalker(statement, NodeFilter.SHOW_TEXT);
  const nodes = [];
  while (texts.nextNode()) nodes.push(texts.currentNode);
  for (const node of nodes) {
    const parts = [];
    let last = 0;
    for (const found of node.data.matchAll(pattern)) {
      parts.push(node.data.slice(last, found.index), make("abbr", { title: lines.get(found[0]) }, found[0]));
      last = found.index + found[0].length;
    }
    if (parts.length) node.replaceWith(...parts, node.data.slice(last));
  }
}
