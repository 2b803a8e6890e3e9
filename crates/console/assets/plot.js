// Charts of series: what charts.js draws of a job and compare.js of several runs.

// The page's colours, as `beside` has them.
export function colours(beside) {
  const probe = document.createElement("span");
  beside.after(probe);
  const read = (name) => {
    probe.className = `ink-${name}`;
    return getComputedStyle(probe).color;
  };
  const inks = { series: ["1", "2", "3", "4", "5", "6"].map(read), axis: read("axis"), grid: read("grid"), ink: read("ink"), panel: read("panel"), good: read("good") };
  probe.remove();
  return inks;
}

// The colours that study.js draws in.
export function looks(beside) {
  const inks = colours(beside);
  const dark = (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  return { ink: inks.ink, quiet: inks.axis, line: inks.grid, ground: inks.panel, good: inks.good, dark };
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

// A column of x values and one of y values for each series, joined; smoothed, with the raw ones behind them.
function tables(series, view) {
  const positive = (value) => (view.logarithmic && value <= 0 ? null : value);
  const table = (one, values) => {
    const [x, y] = view.points(one, values);
    return [x, y.map(positive)];
  };
  const drawn = series.map((one) => table(one, view.smooth > 0 ? smoothed(one.value, view.smooth) : one.value));
  const raw = view.smooth > 0 ? series.map((one) => table(one, one.value)) : [];
  return uPlot.join([...drawn, ...raw]);
}

// A chart of some series. `view` has how: `points(series, values)` is its x and y; `isTime`, `logarithmic`, `smooth`, `zoom`; `where(x)` names a place; `zoomTo(range)` is called
// when a stretch is chosen; `ink(series, at)` is the number of a colour.
export class Chart {
  constructor(name, view) {
    this.view = view;
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
    const shape = JSON.stringify([series.map((one) => one.name), this.view.across, this.view.logarithmic, this.view.smooth > 0]);
    if (shape !== this.shape) this.make(shape);
    else this.plot.setData(tables(series, this.view), !this.view.zoom);
    if (this.view.zoom) this.plot.setScale("x", this.view.zoom);
    this.legend();
  }

  make(shape) {
    this.shape = shape;
    this.plot?.destroy();
    const inks = colours(this.box);
    const colour = (at) => inks.series[this.view.ink(this.series[at], at) % inks.series.length];
    const dash = (at) => this.view.dash?.(this.series[at], at);
    const line = (one, at) => ({ label: one.name, stroke: colour(at), width: 1.75, dash: dash(at), spanGaps: true, show: !this.hidden.has(one.name), points: { show: one.value.length < 2, size: 6 } });
    const faint = (one, at) => ({ ...line(one, at), alpha: 0.25, width: 1, points: { show: false } });
    const axis = { stroke: inks.axis, grid: { stroke: inks.grid, width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const time = this.view.isTime;
    const whole = (plot, splits) => splits.map((value) => (Number.isInteger(value) ? value.toLocaleString() : ""));
    const options = {
      width: Math.max(200, this.box.clientWidth - 24),
      height: 190,
      ms: 1,
      legend: { show: false },
      cursor: { sync: { key: "charts", setSeries: false }, points: { size: 7 }, drag: { x: true, y: false, dist: 6 } },
      scales: { x: { time }, y: { distr: this.view.logarithmic ? 3 : 1 } },
      axes: [
        { ...axis, size: 30, space: 60, ...(time ? {} : { values: this.view.tick ?? whole }) },
        { ...axis, size: 56, values: (plot, splits) => splits.map((value) => (value == null ? "" : number(value))) },
      ],
      series: [{}, ...this.series.map(line), ...(this.view.smooth > 0 ? this.series.map(faint) : [])],
      hooks: {
        setCursor: [() => this.legend()],
        setSelect: [(plot) => plot.select.width > 0 && this.view.zoomTo({ min: plot.posToVal(plot.select.left, "x"), max: plot.posToVal(plot.select.left + plot.select.width, "x") })],
      },
    };
    this.plot = new uPlot(options, tables(this.series, this.view), this.box.querySelector(".plot"));
    this.plot.over.addEventListener("dblclick", () => this.view.zoomTo(null));
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
          if (this.view.smooth > 0) this.plot.setSeries(index + 1 + this.series.length, { show: !this.hidden.has(one.name) });
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
    this.box.querySelector("h3").textContent = at == null || x == null ? this.name : `${this.name} · ${this.view.where(x)}`;
  }

  resize() {
    this.plot?.setSize({ width: Math.max(200, this.box.clientWidth - 24), height: 190 });
  }
}
