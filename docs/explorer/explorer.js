"use strict";

const LABELS = {
  unordered_set: "unordered set, built-in baseline", unordered_set_no_baseline: "unordered set",
  sum_and_sample: "sum-and-sample", raj: "Raj", importance_weighted: "importance-weighted",
  normalized_importance_weighted: "normalised importance-weighted", risk: "risk",
  deterministic_sum_and_sample: "deterministic sum-and-sample", single_sample: "single sample",
  rloo: "RLOO", reinforce_no_baseline: "REINFORCE",
  stratified: "stratified", systematic: "systematic",
};
const BESTS = { best_of: "distinct", best_of_independent: "independent" };
const STRIPS = ["rloo", "sum_and_sample", "raj", "importance_weighted", "risk", "unordered_set"];
const LARGEST_WORK = 5e6;  // takes about a second, in slices
const SLICE = 12;  // milliseconds, after which the page may answer
const element = (id) => document.getElementById(id);
const state = { logits: [], f: [], p: [], dots: {}, timer: null, moments: {}, change: 0, settled: null };

// A fixed sequence of pseudo-random numbers, so that a reader finds the same problem again.
function noise(seed) {
  const x = Math.sin(seed * 12.9898 + 4.1) * 43758.5453;
  return x - Math.floor(x);
}

const SHAPES = {
  peaked: (i) => (i === 0 ? 3 : 0), equal: () => 0, falling: (i) => -0.5 * i, random: (i) => 4 * noise(i) - 2,
};
const COSTS = {
  rising: (i, n) => i / (n - 1), rare: (i, n) => (i === n - 1 ? 5 : 0.2 * noise(i)),
  random: (i) => 2 * noise(i + 50) - 1, shifted: (i) => 4 + noise(i + 50),
};

function choose() {
  const n = Number(element("n").value), made = (makers, chosen, before) => Array.from({ length: n },
    (_, i) => (chosen === "own" ? before[i] ?? 0 : Number(makers[chosen](i, n).toFixed(3))));  // as a link has it
  state.logits = made(SHAPES, element("shape").value, state.logits);
  state.f = made(COSTS, element("costs").value, state.f);
  open();
}

// Shows the problem in the state as a new one.
function open() {
  limitK(state.logits.length);
  showOutcomes();
  update();
}

function limitK(n) {
  const wanted = samples();
  let most = 1;
  while (most < n && maths.work(n, most + 1) <= LARGEST_WORK) most++;
  element("k").max = most;
  const whole = wanted > n ? `k is ${n} now: there are no more distinct outcomes.` : "";
  element("limit").textContent = most === n ? whole : `With ${n} outcomes, k is at most ${most} here: a larger one has too many samples to sum over.`;
}

// A link to the problem, in the address: the number of samples, of draws, and all logits and costs.
function showLink() {
  const list = (x) => x.map((y) => String(Number(y.toFixed(3)))).join(",");
  const link = `#k=${samples()}&m=${element("m").value}&logits=${list(state.logits)}&f=${list(state.f)}`;
  history.replaceState(null, "", location.href.split("#")[0] + link);
}

// Opens the problem of a link, and returns whether the address has one.
function followLink() {
  const given = new URLSearchParams(location.hash.slice(1));
  const list = (key) => (given.get(key) || "").split(",").map(Number);
  const logits = list("logits"), f = list("f");
  if (logits.length < 3 || logits.length > 20 || logits.length !== f.length || ![...logits, ...f].every(Number.isFinite)) return false;
  const bound = (x, most) => Math.max(-most, Math.min(most, x));
  Object.assign(state, { logits: logits.map((x) => bound(x, 6)), f: f.map((x) => bound(x, 5)) });
  Object.entries({ n: logits.length, shape: "own", costs: "own" }).forEach(([id, value]) => { element(id).value = value; });
  limitK(logits.length);
  element("k").value = given.get("k") || 1;
  element("m").max = samples();
  element("m").value = given.get("m") || 1;
  open();
  return true;
}

async function copyLink() {
  const said = await navigator.clipboard?.writeText(location.href).then(() => "Copied").catch(() => null);
  element("copy").textContent = said || "Copy it from the address bar";
  setTimeout(() => { element("copy").textContent = "Copy a link to this problem"; }, 2000);
}

function slider(value, low, high, label, change) {
  const input = document.createElement("input");
  Object.assign(input, { type: "range", min: low, max: high, step: 0.05, value });
  input.setAttribute("aria-label", label);
  input.addEventListener("input", () => { change(Number(input.value)); update(); });
  return input;
}

function showOutcomes() {
  const body = element("outcomes").tBodies[0];
  body.replaceChildren(...state.logits.map((logit, i) => {
    const row = document.createElement("tr");
    const cells = Array.from({ length: 4 }, () => row.insertCell());
    cells[0].textContent = name(i);
    cells[1].append(slider(logit, -6, 6, `logit of ${name(i)}`, (x) => { state.logits[i] = x; element("shape").value = "own"; }));
    const shown = document.createElement("output");
    cells[3].append(slider(state.f[i], -5, 5, `cost of ${name(i)}`, (x) => { state.f[i] = x; element("costs").value = "own"; }), " ", shown);
    return row;
  }));
}

const name = (i) => String.fromCharCode(65 + i);

function number(x) {
  if (x === Infinity) return "∞";
  if (Math.abs(x) < 1e-9) return "0";
  return Math.abs(x) < 1e-3 || Math.abs(x) >= 1e4 ? x.toExponential(1) : x.toPrecision(3);
}

function update() {
  const top = Math.max(...state.logits), weights = state.logits.map((x) => Math.exp(x - top));
  state.p = weights.map((x) => x / maths.sum(weights));
  [...element("outcomes").tBodies[0].rows].forEach((row, i) => {
    row.cells[2].innerHTML = `<span class="bar" style="width:${(4 * state.p[i]).toFixed(2)}rem"></span> ${number(state.p[i])}`;
    row.cells[3].querySelector("output").textContent = number(state.f[i]);
  });
  element("truth").textContent = `E[f] = ${number(maths.dot(state.p, state.f))}`;
  state.moments = {};
  showSamples();
}

// Shows what depends on the number of samples.
function showSamples() {
  element("m").max = samples();
  showChoices();
  clearDots();
  showSets();
  showLink();
  state.settled = compute(++state.change);
}

// Computes the moments of the chosen k, the best of m, and the moments of the other k for the chart, until something else
// is chosen.
async function compute(change) {
  const others = Array.from({ length: Number(element("k").max) }, (_, i) => i + 1);
  ["rules", "bests"].forEach((id) => element(id).setAttribute("aria-busy", "true"));
  await new Promise((resume) => { setTimeout(resume); });  // the control moves first
  if (change !== state.change) return;
  for (const [i, k] of [samples(), ...others].entries()) {
    state.moments[k] ??= await inSlices(maths.momentsInSteps(state.p, state.f, k), change);
    if (change !== state.change) return;
    if (i === 0) showRules();
    showChart(state.moments, samples());
    if (i === 0) await showBest(change);
  }
}

// Runs a generator in slices of some milliseconds, so that the page answers in between; a change ends it.
async function inSlices(steps, change) {
  for (let end = performance.now() + SLICE; change === state.change;) {
    const { value, done } = steps.next();
    if (done) return value;
    if (performance.now() < end) continue;
    await new Promise((resume) => { setTimeout(resume); });
    end = performance.now() + SLICE;
  }
  return undefined;
}

function showChoices() {
  document.querySelectorAll("output[for]").forEach((o) => { o.textContent = element(o.htmlFor.value).value; });
}

const samples = () => Number(element("k").value);

function showRules() {
  const rows = Object.entries(state.moments[samples()]).sort((a, b) => a[1].gradientVariance - b[1].gradientVariance);
  const logs = rows.map(([, m]) => Math.log10(m.gradientVariance)).filter(Number.isFinite);
  const low = Math.min(...logs) - 0.3, span = Math.max(...logs) - low || 1;
  const unbiased = rows.filter(([, m]) => m.gradientBias < 1e-9).map(([, m]) => m.gradientVariance);
  const best = unbiased[0] < unbiased[1] * (1 - 1e-9) ? unbiased[0] : null;  // there is no winner in a tie
  element("rules").removeAttribute("aria-busy");
  element("rules").tBodies[0].replaceChildren(...rows.map(([rule, m]) => {
    const row = document.createElement("tr");
    Object.assign(row.dataset, { rule, variance: String(m.gradientVariance) });
    const biased = m.gradientBias > 1e-9;
    row.className = biased ? "biased" : m.gradientVariance === best ? "best" : "";
    const log = Math.log10(m.gradientVariance);
    const width = m.gradientVariance === 0 ? 0 : log === Infinity ? 5 : 4.5 * (log - low) / span;
    row.insertCell().textContent = LABELS[rule] + (biased ? " (biased)" : "");
    row.insertCell().innerHTML = `<span class="bar" style="width:${width.toFixed(2)}rem"></span> ${number(m.gradientVariance)}`;
    [m.gradientBias, m.variance, m.bias].forEach((x) => { row.insertCell().textContent = number(x); });
    return row;
  }));
}

function combinationsByChance(k) {
  // The likeliest sets consist of likely outcomes, so the ten likeliest outcomes are enough for a short list.
  const order = state.p.map((_, i) => i).sort((a, b) => state.p[b] - state.p[a]).slice(0, Math.max(10, k));
  const found = [];
  (function extend(from, chosen) {
    if (chosen.length === k) { found.push(chosen); return; }
    for (let i = from; i < order.length; i++) extend(i + 1, [...chosen, order[i]]);
  })(0, []);
  return found;
}

function describe(chosen) {
  const sizes = chosen.map((i) => state.p[i]);
  const rest = chosen.length === state.p.length ? 0 : maths.sum(state.p.filter((_, i) => !chosen.includes(i)));
  return { sizes, rest, cost: chosen.map((i) => state.f[i]), ...maths.unorderedSet(sizes, rest) };
}

function showSets() {
  const sets = combinationsByChance(samples()).map((chosen) => ({ chosen, ...describe(chosen) }));
  sets.sort((a, b) => b.probability - a.probability);
  element("sets").tBodies[0].replaceChildren(...sets.slice(0, 6).map((set) => {
    const row = document.createElement("tr");
    [set.chosen.map(name).join(" "), number(set.probability), set.first.map(number).join("  "),
     set.ratio.map(number).join("  "), number(maths.dot(set.first, set.cost))]
      .forEach((text) => { row.insertCell().textContent = text; });
    return row;
  }));
}

async function showBest(change) {
  const m = Number(element("m").value), found = await inSlices(maths.bestOfInSteps(state.p, state.f, samples(), m), change);
  if (!found) return;
  element("bests").removeAttribute("aria-busy");
  element("best").textContent = `The expected lowest cost of ${m} ${m === 1 ? "draw" : "draws"} is ${number(found.value)}`;
  element("bests").tBodies[0].replaceChildren(...Object.entries(BESTS).map(([rule, label]) => {
    const row = document.createElement("tr"), { gradientVariance, variance } = found[rule];
    Object.assign(row.dataset, { rule, variance: String(gradientVariance) });
    [label, number(gradientVariance), number(variance)].forEach((text) => { row.insertCell().textContent = text; });
    return row;
  }));
}

function draw() {
  const scores = state.p.map((p, i) => [Math.log(p) - Math.log(-Math.log(Math.random())), i]);
  scores.sort((a, b) => b[0] - a[0]);
  const k = samples(), chosen = scores.slice(0, k).map(([, i]) => i), set = describe(chosen);
  showSample(chosen, set);
  const t = k < scores.length ? Math.exp(-scores[k][0]) : Infinity;
  const estimates = {
    unordered_set: maths.dot(set.first, set.cost),
    sum_and_sample: maths.dot(set.sizes.map((x, i) => (i === k - 1 ? x + set.rest : x)), set.cost),
    raj: maths.dot(maths.raj(set.sizes, set.rest).weight, set.cost),
    importance_weighted: maths.dot(maths.importance(set.sizes, set.rest, t).weight, set.cost),
    risk: maths.dot(set.sizes, set.cost) / maths.sum(set.sizes),
    rloo: maths.sum(Array.from({ length: k }, () => state.f[once()])) / k,
  };
  STRIPS.forEach((rule) => state.dots[rule].push(estimates[rule]));
  showStrips();
}

function once() {
  let u = Math.random();
  for (let i = 0; i < state.p.length - 1; i++) { u -= state.p[i]; if (u < 0) return i; }
  return state.p.length - 1;
}

function showSample(chosen, set) {
  element("sample").replaceChildren(...chosen.map((s, i) => {
    const chip = document.createElement("li");
    chip.className = "chip";
    chip.style.animationDelay = `${0.25 * i}s`;
    const baseline = set.baselineWeights ? number(maths.dot(set.baselineWeights[i], set.cost)) : "none";
    chip.innerHTML = `<b>${name(s)}</b> p ${number(set.sizes[i])}<br>R ${number(set.ratio[i])}<br>`
      + `weight ${number(set.first[i])}<br>f ${number(set.cost[i])}, baseline ${baseline}`;
    return chip;
  }));
  element("estimate").textContent = `The unordered set estimate is Σ weight · f = ${number(maths.dot(set.first, set.cost))}`;
}

function showStrips() {
  const truth = maths.dot(state.p, state.f), low = Math.min(...state.f), high = Math.max(...state.f);
  const reach = (high - low || 1) * 0.75, place = (x) => 50 + 50 * Math.max(-1, Math.min(1, (x - truth) / reach));
  element("strips").innerHTML = STRIPS.map((rule) => {
    const dots = state.dots[rule].slice(-150).map((x, i) =>
      `<circle cx="${place(x).toFixed(2)}%" cy="${(0.3 + 1.1 * noise(i)).toFixed(2)}rem" r="3.5"></circle>`);
    return `<div class="strip"><span>${LABELS[rule].split(",")[0]}</span><svg><line x1="50%" x2="50%" y1="0" y2="100%"></line>${dots.join("")}</svg></div>`;
  }).join("");
}

function clearDots() {
  STRIPS.forEach((rule) => { state.dots[rule] = []; });
  element("sample").replaceChildren();
  element("estimate").textContent = "";
  showStrips();
}

function play() {
  const button = element("play");
  if (state.timer) {
    clearInterval(state.timer);
    state.timer = null;
  } else {
    state.timer = setInterval(draw, 350);
  }
  button.setAttribute("aria-pressed", String(Boolean(state.timer)));
  button.textContent = state.timer ? "Pause" : "Play";
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  element("theme").textContent = theme === "dark" ? "Light" : "Dark";
}

setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
element("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
for (const id of ["n", "shape", "costs"]) element(id).addEventListener("input", choose);
element("k").addEventListener("input", showSamples);
element("m").addEventListener("input", () => {  // the moments that are known do not depend on m
  showChoices();
  showLink();
  state.settled = compute(++state.change);
});
element("draw").addEventListener("click", draw);
element("play").addEventListener("click", play);
element("clear").addEventListener("click", clearDots);
element("copy").addEventListener("click", copyLink);
addEventListener("hashchange", followLink);  // a link that is opened where the page is open already
addEventListener("resize", () => showChart(state.moments, samples()));
if (!followLink()) choose();
draw();
