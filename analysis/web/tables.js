// Tables that sort by a click on a heading and filter by words.

// The leading number of a cell, for sorting; null if there is none.
function value(cell) {
  const text = (cell.dataset.value ?? cell.textContent).trim();
  const found = text.match(/^[+−-]?\d[\d,]*(\.\d+)?/);
  return found ? Number(found[0].replace("−", "-").replaceAll(",", "")) : null;
}

// Whether a column is numeric: not the first, which has names, and with a number in some cell.
const isNumeric = (table, column) => column > 0 && [...table.tBodies[0].rows].some((row) => value(row.cells[column]) !== null);

function sortBy(table, column, descending) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => ({ row, cell: row.cells[column] }));
  const numbers = isNumeric(table, column);
  const sign = descending ? -1 : 1;
  const key = ({ cell }) => (numbers ? value(cell) : cell.textContent.trim() || null);
  const keyed = rows.map((one) => ({ ...one, key: key(one) }));
  keyed.sort((a, b) => {
    if (a.key === null || b.key === null) return (a.key === null) - (b.key === null);
    return sign * (numbers ? a.key - b.key : a.key.localeCompare(b.key, "en", { numeric: true }));
  });
  body.append(...keyed.map(({ row }) => row));
}

function sortable(table) {
  const headings = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  headings.forEach((heading, column) => {
    const label = heading.textContent.trim() || "name";
    const button = make("button", { type: "button", title: heading.title || null });
    button.append(...(heading.childNodes.length ? heading.childNodes : [make("span", { class: "unseen" }, label)]));
    heading.append(button);
    heading.setAttribute("aria-sort", "none");
    button.onclick = () => {
      const now = heading.getAttribute("aria-sort");
      // The first click sorts numbers descending and names ascending.
      const first = isNumeric(table, column) ? "descending" : "ascending";
      const next = now === "none" ? first : now === "ascending" ? "descending" : "ascending";
      headings.forEach((other) => other.setAttribute("aria-sort", "none"));
      heading.setAttribute("aria-sort", next);
      sortBy(table, column, next === "descending");
    };
  });
}

// Add a field above the table; only rows with all its words stay visible.
function filterable(table) {
  const said = make("span", { class: "soft", role: "status" });
  const field = make("input", { type: "search", placeholder: "e.g. spo", size: "18" });
  field.oninput = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = [...table.tBodies[0].rows];
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
    }
    const left = rows.filter((row) => !row.hidden).length;
    said.textContent = words.length ? `${left} of ${rows.length} rows` : "";
  };
  const tools = make("div", { class: "tools" }, make("label", {}, "Filter rows", field), said);
  (table.closest(".scroll") || table).before(tools);
}

function tables(root) {
  for (const table of root.querySelectorAll("table.sortable")) {
    sortable(table);
    if (table.tBodies[0].rows.length > 5) filterable(table);
  }
}
