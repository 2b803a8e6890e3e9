// The table of runs: boxes choose, buttons are for what is chosen, a choice of a group is one click.

const page = document.getElementById("page");

function boxes() {
  return [...page.querySelectorAll("tbody input[name=run]")];
}

function count() {
  const chosen = boxes().filter((box) => box.checked).length;
  for (const button of page.querySelectorAll("[data-chosen]")) button.setAttribute("aria-disabled", String(chosen === 0));
  const note = document.getElementById("count");
  if (note) note.textContent = chosen ? `${chosen} chosen` : "Choose runs to compare, stop or delete them";
  const all = document.getElementById("all");
  if (!all) return;
  all.hidden = false;
  all.checked = chosen > 0 && chosen === boxes().length;
  all.indeterminate = chosen > 0 && chosen < boxes().length;
}

page.addEventListener("change", (event) => {
  if (event.target.id === "all") boxes().forEach((box) => (box.checked = event.target.checked));
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  count();
});
page.addEventListener("click", (event) => {
  if (event.target.closest("[data-chosen][aria-disabled=true]")) event.preventDefault();
});
// A menu closes when one clicks elsewhere.
document.addEventListener("click", (event) => {
  for (const menu of page.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
});
document.addEventListener("shoal:page", tidy);

function tidy() {
  for (const button of page.querySelectorAll("[data-no-script]")) button.hidden = true;
  count();
}
tidy();
