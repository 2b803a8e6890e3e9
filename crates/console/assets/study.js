// Pictures of a search and of runs: objective over time, learning curves, rungs, parallel coordinates, importance, the Pareto front. For the page of `shoal tuning report`, where this
// stands inside the page, and for the console. uPlot has the canvas, the scales and the axes; marks are painted here.
"use strict";
// Draws each picture that `root` has an element for, by its id; returns what makes them fit their elements, and what removes them.
// The last argument has the page's colours.
globalThis.shoalStudy = (study, root, { ink, quiet, line, ground, good, dark }) => {
  const narrow = innerWidth < 640;
  const font = "12px system-ui, sans-serif";
  const blue = dark ? "#56b4e9" : "#0072b2";
  // Told apart by shape as well as by colour (Okabe and Ito's palette).
  const looks = {
    Completed: { color: blue, shape: "●" },
    Stopped: { color: "#e69f00", shape: "▲" },
    MaxResource: { color: "#56b4e9", shape: "▲" },
    Cancelled: { color: "#cc79a7", shape: "○" },
    Failed: { color: "#d55e00", shape: "■" },
    Running: { color: "#009e73", shape: "◆" },
    Paused: { color: "#999999", shape: "◆" },
    Waiting: { color: "#999999", shape: "○" },
  };
  const named = state => ({ Stopped: "Stopped early", MaxResource: "Stopped at MaxResource" })[state] ?? state;
  const maximize = study.maximize;
  const better = (a, b) => maximize ? a > b : a < b;
  const number = value => value === null || value === undefined ? "-" : Number(value.toPrecision(6)).toString();
  const percent = value => (100 * value).toFixed(1) + " %";
  const rounded = text => text.length > 9 && text.trim() !== "" && isFinite(text) && !Number.isInteger(Number(text)) ? number(Number(text)) : text;
  const cut = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;
  const tip = trial => [
    trial.name, `${named(trial.state)}, ${trial.astray ? "nan" : number(trial.value)}`,
    ...study.parameters.filter(p => p.name in trial.values).map(p => `${p.name} = ${rounded(trial.values[p.name])}`),
  ].join("\n");
  const charts = [], removals = [];

  // What `paint` puts on the canvas: shapes at places in pixels, and lines through places in values.
  function brush(plot) {
    const context = plot.ctx, ratio = devicePixelRatio;
    const x = value => plot.valToPos(value, "x", true), y = value => plot.valToPos(value, "y", true);
    const shapes = {
      "●": (x, y, r) => context.arc(x, y, r, 0, 2 * Math.PI),
      "○": (x, y, r) => context.arc(x, y, r, 0, 2 * Math.PI),
      "■": (x, y, r) => context.rect(x - r, y - r, 2 * r, 2 * r),
      "▲": (x, y, r) => { context.moveTo(x, y - r); context.lineTo(x + r, y + r); context.lineTo(x - r, y + r); context.closePath(); },
      "◆": (x, y, r) => { context.moveTo(x, y - r); context.lineTo(x + r, y); context.lineTo(x, y + r); context.lineTo(x - r, y); context.closePath(); },
    };
    return {
      mark(at, look) {
        context.beginPath();
        shapes[look.shape](x(at[0]), y(at[1]), 4.5 * ratio);
        context.fillStyle = look.shape === "○" ? ground : look.color;
        context.strokeStyle = look.color;
        context.lineWidth = ratio;
        context.fill();
        context.stroke();
      },
      line(points, color, { width = 1, alpha = 1, steps = false } = {}) {
        context.beginPath();
        points.forEach((point, index) => {
          if (steps && index) context.lineTo(x(point[0]), y(points[index - 1][1]));
          context[index ? "lineTo" : "moveTo"](x(point[0]), y(point[1]));
        });
        Object.assign(context, { strokeStyle: color, lineWidth: width * ratio, globalAlpha: alpha, lineJoin: "round" });
        context.stroke();
        context.globalAlpha = 1;
      },
      bar(from, to, color) {
        context.fillStyle = color;
        context.fillRect(Math.min(x(from[0]), x(to[0])), Math.min(y(from[1]), y(to[1])), Math.abs(x(to[0]) - x(from[0])), Math.abs(y(to[1]) - y(from[1])));
      },
      text(text, at, align, down) {
        Object.assign(context, { font: `${12 * ratio}px system-ui, sans-serif`, fillStyle: quiet, textAlign: align, textBaseline: "middle" });
        // Readable on the lines behind it.
        Object.assign(context, { strokeStyle: ground, lineWidth: 4 * ratio, lineJoin: "round" });
        context.strokeText(text, x(at[0]), y(at[1]) + down * ratio);
        context.fillText(text, x(at[0]), y(at[1]) + down * ratio);
      },
    };
  }

  // `points`: what scales must hold, as [x, y]; `targets`: places with a text that shows while the pointer is within `reach` pixels; `keys`: a legend of [shape, colour, name].
  function draw(id, { points, targets = [], keys = [], x, y, paint, zooms = true, reach = 20 }) {
    const holder = root.querySelector(`#${id}`);
    if (!holder) return;
    const legend = document.createElement("div"), bubble = document.createElement("div");
    legend.className = "legend";
    bubble.className = "tip";
    bubble.hidden = true;
    legend.append(...keys.map(([shape, color, name]) => {
      const key = document.createElement("span"), sign = document.createElement("i");
      sign.textContent = shape;
      sign.style.color = color;
      key.append(sign, ` ${name}`);
      return key;
    }));
    holder.append(legend);
    const height = holder.classList.contains("tall") ? 460 : holder.classList.contains("low") ? 250 : 370;
    const size = () => ({ width: holder.clientWidth, height });
    const axis = { stroke: quiet, font, labelFont: font, labelSize: 20, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const sorted = points.slice().sort((a, b) => a[0] - b[0]);
    const plot = new uPlot({
      ...size(), legend: { show: false }, padding: [12, 12, 0, 0],
      cursor: { x: false, y: false, points: { show: false }, drag: { x: zooms, y: false } },
      scales: { x: { time: false, ...x.scale }, y: { ...y.scale } },
      axes: [{ ...axis, ...x.axis }, { ...axis, size: 64, ...y.axis }],
      series: [{}, { paths: () => null, points: { show: false } }],
      hooks: {
        draw: [plot => {
          const { left, top, width, height } = plot.bbox;
          plot.ctx.save();
          plot.ctx.beginPath();
          plot.ctx.rect(left - 8, top - 8, width + 16, height + 16);
          plot.ctx.clip();
          paint(brush(plot));
          plot.ctx.restore();
        }],
        setCursor: [plot => {
          const { left, top } = plot.cursor;
          let near = null, least = reach;
          for (const target of left < 0 ? [] : targets) {
            const distance = Math.hypot(plot.valToPos(target.at[0], "x") - left, plot.valToPos(target.at[1], "y") - top);
            if (distance < least) [near, least] = [target, distance];
          }
          bubble.hidden = !near;
          if (!near) return;
          bubble.textContent = near.text;
          bubble.style.left = Math.max(0, Math.min(left + 12, plot.over.clientWidth - bubble.offsetWidth)) + "px";
          bubble.style.top = top + 12 + "px";
        }],
      },
    }, [sorted.map(p => p[0]), sorted.map(p => p[1])], holder);
    plot.over.append(bubble);
    charts.push(() => plot.setSize(size()));
    removals.push(() => {
      plot.destroy();
      holder.replaceChildren();
    });
  }
  const labelled = label => ({ axis: { label } });
  const look = trial => looks[trial.state];
  const keysOf = trials => Object.keys(looks).filter(state => trials.some(t => t.state === state)).map(state => [looks[state].shape, looks[state].color, named(state)]);

  // The objective over time, and the best so far.
  const ended = study.trials.filter(t => t.value !== null && t.at !== null).sort((a, b) => a.at - b.at);
  const best = [];
  // What a failed program said last is no result.
  for (const trial of ended.filter(t => t.state !== "Failed")) {
    if (!best.length || better(trial.value, best[best.length - 1][1])) best.push([trial.at, trial.value]);
  }
  if (best.length) best.push([ended[ended.length - 1].at, best[best.length - 1][1]]);
  const marks = ended.map(trial => ({ at: [trial.at, trial.value], text: tip(trial), look: look(trial) }));
  draw("over-time", {
    points: [[0, ended[0]?.value ?? null], ...marks.map(m => m.at)], targets: marks, keys: [...keysOf(ended), ["━", ink, "best so far"]],
    x: labelled("seconds since the start"), y: labelled(study.metric),
    paint: brush => {
      brush.line(best, ink, { width: 2, steps: true });
      marks.forEach(m => brush.mark(m.at, m.look));
    },
  });

  // Learning curves. Those that were stopped end in a mark; the best one is on top.
  const curved = study.trials.filter(t => t.curve.length > 1).sort((a, b) => a.best - b.best);
  draw("curves", {
    points: curved.flatMap(t => t.curve), targets: curved.flatMap(t => t.curve.map(at => ({ at, text: tip(t) }))),
    keys: [...keysOf(curved), ["━", good, "the best trial"]], x: labelled("units of resource"), y: labelled(study.metric),
    paint: brush => curved.forEach(t => {
      brush.line(t.curve, t.best ? good : look(t).color, t.best ? { width: 3 } : { alpha: .7 });
      brush.mark(t.curve[t.curve.length - 1], look(t));
    }),
  });

  // How many trials came how far.
  const rungs = study.rungs.map((rung, at) => ({ ...rung, at }));
  const whole = (_, splits) => splits.map(value => Number.isInteger(value) ? value : "");
  draw("rungs", {
    points: [[-.6, 0], ...rungs.map(r => [r.at, r.reached]), [rungs.length - .4, 0]],
    targets: rungs.map(r => ({ at: [r.at, r.reached / 2], text: `${r.resource}: ${r.reached} came at least this far, ${r.ended} ended here` })),
    keys: [["■", "#56b4e9", "came at least this far"], ["■", "#e69f00", "ended here"]], zooms: false, reach: 80,
    x: { axis: { label: "units of resource reached", splits: () => rungs.map(r => r.at), values: () => rungs.map(r => String(r.resource)), grid: { show: false } } },
    y: { axis: { label: "trials", values: whole } },
    paint: brush => rungs.forEach(r => {
      brush.bar([r.at - .36, 0], [r.at - .02, r.reached], "#56b4e9");
      brush.bar([r.at + .02, 0], [r.at + .36, r.ended], "#e69f00");
    }),
  });

  // Parallel coordinates: one line per trial, through a vertical axis for each hyperparameter and one for the objective.
  const valued = study.trials.filter(t => t.value !== null);
  const results = valued.map(t => t.value).sort((a, b) => a - b);
  const spread = (value, min, max) => max > min ? (value - min) / (max - min) : .5;
  const lanes = study.parameters.map(p => {
    const scale = p.log ? Math.log : Number;
    const ends = p.values ? p.values.map((value, at) => [value, spread(at, 0, p.values.length - 1)]) : [[number(p.min), 0], [number(p.max), 1]];
    const place = text => p.values ? spread(p.values.indexOf(text), 0, p.values.length - 1) : spread(scale(Number(text)), scale(p.min), scale(p.max));
    return { name: p.name, ends, of: t => p.name in t.values ? place(t.values[p.name]) : null };
  });
  const [lowest, highest] = [results[0], results[results.length - 1]];
  lanes.push({ name: study.metric, ends: [[number(lowest), 0], [number(highest), 1]], of: t => spread(t.value, lowest, highest) });
  // Outliers must not take all the colours.
  const quantile = q => results[Math.min(results.length - 1, Math.floor(q * results.length))];
  const stops = dark ? ["#9d6fe0", "#4f8fd0", "#35b779", "#f5d33c"] : ["#440154", "#31688e", "#35b779", "#e3b505"];
  const ramp = maximize ? stops : stops.slice().reverse();
  const shade = value => {
    const at = (ramp.length - 1) * Math.min(1, Math.max(0, spread(value, quantile(.05), quantile(.95))));
    const parts = index => [1, 3, 5].map(from => parseInt(ramp[Math.min(index, ramp.length - 1)].slice(from, from + 2), 16));
    const [low, high] = [parts(Math.floor(at)), parts(Math.floor(at) + 1)];
    return `rgb(${low.map((part, n) => Math.round(part + (high[n] - part) * (at % 1))).join(" ")})`;
  };
  const paths = valued.map(trial => ({ trial, points: lanes.map((lane, at) => [at, lane.of(trial)]).filter(point => point[1] !== null) }));
  const names = lanes.map(lane => cut(lane.name, narrow ? 10 : 24));
  draw("parallel", {
    points: lanes.flatMap((_, at) => [[at, 0], [at, 1]]), targets: paths.flatMap(path => path.points.map(at => ({ at, text: tip(path.trial) }))), zooms: false,
    keys: [.05, .35, .65, .95].map(quantile).filter((value, at, all) => at === 0 || value !== all[at - 1]).map(value => ["━", shade(value), number(value)]),
    x: { scale: { range: () => [-.4, lanes.length - .6] }, axis: { side: 0, splits: () => lanes.map((_, at) => at), values: () => names, grid: { stroke: quiet, width: 1 }, stroke: ink } },
    y: { scale: { range: () => [-.08, 1.08] }, axis: { show: false } },
    paint: brush => {
      paths.forEach(path => brush.line(path.points, shade(path.trial.value), path.trial.best ? { width: 3 } : { width: 1.5, alpha: .7 }));
      lanes.forEach((lane, at) => lane.ends.forEach(([text, place]) => brush.text(cut(text, 12), [at, place], "center", place === 1 ? -12 : 12)));
    },
  });

  // What mattered.
  const important = study.importance.slice().reverse();
  draw("importance", {
    points: [[0, -.6], ...important.map((it, at) => [it.weight, at]), [0, important.length - .4]],
    targets: important.map((it, at) => ({ at: [it.weight / 2, at], text: `${it.name}: ${percent(it.weight)}` })), zooms: false, reach: 80,
    x: { scale: { range: (_, min, max) => [0, max * 1.05 || 1] }, axis: { label: "share of the variation explained", values: (_, splits) => splits.map(value => Math.round(100 * value) + " %") } },
    y: {
      scale: { range: () => [-.6, important.length - .4] },
      axis: { size: narrow ? 90 : 150, splits: () => important.map((_, at) => at), values: () => important.map(it => cut(it.name, narrow ? 11 : 18)), grid: { show: false } },
    },
    paint: brush => important.forEach((it, at) => brush.bar([0, at - .3], [it.weight, at + .3], blue)),
  });

  // The Pareto front of the first two objectives.
  const scored = study.objectives.length > 1 ? study.trials.filter(t => t.objectives.length > 1) : [];
  const front = scored.filter(t => t.front).map(t => t.objectives).sort((a, b) => a[0] - b[0]);
  const [others, chosen] = [{ shape: "●", color: "#999999" }, { shape: "◆", color: "#d55e00" }];
  draw("pareto", {
    points: scored.map(t => t.objectives), targets: scored.map(t => ({ at: t.objectives, text: tip(t) })),
    keys: [[others.shape, others.color, "others"], [chosen.shape, chosen.color, "on the front"]],
    x: labelled(study.objectives[0]?.name), y: labelled(study.objectives[1]?.name),
    paint: brush => {
      brush.line(front, chosen.color, { steps: true });
      scored.forEach(t => brush.mark(t.objectives, t.front ? chosen : others));
    },
  });

  return { fit: () => charts.forEach(fit => fit()), remove: () => removals.forEach(remove => remove()), drawn: charts.length };
};
