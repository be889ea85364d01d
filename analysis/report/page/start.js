// Start the page. All data is inside it; nothing is fetched.

async function unpacked(element) {
  const bytes = Uint8Array.from(atob(element.textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

async function programs(section) {
  const packed = section.querySelector("script.packed");
  if (!packed) return;
  const boxes = [".matrix-box", ".explorer"].map((name) => section.querySelector(name));
  let data;
  try {
    data = await unpacked(packed);
  } catch (error) {
    boxes.forEach((box) => box.replaceChildren(make("p", {}, `This browser cannot unpack the programs (${error.message}); use one from 2023 or later.`)));
    return;
  }
  const go = explorer(boxes[1], data.explorer, data.matrix.columns, data.matrix.bases);
  const said = make("p", { role: "status", class: "soft" });
  boxes[0].after(said);
  matrix(boxes[0], data.matrix, (name) => {
    const known = go(name);
    said.textContent = known ? "" : "This page has no programs for this problem.";
    if (known) {
      section.querySelector(".explorer-title").scrollIntoView();
      boxes[1].querySelector("select").focus({ preventScroll: true });
    }
  });
  section.dataset.ready = "";
}

tables(document);
document.querySelectorAll("[data-choice]").forEach(choosable);
for (const section of document.querySelectorAll("main > section")) {
  keys(section);
  programs(section);
}
