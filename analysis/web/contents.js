// An address and a link for each heading, and a table of contents that follows the reading.

const WIDE = "(min-width: 1100px)"; // as in reading.css

const HEADINGS = "main > section > h2, main > section h3, main > section > details.part > summary, footer h2";

// Give each heading an id, made of its section and its words, and a link to itself.
function addressed() {
  const taken = new Set();
  return [...document.querySelectorAll(HEADINGS)].map((heading) => {
    const section = heading.closest("main > section");
    const text = heading.dataset.contents || heading.textContent.trim();
    const whole = heading.matches("main h2"); // its section has the id
    const words = text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "");
    let id = whole ? section.id : heading.id || `${section.id}--${words}`;
    while (!whole && taken.has(id)) id += "-";
    taken.add(id);
    if (!whole) heading.id = id;
    const link = make("a", { class: "anchor", href: `#${id}`, "aria-label": `Link to ${text}`, title: "Link to this part" }, "#");
    heading.append(" ", link);
    return { heading, id, text, section, level: heading.tagName === "H2" ? 1 : 2 };
  });
}

function contents() {
  const parts = addressed();
  const links = parts.map(({ id, text }) => make("a", { href: `#${id}` }, ...readable(text)));
  const list = make("ol");
  let inner = null;
  parts.forEach(({ level }, i) => {
    const item = make("li", {}, links[i]);
    if (level === 1 || !inner) {
      list.append(item);
      inner = level === 1 ? make("ol") : null;
      if (inner) item.append(inner);
    } else inner.append(item);
  });
  const now = make("span", { class: "now" });
  const folder = make("details", {}, make("summary", {}, "Contents", now), list);
  const nav = make("nav", { class: "toc", "aria-label": "Contents" }, folder);
  document.querySelector("body > header").before(nav);
  const wide = matchMedia(WIDE);
  const unfold = () => { folder.open = wide.matches; };
  wide.addEventListener("change", unfold);
  unfold();
  list.addEventListener("click", (event) => { if (event.target.closest("a") && !wide.matches) folder.open = false; });

  let waiting = false;
  function follow() {
    waiting = false;
    let current = -1;
    parts.forEach(({ heading }, i) => { if (heading.getBoundingClientRect().top < innerHeight / 3) current = i; });
    links.forEach((link, i) => (i === current ? link.setAttribute("aria-current", "location") : link.removeAttribute("aria-current")));
    for (const item of list.children) item.classList.toggle("open", current >= 0 && item.contains(links[current]));
    now.textContent = current >= 0 ? parts[current].text : "";
    if (current >= 0 && wide.matches) keepVisible(nav, links[current]);
  }
  const soon = () => { if (!waiting) { waiting = true; requestAnimationFrame(follow); } };
  addEventListener("scroll", soon, { passive: true });
  addEventListener("resize", soon);
  follow();
}

// Scroll the contents alone, so that the current entry is in view.
function keepVisible(nav, link) {
  const [outer, inner] = [nav.getBoundingClientRect(), link.getBoundingClientRect()];
  if (inner.top < outer.top || inner.bottom > outer.bottom) nav.scrollTop += inner.top - outer.top - outer.height / 3;
}
