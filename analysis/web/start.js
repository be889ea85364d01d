// Start the page. All data is inside it; nothing is fetched.

async function unpacked(element) {
  const bytes = Uint8Array.from(atob(element.textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}

async function programs(section) {
  const packed = section.querySelector("script.packed");
  if (!packed) return;
  const boxes = [".matrix-box", ".explorer"].map((name) => section.querySelector(name)); // a packed study has no explorer
  let data;
  try {
    data = await unpacked(packed);
  } catch (error) {
    boxes.filter(Boolean).forEach((box) => box.replaceChildren(make("p", {}, `This browser cannot unpack the programs (${error.message}); use one from 2023 or later.`)));
    return;
  }
  if (data.explorer) explorers.set(section.id, explorer(section, boxes[1], data.explorer, data.matrix.columns, data.matrix.bases));
  matrix(section, boxes[0], data.matrix, Boolean(data.explorer));
  boxes[0].after(make("p", { role: "status", class: "soft address-said" }));
}

async function start() {
  contents();
  tables(document);
  document.querySelectorAll("[data-choice]").forEach(choosable);
  const sections = [...document.querySelectorAll("main > section")];
  sections.forEach(keys);
  sections.forEach(meanings);
  await Promise.all(sections.flatMap((section) => [programs(section), values(section)]));
  followLinks();
  if (location.hash) openAddress();
  for (const section of sections) section.dataset.ready = "";
}

start();
