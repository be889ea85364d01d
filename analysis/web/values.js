// The values at the points of a figure: nearest to the pointer, or chosen with the arrow keys.

const SIGNIFICANT = 4;

const shown = (value) => (Number.isInteger(value) ? value.toLocaleString("en") : String(Number(value.toPrecision(SIGNIFICANT)))).replace("-", "−");

// "0.352 [0.31, 0.4]"; an interval without width is left out.
function withEnds(value, low, high) {
  const known = low !== null && low !== undefined && high !== null && high !== undefined && low !== high;
  return shown(value) + (known ? ` [${shown(low)}, ${shown(high)}]` : "");
}

// Draw what is chosen in one panel, and say its values below.
function panelValues(svg, data) {
  const [left, top, width, height] = data.plot;
  const across = (x) => left + ((x - data.x[1]) / (data.x[2] - data.x[1])) * width;
  const up = (y) => top + height - ((Math.min(Math.max(y, data.y[1]), data.y[2]) - data.y[1]) / (data.y[2] - data.y[1])) * height;
  const groups = [...svg.querySelectorAll(".series")];
  const say = make("p", { class: "values hidden", role: "status" });
  svg.after(say);
  const here = document.createElementNS(svg.namespaceURI, "circle");
  here.setAttribute("class", "here hidden");
  here.setAttribute("r", 7);
  svg.append(here);
  let chosen = null; // [series, point]

  const visible = () => data.series.map((_, i) => i).filter((i) => data.series[i].x.length && !groups[i].classList.contains("hidden"));

  function show(series, point) {
    chosen = [series, point];
    const one = data.series[series];
    here.setAttribute("cx", across(one.x[point]));
    here.setAttribute("cy", up(one.y[point]));
    here.classList.remove("hidden");
    groups.forEach((group, i) => group.classList.toggle("lit", i === series));
    const x = withEnds(one.x[point], one.x_low?.[point], one.x_high?.[point]);
    const y = withEnds(one.y[point], one.low?.[point], one.high?.[point]);
    const ends = y.includes("[") ? `, ${data.interval} in brackets` : "";
    say.replaceChildren(make("strong", {}, ...readable(one.label)), ` ${data.y[0]} ${y} at ${data.x[0]} ${x}${ends}`);
    say.classList.remove("hidden");
  }

  function hide() {
    chosen = null;
    here.classList.add("hidden");
    say.classList.add("hidden");
    groups.forEach((group) => group.classList.remove("lit"));
  }

  function nearest(px, py, among = visible()) {
    let best = null, least = Infinity;
    for (const i of among)
      data.series[i].x.forEach((x, j) => {
        const distance = Math.hypot(across(x) - px, up(data.series[i].y[j]) - py);
        if (distance < least) [best, least] = [[i, j], distance];
      });
    return best;
  }

  function byPointer(event) {
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const found = nearest(place.x, place.y);
    if (found) show(...found);
  }

  function byKey(event) {
    const among = visible();
    const moves = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
    if (event.key === "Escape") return hide();
    if (!among.length || !(event.key in moves || event.key === "ArrowUp" || event.key === "ArrowDown")) return;
    event.preventDefault();
    if (!chosen) return show(among[0], event.key === "End" ? data.series[among[0]].x.length - 1 : 0);
    const [series, point] = chosen, one = data.series[series];
    if (event.key in moves) return show(series, Math.min(Math.max(point + moves[event.key], 0), one.x.length - 1));
    const turn = among.indexOf(series) + (event.key === "ArrowDown" ? 1 : among.length - 1);
    const next = among[turn % among.length];
    show(...nearest(across(one.x[point]), up(one.y[point]), [next]));
  }

  svg.setAttribute("tabindex", "0");
  svg.setAttribute("aria-roledescription", "figure with values; choose a point with the arrow keys");
  svg.addEventListener("pointermove", byPointer);
  svg.addEventListener("pointerdown", byPointer);
  svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse" && document.activeElement !== svg) hide(); });
  svg.addEventListener("keydown", byKey);
  svg.addEventListener("blur", hide);
}

async function values(section) {
  const packed = section.querySelector("script.points");
  if (!packed) return;
  const panels = await unpacked(packed).catch(() => ({})); // programs() says what the browser lacks
  for (const svg of section.querySelectorAll("svg.panel[data-panel]"))
    if (panels[svg.dataset.panel]) panelValues(svg, panels[svg.dataset.panel]);
}
