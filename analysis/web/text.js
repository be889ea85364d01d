// Create elements. Programs and names enter the page only as text.

// As in analysis/load/run_folders.py: characters that move a cursor, reverse a line, or are invisible.
const ODD = /[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick" || key === "onchange" || key === "oninput") element[key] = value;
    else if (value !== null && value !== undefined) element.setAttribute(key, value);
  }
  element.append(...children);
  return element;
}

// The text with each odd character as a framed number, as nodes.
function readable(text) {
  const nodes = [];
  let last = 0;
  for (const found of text.matchAll(ODD)) {
    if (found.index > last) nodes.push(text.slice(last, found.index));
    const code = found[0].codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    nodes.push(make("span", { class: "odd" }, "U+" + code));
    last = found.index + found[0].length;
  }
  nodes.push(text.slice(last));
  return nodes;
}

// The text of a name, with a line break allowed after each of its parts: a_b/c in three.
function breakable(text) {
  return readable(text).flatMap((node) => {
    if (typeof node !== "string") return [node];
    return node.split(/(?<=[_/])(?=.)/).flatMap((part, i) => (i ? [make("wbr"), part] : [part]));
  });
}

const count = (number, noun) => `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
const percent = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "–");
