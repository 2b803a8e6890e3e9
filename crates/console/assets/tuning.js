// Pictures of a search that move while it runs: how far trials came, parallel coordinates, what mattered. study.js draws them, here as in the page of `shoal tuning report`.

import { looks } from "./plot.js";

const holder = document.getElementById("study");
const PICTURES = ["curves", "rungs", "parallel", "importance", "pareto"];

let study = null;
let pictures = null;

// Which pictures there is something to see in.
function wanted() {
  const valued = study.trials.some((trial) => trial.value !== null);
  const curved = study.trials.some((trial) => trial.curve.length > 1);
  return { curves: curved, rungs: curved && study.rungs.length > 0, parallel: valued, importance: study.importance.length > 0, pareto: valued && study.objectives.length > 1 };
}

function draw() {
  if (!study) return;
  pictures?.remove();
  const shown = wanted();
  for (const id of PICTURES) document.getElementById(`study-${id}`).hidden = !shown[id];
  holder.hidden = !Object.values(shown).includes(true);
  // What is not shown has no width to draw in.
  for (const id of PICTURES) holder.querySelector(`#${id}`).replaceChildren();
  pictures = globalThis.shoalStudy(study, holder, looks(holder));
  holder.dataset.drawn = String(study.trials.length);
}

let due = 0;
let waiting = false;

// A page of many trials takes longer to make: it is asked for less often.
async function moved() {
  if (waiting) return;
  waiting = true;
  await new Promise((done) => setTimeout(done, Math.max(0, due - Date.now())));
  waiting = false;
  const begun = Date.now();
  const response = await fetch(holder.dataset.study).catch(() => null);
  due = Date.now() + Math.max(1500, 5 * (Date.now() - begun));
  if (!response?.ok) return;
  const text = await response.text();
  if (text === holder.text) return;
  holder.text = text;
  study = JSON.parse(text);
  draw();
}

document.addEventListener("shoal:page", moved);
document.addEventListener("shoal:theme", draw);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
addEventListener("resize", () => pictures?.fit());
moved();
