// Metric charts: related metrics in one, moving while the job runs, with hover values, zoom, smoothing and a log scale.

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

export function colours() {
  const probe = document.createElement("span");
  holder.after(probe);
  const read = (name) => {
    probe.className = `ink-${name}`;
    return getComputedStyle(probe).color;
  };
  const inks = { series: ["1", "2", "3", "4", "5", "6"].map(read), axis: read("axis"), grid: read("grid") };
  probe.remove();
  return inks;
}

export function number(value) {
  if (value == null || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (value !== 0 && (size >= 1e7 || size < 1e-4)) return value.toExponential(3);
  return String(Number(value.toPrecision(5)));
}

// Exponential moving average that does not start at 0, as TensorBoard smooths.
function smoothed(values, weight) {
  let sum = 0;
  let norm = 0;
  return values.map((value) => {
    if (value == null) return null;
    sum = sum * weight + value * (1 - weight);
    norm = norm * weight + (1 - weight);
    return sum / norm;
  });
}

function tables(series) {
  const x = across.value;
  const weight = Number(smooth.value);
  const positive = (value) => (logarithmic.checked && value <= 0 ? null : value);
  const table = (one, values) => [one[x], values.map(positive)];
  const drawn = series.map((one) => table(one, weight > 0 ? smoothed(one.value, weight) : one.value));
  const raw = weight > 0 ? series.map((one) => table(one, one.value)) : [];
  return uPlot.join([...drawn, ...raw]);
}

class Chart {
  constructor(name) {
    this.name = name;
    this.box = document.createElement("figure");
    this.box.className = "chart";
    this.box.innerHTML = "<figcaption><h3></h3><div class=legend></div></figcaption><div class=plot></div>";
    this.box.querySelector("h3").textContent = name;
    this.hidden = new Set();
    this.shape = "";
  }

  // Series as the server gave them; the plot is made anew only when its shape changes.
  update(series) {
    this.series = series;
    const shape = JSON.stringify([series.map((one) => one.name), across.value, logarithmic.checked, Number(smooth.value) > 0]);
    if (shape !== this.shape) this.make(shape);
    else this.plot.setData(tables(series), !zoom);
    if (zoom) this.plot.setScale("x", zoom);
    this.legend();
  }

  make(shape) {
    this.shape = shape;
    this.plot?.destroy();
    const inks = colours();
    const colour = (at) => inks.series[at % inks.series.length];
    const line = (one, at) => ({ label: one.name, stroke: colour(at), width: 1.75, spanGaps: true, show: !this.hidden.has(one.name), points: { show: one.value.length < 2, size: 6 } });
    const faint = (one, at) => ({ ...line(one, at), alpha: 0.25, width: 1, points: { show: false } });
    const axis = { stroke: inks.axis, grid: { stroke: inks.grid, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const time = across.value === "at";
    const whole = (plot, splits) => splits.map((value) => (Number.isInteger(value) ? value.toLocaleString() : ""));
    const options = {
      width: Math.max(200, this.box.clientWidth - 24),
      height: 190,
      ms: 1,
      legend: { show: false },
      cursor: { sync: { key: "job", setSeries: false }, points: { size: 7 }, drag: { x: true, y: false, dist: 6 } },
      scales: { x: { time }, y: { distr: logarithmic.checked ? 3 : 1 } },
      axes: [
        { ...axis, size: 30, space: 60, ...(time ? {} : { values: whole }) },
        { ...axis, size: 56, values: (plot, splits) => splits.map((value) => (value == null ? "" : number(value))) },
      ],
      series: [{}, ...this.series.map(line), ...(Number(smooth.value) > 0 ? this.series.map(faint) : [])],
      hooks: {
        setCursor: [() => this.legend()],
        setSelect: [(plot) => plot.select.width > 0 && zoomTo({ min: plot.posToVal(plot.select.left, "x"), max: plot.posToVal(plot.select.left + plot.select.width, "x") })],
      },
    };
    this.plot = new uPlot(options, tables(this.series), this.box.querySelector(".plot"));
    this.plot.over.addEventListener("dblclick", () => zoomTo(null));
    this.inks = colour;
    this.keys = null;
  }

  // Name and value of each series: where the pointer is, else the last one. A click hides or shows.
  legend() {
    const at = this.plot.cursor.idx;
    const legend = this.box.querySelector(".legend");
    if (!this.keys) {
      this.keys = this.series.map((one, index) => {
        const key = document.createElement("button");
        key.type = "button";
        key.append(document.createElement("i"), document.createElement("span"), document.createElement("b"));
        key.firstChild.style.background = this.inks(index);
        key.children[1].textContent = one.name;
        key.addEventListener("click", () => {
          if (!this.hidden.delete(one.name)) this.hidden.add(one.name);
          this.plot.setSeries(index + 1, { show: !this.hidden.has(one.name) });
          if (Number(smooth.value) > 0) this.plot.setSeries(index + 1 + this.series.length, { show: !this.hidden.has(one.name) });
          this.legend();
        });
        return key;
      });
      legend.replaceChildren(...this.keys);
    }
    this.keys.forEach((key, index) => {
      const values = this.plot.data[index + 1];
      let value = at == null ? undefined : values[at];
      if (at == null) for (let last = values.length - 1; last >= 0 && value == null; last--) value = values[last];
      key.lastChild.textContent = number(value);
      key.setAttribute("aria-pressed", String(!this.hidden.has(this.series[index].name)));
    });
    const x = this.plot.data[0][at];
    const where = across.value === "at" ? new Date(x).toLocaleTimeString() : `step ${Number(x).toLocaleString()}`;
    this.box.querySelector("h3").textContent = at == null || x == null ? this.name : `${this.name} · ${where}`;
  }

  resize() {
    this.plot?.setSize({ width: Math.max(200, this.box.clientWidth - 24), height: 190 });
  }
}

function draw() {
  if (!answer) return;
  const families = Map.groupBy ? Map.groupBy(answer.series, (one) => family(one.metric)) : group(answer.series);
  for (const [name, series] of families) {
    if (!charts.has(name)) {
      charts.set(name, new Chart(name));
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
