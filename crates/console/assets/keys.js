// Keyboard shortcuts: single letters, never while one types.

function rows() {
  return [...document.querySelectorAll("#jobs tbody th a")];
}

function step(by) {
  const links = rows();
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  const next = at < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, at + by));
  links[next].focus();
  links[next].closest("tr").scrollIntoView({ block: "nearest" });
}

function to(id) {
  const section = document.getElementById(id);
  if (!section) return;
  section.scrollIntoView({ block: "start" });
  section.focus({ preventScroll: true });
}

const keys = {
  "/": () => (document.getElementById("search") ?? document.getElementById("log-search"))?.focus(),
  "?": () => document.getElementById("keys")?.showModal(),
  j: () => step(1),
  k: () => step(-1),
  u: () => document.querySelector("[data-up]")?.click(),
  m: () => to("metrics"),
  l: () => to("log"),
  o: () => to("files"),
  f: () => document.getElementById("log-follow")?.click(),
  t: () => document.getElementById("theme")?.click(),
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input:not([type=range], [type=checkbox]), textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const action = keys[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
});
