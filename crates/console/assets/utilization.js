// What instances use: a chart for each metric, a line for each host, GPU and rank, across time.

import { colours, number } from "./plot.js";

const holder = document.getElementById("utilization-charts");
const charts = new Map();
let answer = null;

function amount(unit, value) {
  if (value == null) return "–";
  if (unit === "%") return `${number(Number(value.toPrecision(3)))} %`;
  const units = [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]];
  const [name, factor] = units.find(([, factor]) => value >= factor) ?? ["B", 1];
  return `${number(Number((value / factor).toPrecision(3)))} ${name}${unit === "B/s" ? "/s" : ""}`;
}

class Chart {
  constructor(name) {
    this.box = document.createElement("figure");
    this.box.className = "chart";
    this.box.innerHTML = "<figcaption><h3></h3><div class=legend></div></figcaption><div class=plot></div>";
    this.box.querySelector("h3").textContent = name;
    this.names = "";
  }

  update({ unit, lines }) {
    const data = uPlot.join(lines.map((line) => [line.at, line.value]));
    const names = JSON.stringify(lines.map((line) => line.name));
    if (names === this.names) this.plot.setData(data);
    else this.make(names, unit, lines, data);
    this.keys.forEach((key, index) => {
      key.lastChild.textContent = amount(unit, lines[index].value.at(-1));
    });
  }

  make(names, unit, lines, data) {
    this.names = names;
    this.plot?.destroy();
    const inks = colours(holder);
    const colour = (at) => inks.series[at % inks.series.length];
    const axis = { stroke: inks.axis, grid: { stroke: inks.grid, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const options = {
      width: Math.max(200, this.box.clientWidth - 24),
      height: 150,
      ms: 1,
      legend: { show: false },
      cursor: { sync: { key: "utilization", setSeries: false }, points: { size: 7 } },
      scales: { x: { time: true }, y: { range: (plot, low, high) => [0, Math.max(high * 1.05, unit === "%" ? 1 : 1024)] } },
      axes: [{ ...axis, size: 30, space: 60 }, { ...axis, size: 64, values: (plot, splits) => splits.map((value) => amount(unit, value)) }],
      series: [{}, ...lines.map((line, at) => ({ label: line.name, stroke: colour(at), width: 1.5, spanGaps: true, points: { show: line.value.length < 2, size: 6 } }))],
    };
    this.plot = new uPlot(options, data, this.box.querySelector(".plot"));
    this.keys = lines.map((line, at) => {
      const key = document.createElement("button");
      key.type = "button";
      key.append(document.createElement("i"), document.createElement("span"), document.createElement("b"));
      key.firstChild.style.background = colour(at);
      key.children[1].textContent = line.name;
      key.setAttribute("aria-pressed", "true");
      key.addEventListener("click", () => {
        const show = key.getAttribute("aria-pressed") === "false";
        key.setAttribute("aria-pressed", String(show));
        this.plot.setSeries(at + 1, { show });
      });
      return key;
    });
    this.box.querySelector(".legend").replaceChildren(...this.keys);
  }

  resize() {
    this.plot?.setSize({ width: Math.max(200, this.box.clientWidth - 24), height: 150 });
  }
}

function draw() {
  for (const chart of answer?.charts ?? []) {
    if (!charts.has(chart.name)) {
      charts.set(chart.name, new Chart(chart.name));
      holder.append(charts.get(chart.name).box);
    }
    charts.get(chart.name).update(chart);
  }
  // The table has the same for those who do not see charts.
  document.getElementById("no-utilization")?.toggleAttribute("hidden", charts.size > 0);
}

function remake() {
  for (const chart of charts.values()) chart.names = "";
  draw();
}

let waiting = false;

// Instances report every few seconds: what comes in between is awaited once.
async function moved() {
  if (waiting) return;
  waiting = true;
  const response = await fetch(holder.dataset.utilization).catch(() => null);
  if (response?.ok) {
    answer = await response.json();
    draw();
  }
  setTimeout(() => {
    waiting = false;
  }, 2000);
}

document.addEventListener("shoal:series", moved);
document.addEventListener("shoal:theme", remake);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", remake);
new ResizeObserver(() => charts.forEach((chart) => chart.resize())).observe(holder);
moved();
