"use strict";
// Elements, sortable tables, choices and contents. Programs and names enter the page only as text.

// As in `readable` of Python: characters that move a cursor, reverse a line, or are invisible.
const ODD = /[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element[key] = value;
    else if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

// The text with each odd character as its code point: ⟨U+202E⟩.
const readable = (text) => text.replace(ODD, (odd) => `⟨U+${odd.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
// The text of a name, with a line break allowed after each of its parts: a_b/c in three.
const breakable = (text) => readable(text).split(/(?<=[_/])(?=.)/).flatMap((part, i) => (i ? [make("wbr"), part] : [part]));
const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const inWords = (name) => (name ? name.toLowerCase().replaceAll("_", " ") : "not run");

// Tables sort by a click on a heading: numbers, by their leading one, descending at first.
function sortable(table) {
  const headings = [...table.tHead.rows[0].cells];
  const leading = (cell) => {
    const found = cell.textContent.trim().match(/^[+−-]?\d[\d,]*(\.\d+)?/);
    return found ? Number(found[0].replace("−", "-").replaceAll(",", "")) : null;
  };
  headings.forEach((heading, column) => {
    const button = make("button", { type: "button" }, ...heading.childNodes);
    heading.append(button);
    heading.setAttribute("aria-sort", "none");
    button.onclick = () => {
      const rows = [...table.tBodies[0].rows].map((row) => ({ row, key: leading(row.cells[column]), text: row.cells[column].textContent }));
      const numeric = column > 0 && rows.some(({ key }) => key !== null);
      const descending = heading.getAttribute("aria-sort") === (numeric ? "none" : "ascending") || (numeric && heading.getAttribute("aria-sort") === "ascending");
      headings.forEach((other) => other.setAttribute("aria-sort", other === heading ? (descending ? "descending" : "ascending") : "none"));
      rows.sort((a, b) => {
        if (numeric && (a.key === null || b.key === null)) return (a.key === null) - (b.key === null);
        return (descending ? -1 : 1) * (numeric ? a.key - b.key : a.text.localeCompare(b.text, "en", { numeric: true }));
      });
      table.tBodies[0].append(...rows.map(({ row }) => row));
    };
  });
  if (table.tBodies[0].rows.length <= 5) return;
  const field = make("input", { type: "search", placeholder: "e.g. spo", size: "18" });
  field.oninput = () => {
    const words = field.value.toLowerCase().split(/\s+/);
    for (const row of table.tBodies[0].rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
  };
  table.closest(".scroll").before(make("div", { class: "tools" }, make("label", {}, "Filter rows", field)));
}

// Buttons that show one of several parts.
function choosable(box, place) {
  const options = [...box.children];
  options.forEach((option) => option.querySelector("h4").remove());
  if (options.length < 2) return;
  const group = make("div", { class: "choice", role: "radiogroup", "aria-label": box.dataset.choice });
  options.forEach((option, i) => {
    const radio = make("input", { type: "radio", name: `choice-${place}` });
    radio.checked = i === 0;
    radio.onchange = () => options.forEach((other, j) => other.classList.toggle("hidden", i !== j));
    option.classList.toggle("hidden", i !== 0);
    group.append(make("label", {}, radio, option.dataset.option));
  });
  options[0].before(make("div", { class: "tools" }, make("span", { class: "soft" }, box.dataset.choice), group));
}

const MOST_FILLED = 3; // groups in a panel, up to which intervals are filled bands
const MOST_WITH_NAMES = 8; // and up to which a panel of points has names

// Move the names beside points apart, so that each can be read.
function spread(panel) {
  const names = [...panel.querySelectorAll(".series:not(.off) .end")];
  for (const name of names) name.dataset.y ??= name.getAttribute("y");
  names.sort((a, b) => a.dataset.y - b.dataset.y);
  let least = 12;
  for (const name of names) {
    least = Math.max(least, Number(name.dataset.y));
    name.setAttribute("y", least);
    least += 13;
  }
}

// Keys show or hide their groups in all figures of a section; a press on a preset, all that it names.
function keys(section) {
  const all = (selector) => [...section.querySelectorAll(selector)];
  const buttons = all(".keys .button"), series = all(".series"), choices = all(".presets .button");
  const labels = new Set(buttons.map((key) => key.dataset.group));
  const shown = new Set(labels);
  const named = (choice) => new Set(JSON.parse(choice.dataset.labels).filter((label) => labels.has(label)));
  const equal = (one) => one.size === shown.size && [...one].every((label) => shown.has(label));
  function update() {
    buttons.forEach((key) => key.setAttribute("aria-pressed", shown.has(key.dataset.group)));
    series.forEach((one) => one.classList.toggle("off", !shown.has(one.dataset.group)));
    choices.forEach((choice) => choice.setAttribute("aria-pressed", equal(named(choice))));
    for (const panel of all("svg.panel")) {
      const visible = new Set([...panel.querySelectorAll(".series:not(.off)")].map((one) => one.dataset.group)).size;
      panel.classList.toggle("few", visible <= MOST_FILLED);
      panel.classList.toggle("named", visible <= MOST_WITH_NAMES);
      if (visible <= MOST_WITH_NAMES) spread(panel);
    }
  }
  const light = (label, on) => series.forEach((one) => one.classList.toggle("lit", on && one.dataset.group === label));
  for (const one of [...buttons, ...series])
    for (const [name, on] of [["pointerenter", true], ["focus", true], ["pointerleave", false], ["blur", false]]) one.addEventListener(name, () => light(one.dataset.group, on));
  buttons.forEach((key) => {
    key.onclick = () => {
      if (!shown.delete(key.dataset.group)) shown.add(key.dataset.group);
      update();
    };
  });
  choices.forEach((choice) => {
    choice.onclick = () => {
      shown.clear();
      named(choice).forEach((label) => shown.add(label));
      update();
    };
  });
  update();
}

// An address for each heading, and a table of contents.
function contents() {
  const list = make("ol");
  document.querySelectorAll("h2, main h3, details.part > summary").forEach((heading) => {
    const section = heading.closest("section")?.id ?? "";
    const words = heading.textContent.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-");
    if (!heading.id) heading.id = heading.tagName === "H2" ? `${section}-` : `${section}--${words}`;
    list.append(make("li", { class: heading.tagName }, make("a", { href: `#${heading.id}` }, readable(heading.textContent))));
  });
  const wide = matchMedia("(min-width: 1100px)").matches;
  document.body.prepend(make("nav", { class: "toc", "aria-label": "Contents" }, make("details", wide ? { open: "" } : {}, make("summary", {}, "Contents"), list)));
}

async function unpacked(element) {
  const bytes = Uint8Array.from(atob(element.textContent.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(stream).text());
}
