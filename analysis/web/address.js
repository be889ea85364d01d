// Addresses of problems and samples: #problem=NAME&arm=LABEL&sample=FORM, with experiment=SLUG where
// the page has several. A second arm and sample stand beside the first.

const explorers = new Map(); // section id → a function that opens an address there

const several = () => document.querySelectorAll("main > section").length > 1;

// The address of a problem; `samples` are [arm, form] pairs, `step` the evaluation of trained groups.
function addressOf(section, problem, samples = [], step = null) {
  const parts = new URLSearchParams();
  if (several()) parts.append("experiment", section.id);
  parts.append("problem", problem);
  if (step !== null) parts.append("step", step);
  for (const [arm, form] of samples) {
    parts.append("arm", arm);
    if (form !== null) parts.append("sample", form);
  }
  return "#" + parts.toString().replaceAll("%2F", "/");
}

// What an address names, or null if it is that of a heading.
function parsedAddress(hash) {
  const parts = new URLSearchParams(hash.slice(1));
  if (!parts.has("problem")) return null;
  const arms = parts.getAll("arm"), forms = parts.getAll("sample");
  return {
    experiment: parts.get("experiment"),
    problem: parts.get("problem"),
    step: parts.has("step") ? Number(parts.get("step")) : null,
    samples: arms.map((arm, i) => [arm, forms[i] === undefined ? null : Number(forms[i])]),
  };
}

// Write the address of what is shown, as a new entry of the history.
function remember(address) {
  if (address !== location.hash) history.pushState(null, "", address);
}

// Show what the page's address names: a heading, or a problem in its explorer.
function openAddress() {
  const address = parsedAddress(location.hash);
  if (!address) {
    const target = document.getElementById(decoded(location.hash.slice(1)));
    if (!target) return;
    const folded = target.closest("details");
    if (folded) folded.open = true;
    target.scrollIntoView();
    return;
  }
  const sections = address.experiment ? [address.experiment] : [...explorers.keys()];
  const found = sections.some((id) => explorers.has(id) && explorers.get(id)(address));
  for (const said of document.querySelectorAll(".address-said"))
    said.textContent = found ? "" : "This page has no programs for this problem.";
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

// A press on the link of what is open already changes no address, and still goes there.
function followLinks() {
  window.addEventListener("hashchange", openAddress);
  document.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href^='#']");
    if (link && link.getAttribute("href") === location.hash) {
      event.preventDefault();
      openAddress();
    }
  });
}
