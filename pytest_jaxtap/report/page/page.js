"use strict";

// Draws plots when they come into view, fills tables of values when they are opened, filters tests.

const MARKED = 80; // points; of more, lines alone are drawn

async function unpack(text) {
  const bytes = Uint8Array.from(atob(text.trim()), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

let library = null;
function plotly() {
  library ??= unpack(document.getElementById("plotly").textContent).then((text) => {
    const script = document.createElement("script");
    script.textContent = text;
    document.head.append(script);
    return window.Plotly;
  });
  return library;
}

async function points(figure) {
  return JSON.parse(await unpack(figure.querySelector("script").textContent));
}

function color(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// -- plots

function position(data, i) {
  const at = data.steps ? data.steps[i].join(", ") : String(data.x[i]);
  return data.until && data.until[i] !== data.x[i] ? `${at} to ${data.until[i]}` : at;
}

function curve(data, name, line) {
  const side = data[name];
  if (!side) return [];
  const common = { x: data.x, type: "scatter", legendgroup: name, text: data.x.map((_, i) => position(data, i)) };
  const mode = data.x.length <= MARKED ? "lines+markers" : "lines";
  const hover = (what) => `${data.unit} %{text}: %{y}<extra>${what}</extra>`;
  const low = { ...common, y: side.low, name, mode, line, hovertemplate: hover(side.high ? `${name}, smallest` : name) };
  if (!side.high) return [low];
  const high = { ...low, y: side.high, showlegend: false, fill: "tonexty", hovertemplate: hover(`${name}, largest`) };
  return [low, high];
}

// Where a side has NaN or Inf there is nothing to draw: marks at the foot of the plot say so.
function holes(data, name, symbol, height) {
  const side = data[name] ?? {};
  return ["nan", "inf"].filter((kind) => side[kind]).map((kind) => {
    const at = data.x.map((_, i) => i).filter((i) => side[kind][i]);
    const word = kind === "nan" ? "NaN" : "Inf";
    return {
      x: at.map((i) => data.x[i]), y: at.map(() => height), yaxis: "y3", type: "scatter", mode: "markers",
      name: `${word} ${name}`, text: at.map((i) => position(data, i)),
      hovertemplate: `${data.unit} %{text}<extra>${word} ${name}</extra>`,
      marker: { symbol: kind === "nan" ? symbol : "triangle-up", size: 8, color: color(name) },
    };
  });
}

function differences(data) {
  if (!data.gap) return [];
  return [{
    x: data.x, y: data.gap, yaxis: "y2", type: "scatter", name: "difference",
    mode: data.x.length <= MARKED ? "lines+markers" : "lines", line: { color: color("gap"), width: 1.5 },
    text: data.x.map((_, i) => position(data, i)), hovertemplate: `${data.unit} %{text}: %{y}<extra>difference</extra>`,
  }];
}

function layout(data) {
  const ink = color("ink"), line = color("line"), paper = color("paper");
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, exponentformat: "e", automargin: true };
  const sizes = (data.gap ?? []).filter((gap) => gap > 0);
  const decades = sizes.length ? Math.log10(Math.max(...sizes) / Math.min(...sizes)) : 0;
  const edge = Math.max(1, data.x.at(-1) - data.x[0]) * 0.02;
  const made = {
    paper_bgcolor: paper, plot_bgcolor: paper, font: { color: ink, family: "system-ui, sans-serif", size: 13 },
    margin: { l: 80, r: 20, t: 50, b: 50 }, legend: { orientation: "h", y: 1.02, yanchor: "bottom" },
    hoverlabel: { bgcolor: color("raised"), font: { color: ink } }, shapes: [], annotations: [],
    xaxis: { ...axis, title: { text: data.steps ? "steps of the nested loops, counted through" : data.unit }, tickformat: "d",
      range: [data.x[0] - edge, data.x.at(-1) + edge], anchor: data.gap ? "y2" : "y" },
    yaxis: { ...axis, title: { text: "value" }, domain: data.gap ? [0.42, 1] : [0, 1] },
    yaxis3: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
  };
  if (data.gap) {
    const wide = decades > 2;
    const scale = wide ? { type: "log", dtick: Math.ceil(decades / 5) } : { rangemode: "tozero" };
    made.yaxis2 = { ...axis, ...scale, title: { text: wide ? "|difference|, log" : "|difference|" }, domain: [0, 0.34] };
    if (wide && data.gap.includes(0)) {
      made.annotations.push({ text: "where both are equal, nothing is drawn", showarrow: false, font: { color: color("faint"), size: 11 },
        xref: "paper", x: 1, xanchor: "right", yref: "paper", y: 0.345, yanchor: "bottom" });
    }
  }
  if (data.first !== null) {
    const x = data.x[data.first];
    made.shapes.push({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { color: color("bad"), width: 1.5, dash: "dash" } });
    const right = data.first > data.x.length / 2;
    made.annotations.push({ x, yref: "paper", y: 1, yanchor: "top", xanchor: right ? "right" : "left", showarrow: false,
      text: `first difference: ${data.unit} ${position(data, data.first)}`, font: { color: color("bad") }, bgcolor: paper });
  }
  return made;
}

async function draw(figure) {
  const [Plotly, data] = await Promise.all([plotly(), points(figure)]);
  const traces = [
    ...curve(data, "expected", { color: color("expected"), width: 5 }),
    ...curve(data, "observed", { color: color("observed"), width: 1.5 }),
    ...holes(data, "expected", "x", 0.09), ...holes(data, "observed", "cross", 0.03), ...differences(data),
  ];
  await Plotly.react(figure.querySelector("div"), traces, layout(data), { displayModeBar: false, responsive: true });
  figure.dataset.drawn = "";
}

const inView = new IntersectionObserver((entries) => {
  for (const entry of entries.filter((one) => one.isIntersecting)) {
    inView.unobserve(entry.target);
    draw(entry.target);
  }
}, { rootMargin: "300px" });
document.querySelectorAll("figure.plot").forEach((figure) => inView.observe(figure)); // those closed come into view when opened

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  document.querySelectorAll("figure.plot[data-drawn]").forEach(draw);
});

// -- tables of values

function cell(name, content, scope) {
  const made = document.createElement(name);
  made.textContent = content ?? "";
  if (scope) made.scope = scope;
  return made;
}

function told(side, i) {
  if (!side) return "";
  const words = [side.low[i] === null ? "" : String(side.low[i])];
  if (side.high && side.high[i] !== side.low[i]) words[0] += ` to ${side.high[i]}`;
  if (side.nan?.[i]) words.push(`${side.nan[i]} NaN`);
  if (side.inf?.[i]) words.push(`${side.inf[i]} Inf`);
  return words.filter(Boolean).join(", ") || "none";
}

async function fill(details) {
  const data = await points(details.closest("figure"));
  const table = document.createElement("table");
  const head = table.createTHead().insertRow();
  for (const name of [data.unit, "expected", "observed", "difference"]) head.append(cell("th", name, "col"));
  const body = table.createTBody();
  data.x.forEach((_, i) => {
    const row = body.insertRow();
    const first = i === data.first;
    row.append(cell("th", position(data, i) + (first ? " (first difference)" : ""), "row"));
    for (const side of [data.expected, data.observed]) row.append(cell("td", told(side, i)));
    row.append(cell("td", data.gap ? data.gap[i] : 0));
  });
  details.append(table);
}

document.querySelectorAll("details.values").forEach((details) => {
  details.addEventListener("toggle", () => fill(details), { once: true });
});

// -- the filter

const filter = document.getElementById("filter");
function show() {
  const chosen = new Set([...filter.querySelectorAll("input:checked")].map((box) => box.value));
  const tests = [...document.querySelectorAll("article")];
  for (const test of tests) test.hidden = !chosen.has(test.dataset.outcome);
  const shown = tests.filter((test) => !test.hidden).length;
  filter.querySelector("[role=status]").textContent = `${shown} of ${tests.length} tests shown`;
}
filter.addEventListener("change", show);
filter.hidden = false;
show();
