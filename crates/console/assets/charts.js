// Metric charts: related metrics in one, moving while the job runs, with hover values, zoom, smoothing and a log scale.

import { Chart } from "./plot.js";

const holder = document.getElementById("charts");
const across = document.getElementById("chart-x");
const smooth = document.getElementById("chart-smooth");
const logarithmic = document.getElementById("chart-log");

// Of a series, before it is requested whole.
const MAX_POINTS = 6000;

const charts = new Map();
let answer = null;
let zoom = null;

// `train:rmse` and `validation:rmse` are drawn together, so are `loss` and `val_loss`.
function family(name) {
  return name.replace(/^(train|training|val|valid|validation|test|eval|dev)[:_/.-]+/i, "");
}

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
  points: (one, values) => [one[across.value], values],
  where: (x) => (across.value === "at" ? new Date(x).toLocaleTimeString() : `step ${Number(x).toLocaleString()}`),
  ink: (one, at) => at,
  zoomTo,
};

function draw() {
  if (!answer) return;
  const families = Map.groupBy ? Map.groupBy(answer.series, (one) => family(one.metric)) : group(answer.series);
  for (const [name, series] of families) {
    if (!charts.has(name)) {
      charts.set(name, new Chart(name, view));
      holder.append(charts.get(name).box);
    }
    charts.get(name).update(series);
  }
}

function group(series) {
  const families = new Map();
  for (const one of series) families.set(family(one.metric), [...(families.get(family(one.metric)) ?? []), one]);
  return families;
}

function remake() {
  for (const chart of charts.values()) chart.shape = "";
  draw();
}

// A zoom holds for all charts. Where the server has thinned a series it is asked for the stretch again.
async function zoomTo(range) {
  zoom = range;
  const thinned = answer.series.some((one) => one.value.length < one.total);
  if (thinned && across.value === "step") await load();
  else draw();
}

// Only new points are requested of series that are here. Once they have grown to more points than a chart needs, the server thins them again.
function query() {
  if (zoom && across.value === "step") return { from: Math.max(1, Math.floor(zoom.min)), to: Math.ceil(zoom.max) };
  const grows = answer?.position && answer.series.every((one) => one.value.length <= MAX_POINTS);
  return grows ? { after: answer.position } : {};
}

// A metric's series are appended to, or replaced together.
function merged(known, next) {
  const replaced = new Set(next.filter((one) => !one.appended).map((one) => one.metric));
  const series = known.filter((one) => !replaced.has(one.metric));
  for (const one of next) {
    const old = one.appended && series.find((it) => it.name === one.name);
    if (!old) {
      series.push(one);
      continue;
    }
    old.total = one.total;
    for (const column of ["at", "step", "value"]) old[column].push(...one[column]);
  }
  // Colours go by the order within a family.
  return series.sort((a, b) => (a.metric < b.metric ? -1 : a.metric > b.metric ? 1 : 0));
}

let requests = 0;

async function load() {
  const request = ++requests;
  const wanted = query();
  const response = await fetch(`${holder.dataset.series}?${new URLSearchParams(wanted)}`);
  // A later request was made of the same state: its answer has all of this.
  if (!response.ok || request !== requests) return;
  const next = await response.json();
  if (request !== requests) return;
  answer = { ...next, series: wanted.after ? merged(answer.series, next.series) : next.series };
  draw();
}

let due = 0;
let waiting = false;

async function moved() {
  if (waiting) return;
  waiting = true;
  await new Promise((done) => setTimeout(done, Math.max(0, due - Date.now())));
  waiting = false;
  await load().catch(() => {});
  due = Date.now() + (answer?.every_ms ?? 1000);
}

document.addEventListener("shoal:series", moved);
document.addEventListener("shoal:theme", remake);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", remake);
for (const control of [across, logarithmic]) {
  control.addEventListener("change", () => {
    zoom = null;
    draw();
  });
}
smooth.addEventListener("input", draw);
new ResizeObserver(() => charts.forEach((chart) => chart.resize())).observe(holder);
moved();
