"use strict";

// The variance of the gradient against the number of samples, one directly labelled line for each rule.

const LINES = {
  reinforce_no_baseline: "REINFORCE", sum_and_sample: "sum-and-sample", deterministic_sum_and_sample: "deterministic sum-and-sample",
  rloo: "RLOO", unordered_set: "unordered set",
};
const CHART = { width: 720, height: 320, left: 56, right: 225, top: 12, bottom: 40, line: 16 };
const NARROW = { ...CHART, width: 380, right: 14 };  // a phone has no room beside the lines, so their names are below

const KEY = (rule) => `<svg class="rule ${rule}" viewBox="0 0 30 10" aria-hidden="true"><polyline points="0,5 30,5"></polyline></svg>`;

// moments: by k, and by the names of the rules; k: the chosen number of samples.
function showChart(moments, k) {
  const ks = Object.keys(moments).filter((x) => moments[x]).map(Number).sort((a, b) => a - b);
  const logs = ks.flatMap((x) => Object.keys(LINES).map((rule) => Math.log10(moments[x][rule].gradientVariance))).filter(Number.isFinite);
  const low = Math.floor(Math.min(...logs)), high = Math.max(Math.ceil(Math.max(...logs)), low + 1), last = Math.max(...ks, 2);
  const box = document.getElementById("chart"), narrow = box.clientWidth < 560;
  const { width, height, left, right, top, bottom } = narrow ? NARROW : CHART;
  const x = (count) => left + (width - left - right) * (count - 1) / (last - 1);
  const y = (log) => (log === -Infinity ? height - bottom : top + (height - top - bottom - 14) * (high - log) / (high - low));
  const ends = labelled(Object.keys(LINES).map((rule) => line(rule, ks, moments, x, y)).filter(Boolean));
  const powers = Array.from({ length: high - low + 1 }, (_, i) => low + i).filter((_, i) => i % Math.ceil((high - low) / 8) === 0);
  box.innerHTML = `<svg viewBox="0 0 ${width} ${height}" role="img" aria-label="Variance of the gradient against the number of samples">`
    + powers.map((power) => `<line class="grid" x1="${left}" x2="${width - right}" y1="${y(power)}" y2="${y(power)}"></line>`
      + `<text x="${left - 8}" y="${y(power) + 4}" text-anchor="end">10<tspan dy="-6" font-size="10">${power}</tspan></text>`).join("")
    + `<line class="chosen" x1="${x(k)}" x2="${x(k)}" y1="${top}" y2="${height - bottom}"></line>`
    + ks.map((count) => `<text x="${x(count)}" y="${height - bottom + 18}" text-anchor="middle">${count}</text>`).join("")
    + `<text x="${(left + width - right) / 2}" y="${height - 4}" text-anchor="middle">samples k</text>`
    + ends.map(({ rule, points, at }) => `<g class="rule ${rule}"><polyline points="${points.map((p) => p.join()).join(" ")}"></polyline>`
      + points.map(([a, b]) => `<circle cx="${a}" cy="${b}" r="3"></circle>`).join("")
      + (narrow ? "" : `<text x="${width - right + 10}" y="${at + 4}">${LINES[rule]}</text>`) + "</g>").join("") + "</svg>"
    + (narrow ? `<ul>${ends.map(({ rule }) => `<li>${KEY(rule)} ${LINES[rule]}</li>`).join("")}</ul>` : "");
}

function line(rule, ks, moments, x, y) {
  const points = ks.map((k) => [k, Math.log10(moments[k][rule].gradientVariance)]).filter(([, log]) => log !== Infinity && !Number.isNaN(log))
    .map(([k, log]) => [x(k).toFixed(1), y(log).toFixed(1)]);
  return points.length ? { rule, points, at: Number(points[points.length - 1][1]) } : null;
}

// Moves labels apart that would overlap: downwards in their order, and upwards again if they would leave the chart.
function labelled(lines) {
  lines.sort((a, b) => a.at - b.at);
  lines.forEach((line, i) => { if (i) line.at = Math.max(line.at, lines[i - 1].at + CHART.line); });
  for (let i = lines.length - 1, most = CHART.height - CHART.bottom; i >= 0; i--, most -= CHART.line) lines[i].at = Math.min(lines[i].at, most);
  return lines;
}
