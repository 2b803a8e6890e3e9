// A tuning report: its pictures, and a table that sorts. Everything it shows is in the page's own data.
"use strict";
(() => {
  const style = getComputedStyle(document.documentElement);
  const colors = ["ink", "quiet", "line", "ground", "good"].map(name => [name, style.getPropertyValue(`--${name}`).trim()]);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const study = JSON.parse(document.getElementById("study").textContent);
  const pictures = shoalStudy(study, document, { ...Object.fromEntries(colors), dark });

  addEventListener("resize", pictures.fit);

  // Columns sort by a click.
  const table = document.getElementById("trials");
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    const button = document.createElement("button");
    button.textContent = cell.textContent;
    cell.replaceChildren(button);
    let up = false;
    button.addEventListener("click", () => {
      up = !up;
      const key = row => row.cells[column].dataset.sort ?? row.cells[column].textContent;
      const numeric = text => text !== "" && !isNaN(text);
      const rows = [...body.rows].sort((one, other) => {
        const [a, b] = [key(one), key(other)];
        return numeric(a) && numeric(b) ? a - b : numeric(a) - numeric(b) || a.localeCompare(b);
      });
      if (!up) rows.reverse();
      body.append(...rows);
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      cell.setAttribute("aria-sort", up ? "ascending" : "descending");
    });
  });
  document.body.dataset.drawn = pictures.drawn;
})();
