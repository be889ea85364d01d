// Buttons that show one of several parts, and keys that hide a group.

let choices = 0;

function choosable(box) {
  const options = [...box.children].filter((child) => child.dataset.option);
  if (options.length < 2) return;
  const name = `choice-${choices++}`;
  const group = make("div", { class: "choice", role: "radiogroup", "aria-label": box.dataset.choice });
  options.forEach((option, i) => {
    const radio = make("input", { type: "radio", name });
    radio.checked = i === 0;
    radio.onchange = () => options.forEach((other, j) => other.classList.toggle("hidden", i !== j));
    option.classList.toggle("hidden", i !== 0);
    option.querySelectorAll(":scope > .only-without-script").forEach((heading) => heading.remove());
    group.append(make("label", {}, radio, option.dataset.option));
  });
  options[0].before(make("div", { class: "tools" }, make("span", { class: "soft" }, box.dataset.choice), group));
}

// A key shows or hides its group in all figures of its section, and brings it out while pointed at.
function keys(section) {
  for (const key of section.querySelectorAll(".keys .button")) {
    const light = (on) => () => {
      for (const series of section.querySelectorAll(".series"))
        if (series.dataset.group === key.dataset.group) series.classList.toggle("lit", on);
    };
    for (const name of ["pointerenter", "focus"]) key.addEventListener(name, light(true));
    for (const name of ["pointerleave", "blur"]) key.addEventListener(name, light(false));
    key.onclick = () => {
      const shown = key.getAttribute("aria-pressed") !== "true";
      for (const same of section.querySelectorAll(".keys .button"))
        if (same.dataset.group === key.dataset.group) same.setAttribute("aria-pressed", shown);
      for (const series of section.querySelectorAll(".series"))
        if (series.dataset.group === key.dataset.group) series.classList.toggle("hidden", !shown);
    };
  }
}
