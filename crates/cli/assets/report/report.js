// Draws the charts of a tuning report. Everything it shows is in the page's own data.
"use strict";
(() => {
  const study = JSON.parse(document.getElementById("study").textContent);
  const style = getComputedStyle(document.documentElement);
  const color = name => style.getPropertyValue(name).trim();
  const ink = color("--ink"), quiet = color("--quiet"), line = color("--line");
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const blue = dark ? "#56b4e9" : "#0072b2";
  // Told apart by shape as well as by colour (Okabe and Ito's palette).
  const looks = {
    Completed: { color: blue, symbol: "circle" },
    Stopped: { color: "#e69f00", symbol: "triangle" },
    MaxResource: { color: "#56b4e9", symbol: "triangle" },
    Cancelled: { color: "#cc79a7", symbol: "emptyCircle" },
    Failed: { color: "#d55e00", symbol: "rect" },
    Running: { color: "#009e73", symbol: "diamond" },
    Paused: { color: "#999999", symbol: "diamond" },
    Waiting: { color: "#999999", symbol: "emptyCircle" },
  };
  const named = state => ({ Stopped: "Stopped early", MaxResource: "Stopped at MaxResource" })[state] ?? state;
  const maximize = study.maximize;
  const better = (a, b) => maximize ? a > b : a < b;
  const number = value => value === null || value === undefined ? "-" : Number(value.toPrecision(6)).toString();
  const rounded = text => text.length > 9 && text.trim() !== "" && isFinite(text) && !Number.isInteger(Number(text)) ? number(Number(text)) : text;
  const escaped = text => String(text).replace(/[&<>"']/g, c => "&#" + c.charCodeAt(0) + ";");
  const charts = [];

  function draw(id, option) {
    const place = document.getElementById(id);
    if (!place) return;
    const chart = echarts.init(place, null, { renderer: "canvas" });
    chart.setOption({
      // Nothing moves: what is seen first, or printed, is what there is.
      animation: false, backgroundColor: "transparent", textStyle: { color: ink, fontFamily: "system-ui, sans-serif" },
      aria: { enabled: true }, ...option,
    });
    charts.push(chart);
  }
  const axis = (name, extra) => ({
    name, nameLocation: "middle", nameGap: 30, nameTextStyle: { color: quiet }, axisLine: { lineStyle: { color: quiet } }, axisLabel: { color: quiet },
    splitLine: { lineStyle: { color: line } }, scale: true, ...extra,
  });
  const legend = { textStyle: { color: ink }, top: 0, itemWidth: 16, itemHeight: 10 };
  const grid = { left: 70, right: 24, top: 36, bottom: 50 };
  const bare = { ...grid, top: 12 };
  const narrow = innerWidth < 640;
  const tip = trial => `<b>${escaped(trial.name)}</b><br>${escaped(named(trial.state))}, ${trial.astray ? "nan" : number(trial.value)}<br>` +
    study.parameters.filter(p => p.name in trial.values).map(p => `${escaped(p.name)} = ${escaped(rounded(trial.values[p.name]))}`).join("<br>");

  // The objective over time, and the best so far.
  const ended = study.trials.filter(t => t.value !== null && t.at !== null).sort((a, b) => a.at - b.at);
  const best = [];
  // What a failed program said last is no result.
  for (const trial of ended.filter(t => t.state !== "Failed")) {
    if (!best.length || better(trial.value, best[best.length - 1][1])) best.push([trial.at, trial.value]);
  }
  if (best.length) best.push([ended[ended.length - 1].at, best[best.length - 1][1]]);
  draw("over-time", {
    grid, legend, tooltip: { trigger: "item", formatter: p => p.data.trial ? tip(p.data.trial) : number(p.data[1]) },
    xAxis: axis("seconds since the start", { type: "value", min: 0, scale: false }), yAxis: axis(study.metric, { type: "value", nameGap: 52 }),
    series: [
      ...Object.keys(looks).filter(state => ended.some(t => t.state === state)).map(state => ({
        name: named(state), type: "scatter", symbolSize: 9, symbol: looks[state].symbol, itemStyle: { color: looks[state].color, opacity: .8 },
        data: ended.filter(t => t.state === state).map(trial => ({ value: [trial.at, trial.value], trial })),
      })),
      { name: "best so far", type: "line", step: "end", showSymbol: false, lineStyle: { width: 2, color: ink }, itemStyle: { color: ink }, data: best },
    ],
  });

  // Learning curves. Those that were stopped end in a mark.
  const curved = study.trials.filter(t => t.curve.length > 1);
  draw("curves", {
    grid: bare, tooltip: { trigger: "item", formatter: p => tip(curved[p.seriesIndex]) },
    xAxis: axis("units of resource", { type: "value", scale: false }), yAxis: axis(study.metric, { type: "value", nameGap: 52 }),
    series: curved.map(trial => ({
      type: "line", data: trial.curve, showSymbol: true, symbolSize: (_, p) => p.dataIndex === trial.curve.length - 1 ? 7 : 0,
      symbol: looks[trial.state].symbol, itemStyle: { color: looks[trial.state].color }, triggerLineEvent: true,
      lineStyle: { width: trial.best ? 3 : 1, opacity: trial.best ? 1 : .7, color: trial.best ? color("--good") : looks[trial.state].color },
      z: trial.best ? 10 : 2, emphasis: { lineStyle: { width: 3, opacity: 1 } },
    })),
  });

  // How many trials came how far.
  draw("rungs", {
    grid, tooltip: { trigger: "axis" }, legend,
    xAxis: axis("units of resource reached", { type: "category", data: study.rungs.map(r => String(r.resource)) }),
    yAxis: axis("trials", { type: "value", minInterval: 1, scale: false }),
    series: [
      { name: "came at least this far", type: "bar", data: study.rungs.map(r => r.reached), itemStyle: { color: "#56b4e9" } },
      { name: "ended here", type: "bar", data: study.rungs.map(r => r.ended), itemStyle: { color: "#e69f00" } },
    ],
  });

  // Parallel coordinates: one line per trial.
  const valued = study.trials.filter(t => t.value !== null);
  if (valued.length) {
    const axes = study.parameters.map((p, dim) => ({
      dim, name: p.name, nameTextStyle: { color: ink }, axisLabel: { color: quiet }, axisLine: { lineStyle: { color: quiet } },
      ...(p.values ? { type: "category", data: p.values } : { type: p.log ? "log" : "value", scale: true, min: p.min, max: p.max }),
    }));
    axes.push({ dim: axes.length, name: study.metric, type: "value", scale: true, nameTextStyle: { color: ink }, axisLabel: { color: quiet } });
    const sorted = valued.map(t => t.value).sort((a, b) => a - b);
    // Outliers must not take all the colours.
    const at = q => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))];
    const scale = dark ? ["#9d6fe0", "#4f8fd0", "#35b779", "#f5d33c"] : ["#440154", "#31688e", "#35b779", "#e3b505"];
    draw("parallel", {
      tooltip: {}, parallelAxis: axes,
      parallel: { left: narrow ? 40 : 60, right: narrow ? 50 : 190, top: 40, bottom: narrow ? 80 : 30, parallelAxisDefault: { nameLocation: "end" } },
      visualMap: {
        show: true, ...(narrow ? { orient: "horizontal", left: "center", bottom: 0 } : { right: 0, top: "middle" }), min: at(.05), max: Math.max(at(.95), at(.05) + 1e-12), dimension: axes.length - 1, calculable: true,
        precision: 4, inRange: { color: maximize ? scale : scale.slice().reverse() }, textStyle: { color: ink },
      },
      series: [{
        type: "parallel", lineStyle: { width: 1.5, opacity: .7 }, emphasis: { lineStyle: { width: 4, opacity: 1 } },
        data: valued.map(t => ({
          value: [...study.parameters.map(p => p.name in t.values ? (p.values ? t.values[p.name] : Number(t.values[p.name])) : "-"), t.value],
          name: t.name,
        })),
      }],
    });
  }

  // What mattered.
  const important = study.importance.slice().reverse();
  draw("importance", {
    grid: { ...bare, left: narrow ? 90 : 150 }, tooltip: { trigger: "axis", valueFormatter: v => (100 * v).toFixed(1) + " %" },
    xAxis: axis("share of the variation explained", { type: "value", scale: false, axisLabel: { color: quiet, hideOverlap: true, formatter: v => (100 * v).toFixed(0) + " %" } }),
    yAxis: axis("", { type: "category", data: important.map(i => i.name) }),
    series: [{ type: "bar", data: important.map(i => i.weight), barMaxWidth: 40, itemStyle: { color: blue } }],
  });

  // The Pareto front of the first two objectives.
  if (study.objectives.length > 1) {
    const points = study.trials.filter(t => t.objectives.length > 1);
    const series = (name, chosen, extra) => ({
      name, type: "scatter", symbolSize: 9, data: points.filter(chosen).map(trial => ({ value: trial.objectives, trial })), ...extra,
    });
    const front = points.filter(t => t.front).map(t => t.objectives).sort((a, b) => a[0] - b[0]);
    draw("pareto", {
      grid, legend, tooltip: { trigger: "item", formatter: p => p.data.trial ? tip(p.data.trial) : "" },
      xAxis: axis(study.objectives[0].name, { type: "value" }), yAxis: axis(study.objectives[1].name, { type: "value", nameGap: 52 }),
      series: [
        series("others", t => !t.front, { itemStyle: { color: "#999999" } }),
        series("on the front", t => t.front, { itemStyle: { color: "#d55e00" }, symbol: "diamond" }),
        { name: "front", type: "line", step: "end", data: front, showSymbol: false, lineStyle: { color: "#d55e00" }, itemStyle: { color: "#d55e00" } },
      ],
    });
  }

  addEventListener("resize", () => charts.forEach(chart => chart.resize()));

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
  document.body.dataset.drawn = charts.length;
})();
