"use strict";

const root = document.documentElement;
const charts = [];

function theme() {
  return root.dataset.theme;
}

function variable(name) {
  return getComputedStyle(root).getPropertyValue(name).trim();
}

// Colours are chosen for a light page. On a dark page they are mixed with the same amount of white to stay visible.
function shade(colour) {
  if (theme() === "light") return colour;
  const channels = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return `rgb(${channels.map((c) => Math.round((c + 255) / 2)).join(",")})`;
}

function trace(t) {
  const colour = shade(t.colour);
  const bar = t.kind === "bar";
  const error = t.error.length
    ? { type: "data", array: t.error, color: colour, thickness: 1, width: bar ? 3 : 0 }
    : { visible: false };
  return {
    name: t.label,
    type: bar ? "bar" : "scatter",
    orientation: bar ? "h" : undefined,
    mode: "lines+markers",
    x: bar ? t.y : t.x,
    y: bar ? t.x : t.y,
    text: t.text.length ? t.text : undefined,
    textposition: bar ? "none" : undefined,
    [bar ? "error_x" : "error_y"]: error,
    line: { color: colour, dash: t.dash, width: 2 },
    marker: { color: colour, size: bar ? undefined : t.x.length > 40 ? 1 : 6 },
    hovertemplate: (bar ? "%{y}: %{x:.4g}" : "%{fullData.name}<br>%{x}: %{y:.4g}")
      + (t.text.length ? "<br>%{text}" : "") + "<extra></extra>",
  };
}

function layout(chart, traces) {
  const { spec } = chart;
  const bar = traces[0].type === "bar";
  const narrow = chart.plot.clientWidth < 560;
  const axis = { gridcolor: variable("--line"), zerolinecolor: variable("--line"), automargin: true };
  const shown = bar ? traces[0].y.length : traces.length;
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: variable("--ink"), family: "system-ui, sans-serif", size: narrow ? 11 : 13 },
    margin: { l: narrow ? 45 : 60, r: 10, t: 10, b: 45 },
    height: bar ? 110 + 22 * shown : narrow ? 340 + 19 * shown : 440,
    showlegend: !bar && shown > 1,
    legend: narrow ? { orientation: "h", y: -0.2, yanchor: "top" } : {},
    xaxis: { ...axis, title: { text: spec.x || chart.view } },
    yaxis: { ...axis, title: { text: spec.y }, type: bar ? "category" : chart.log ? "log" : "linear",
             exponentformat: "power", tickfont: bar ? { size: narrow ? 9 : 12 } : undefined,
             dtick: bar ? 1 : undefined },
    hoverlabel: { bgcolor: variable("--panel"), font: { color: variable("--ink") } },
  };
}

function draw(chart) {
  const traces = chart.spec.traces.filter((t) => t.view === chart.view).map(trace);
  Plotly.react(chart.plot, traces, layout(chart, traces), { responsive: true, displaylogo: false, displayModeBar: false });
}

function button(text, pressed, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = text;
  made.setAttribute("aria-pressed", String(pressed));
  made.addEventListener("click", () => act(made));
  return made;
}

function viewButtons(chart, controls) {
  const made = chart.spec.views.map((view) => button(view, view === chart.view, (self) => {
    made.forEach((other) => other.setAttribute("aria-pressed", String(other === self)));
    chart.view = view;
    draw(chart);
  }));
  controls.append(...made);
}

function viewSlider(chart, controls) {
  const slider = document.createElement("input");
  const shown = document.createElement("output");
  Object.assign(slider, { type: "range", min: 0, max: chart.spec.views.length - 1, value: chart.spec.views.indexOf(chart.view) });
  slider.setAttribute("aria-label", chart.spec.viewsLabel);
  shown.textContent = chart.view;
  slider.addEventListener("input", () => {
    chart.view = shown.textContent = chart.spec.views[slider.value];
    draw(chart);
  });
  controls.append(slider, shown);
}

function logButton(chart, controls) {
  controls.append(button("log scale", chart.log, (self) => {
    chart.log = !chart.log;
    self.setAttribute("aria-pressed", String(chart.log));
    draw(chart);
  }));
}

function addChart(figure) {
  const spec = JSON.parse(figure.querySelector("script").textContent);
  // A slider starts at its second view, since all rules are much alike for one sample.
  const chart = { spec, plot: figure.querySelector(".plot"), view: spec.views[spec.slider ? 1 : 0], log: spec.log };
  const controls = figure.querySelector(".controls");
  if (spec.views.length > 1) {
    controls.append(Object.assign(document.createElement("span"), { textContent: spec.viewsLabel }));
    (spec.slider ? viewSlider : viewButtons)(chart, controls);
  }
  if (spec.log) logButton(chart, controls);
  charts.push(chart);
  draw(chart);
}

function setTheme(name) {
  root.dataset.theme = name;
  document.getElementById("theme").textContent = name === "dark" ? "Light" : "Dark";
  charts.forEach(draw);
}

setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
document.getElementById("theme").addEventListener("click", () => setTheme(theme() === "dark" ? "light" : "dark"));
document.querySelectorAll("figure[data-chart]").forEach(addChart);
