// Curves of several runs over each other, and parallel coordinates of what they were given. The address has how they are looked at.

import { Chart, colours, looks } from "./plot.js";

const holder = document.getElementById("charts");
const across = document.getElementById("chart-x");
const smooth = document.getElementById("chart-smooth");
const logarithmic = document.getElementById("chart-log");
const metric = document.getElementById("coordinates-metric");
const parallel = document.getElementById("coordinates");

const charts = new Map();
let answer = null;
let zoom = null;
let pictures = null;

const DASHES = [undefined, [6, 3], [2, 3], [8, 3, 2, 3]];
const INKS = 6;

const view = {
  get across() {
    return across.value;
  },
  get isTime() {
    return across.value === "at";
  },
  get logarithmic() {
    return logarithmic.checked;
  },
  get smooth() {
    return Number(smooth.value);
  },
  get zoom() {
    return zoom;
  },
  points: (one, values) => distinct(places(one), values),
  tick: (plot, splits) => splits.map((value) => (across.value === "relative" ? time(value) : Number.isInteger(value) ? value.toLocaleString() : "")),
  where: (x) => (across.value === "at" ? new Date(x).toLocaleTimeString() : across.value === "relative" ? `after ${time(x)}` : `${across.value} ${Number(x).toLocaleString()}`),
  // A run keeps its colour in all charts; hosts of a run, and runs beyond the colours, have other strokes.
  ink: (one) => one.run,
  dash: (one) => DASHES[(Math.floor(one.run / INKS) + (one.host ? one.host - 1 : 0)) % DASHES.length],
  zoomTo(range) {
    zoom = range;
    draw();
  },
};

function time(seconds) {
  if (seconds < 60) return `${Number(seconds.toFixed(1))} s`;
  const minutes = seconds / 60;
  return minutes < 60 ? `${Number(minutes.toFixed(1))} min` : `${Number((minutes / 60).toFixed(1))} h`;
}

const isEpoch = (name) => /(^|[:/_.])epoch$/i.test(name);

// Where the points of a series are: the steps that the program logged or the points' numbers, times, seconds since the run's first point, or the run's last metric `epoch` by then.
function places(one) {
  if (across.value === "relative") {
    const begins = Math.min(...answer.series.filter((it) => it.run === one.run && it.at.length).map((it) => it.at[0]));
    return one.at.map((at) => (at - begins) / 1000);
  }
  if (across.value !== "epoch") return one[across.value];
  const epochs = answer.series.find((it) => it.run === one.run && isEpoch(it.metric));
  if (!epochs) return one.at.map(() => null);
  const by = epochs.value.length > 0 && one.step.at(-1) >= epochs.step.at(-1) ? "step" : "at";
  let next = 0;
  return one[by].map((place) => {
    while (next < epochs[by].length && epochs[by][next] <= place) next++;
    return next ? epochs.value[next - 1] : 0;
  });
}

// uPlot joins by places that rise: of several points at one place, the last.
function distinct(x, y) {
  const [places, values] = [[], []];
  x.forEach((place, index) => {
    if (place == null || (places.length && place < places.at(-1))) return;
    if (place === places.at(-1)) values[values.length - 1] = y[index];
    else {
      places.push(place);
      values.push(y[index]);
    }
  });
  return [places, values];
}

function draw() {
  if (!answer) return;
  const metrics = [...new Set(answer.series.map((one) => one.metric))].filter((name) => !isEpoch(name));
  for (const name of metrics) {
    if (!charts.has(name)) {
      charts.set(name, new Chart(name, view));
      holder.append(charts.get(name).box);
    }
    const lines = answer.series.filter((one) => one.metric === name);
    charts.get(name).update(lines.map((one) => ({ ...one, name: answer.runs[one.run].title + (one.host ? ` algo-${one.host}` : "") })));
  }
  const none = document.getElementById("no-charts");
  none.hidden = metrics.length > 0;
  none.textContent = "No metric has values yet. A run logs them with Run.log_metric, a training job by its MetricDefinitions.";
}

// What study.js draws is a search: runs are its trials.
function coordinates() {
  if (!parallel) return;
  const runs = answer.runs.filter((run) => run.metrics[metric.value] != null);
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.parameters)))].filter((name) => new Set(runs.map((run) => run.parameters[name])).size > 1);
  parallel.hidden = runs.length < 2 || !names.length;
  pictures?.remove();
  pictures = null;
  if (parallel.hidden) return;
  const parameters = names.slice(0, 12).map((name) => {
    const values = runs.map((run) => run.parameters[name]).filter((value) => value != null);
    if (!values.every((value) => typeof value === "number")) return { name, values: [...new Set(values.map(String))].sort() };
    const [min, max] = [Math.min(...values), Math.max(...values)];
    return { name, min, max, log: min > 0 && max / min >= 100 };
  });
  const maximize = /acc|auc|f1|precision|recall|r2|score|map|bleu|rouge|reward/i.test(metric.value);
  const trial = (run) => ({
    name: run.title,
    state: { InProgress: "Running" }[run.status] ?? "Completed",
    value: run.metrics[metric.value],
    values: Object.fromEntries(Object.entries(run.parameters).map(([name, value]) => [name, String(value)])),
    at: null,
    curve: [],
    objectives: [],
  });
  const study = { metric: metric.value, maximize, objectives: [], parameters, importance: [], rungs: [], trials: runs.map(trial) };
  pictures = globalThis.shoalStudy(study, parallel, looks(holder));
}

// The dots in the table's head have the curves' colours.
function dots() {
  const inks = colours(holder).series;
  for (const dot of document.querySelectorAll("[data-run]")) dot.style.background = inks[Number(dot.dataset.run) % INKS];
}

const controls = { x: across, smooth, log: logarithmic, metric };

function remember() {
  const address = new URL(location.href);
  const values = { x: across.value === "step" ? "" : across.value, smooth: Number(smooth.value) ? smooth.value : "", log: logarithmic.checked ? "1" : "", metric: metric?.dataset.chosen ?? "" };
  for (const [name, value] of Object.entries(values)) {
    if (value) address.searchParams.set(name, value);
    else address.searchParams.delete(name);
  }
  history.replaceState(null, "", address);
}

function recall() {
  const given = new URLSearchParams(location.search);
  for (const [name, control] of Object.entries(controls)) {
    const value = given.get(name);
    if (value == null || !control) continue;
    if (control === logarithmic) control.checked = value === "1";
    else control.value = value;
    if (control === metric) metric.dataset.chosen = value;
  }
}

async function load() {
  const response = await fetch(holder.dataset.series);
  if (!response.ok) return;
  answer = await response.json();
  const known = answer.series.some((one) => isEpoch(one.metric));
  across.querySelector("[value=epoch]").disabled = !known;
  if (metric) {
    const names = [...new Set(answer.runs.flatMap((run) => Object.keys(run.metrics)))].filter((name) => !isEpoch(name)).sort();
    if (names.join() !== [...metric.options].map((option) => option.value).join()) {
      metric.replaceChildren(...names.map((name) => new Option(name, name)));
      metric.value = metric.dataset.chosen ?? names.find((name) => name.includes("val")) ?? names[0];
      recall();
    }
  }
  draw();
  coordinates();
}

function remake() {
  for (const chart of charts.values()) chart.shape = "";
  draw();
  if (answer) coordinates();
  dots();
}

for (const control of [across, logarithmic]) {
  control.addEventListener("change", () => {
    zoom = null;
    remember();
    draw();
  });
}
smooth.addEventListener("input", () => {
  remember();
  draw();
});
metric?.addEventListener("change", () => {
  metric.dataset.chosen = metric.value;
  remember();
  coordinates();
});
document.addEventListener("shoal:theme", remake);
document.addEventListener("shoal:page", dots);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", remake);
new ResizeObserver(() => {
  charts.forEach((chart) => chart.resize());
  pictures?.fit();
}).observe(holder);
setInterval(() => {
  if (document.getElementById("page").dataset.refresh && !document.hidden) load().catch(() => {});
}, 3000);
recall();
dots();
load().catch(() => {});
