"use strict";

// Exact moments of rules on a small domain: finite sums over all samples that could be drawn. The names of the rules are
// those of the library's registry. p: probabilities, which sum to 1; f: costs; k: number of samples. Gradients are with
// respect to the logits.

const sum = (x) => x.reduce((a, b) => a + b, 0);
const dot = (x, y) => x.reduce((a, b, i) => a + b * y[i], 0);

// h(∅) = 1 and h(A) = Σ_{i∈A} h(A∖i) / t(A), where t(A) is the probability outside the sample plus that of A.
function subsets(sizes, rest) {
  const k = sizes.length, all = 1 << k;
  const t = new Float64Array(all), h = new Float64Array(all);
  t[0] = rest;
  h[0] = 1;
  for (let a = 1; a < all; a++) {
    const low = a & -a;
    t[a] = t[a ^ low] + sizes[31 - Math.clz32(low)];
    let total = 0;
    for (let left = a; left; left &= left - 1) total += h[a ^ (left & -left)];
    h[a] = total / t[a];
  }
  return { h, t };
}

// The sample as a set: its probability, p_s R(S, s), R(S, s), and the baseline weights p_s' R^{D∖s}(S, s').
function unorderedSet(sizes, rest) {
  const k = sizes.length, all = (1 << k) - 1, { h, t } = subsets(sizes, rest);
  const without = sizes.map((_, s) => h[all ^ (1 << s)]), total = sum(without);
  const first = without.map((x) => x / total);
  const baselineWeights = sizes.map((own, s) => sizes.map((_, other) => other === s
    ? own
    : h[all ^ (1 << s) ^ (1 << other)] / h[all ^ (1 << s)]));
  return {
    probability: sizes.reduce((a, b) => a * b, h[all]),
    first,
    ratio: first.map((x, s) => x / sizes[s]),
    baselineWeights: k > 1 ? baselineWeights : null,
    last: lastDrawn(sizes, t),
  };
}

// For each outcome, the probability of drawing this set with the outcome as its last one.
function lastDrawn(sizes, t) {
  const k = sizes.length, all = (1 << k) - 1, u = new Float64Array(all + 1);
  u[all] = 1;
  for (let a = all - 1; a > 0; a--) {
    for (let i = 0; i < k; i++) if (!(a & (1 << i))) u[a] += u[a | (1 << i)] / t[a | (1 << i)];
  }
  const product = sizes.reduce((x, y) => x * y, 1);
  return sizes.map((_, s) => product * u[1 << s] / t[1 << s]);
}

function combinations(n, k) {
  const found = [], chosen = [];
  (function extend(from) {
    if (chosen.length === k) { found.push([...chosen]); return; }
    for (let i = from; i <= n - (k - chosen.length); i++) { chosen.push(i); extend(i + 1); chosen.pop(); }
  })(0);
  return found;
}

function permutations(k) {
  if (k === 0) return [[]];
  return permutations(k - 1).flatMap((order) =>
    Array.from({ length: k }, (_, i) => [...order.slice(0, i), k - 1, ...order.slice(i)]));
}

// E[f] and its gradient, which estimates are compared with.
function meanTarget(p, f) {
  const mean = dot(p, f);
  return { mean, gradient: p.map((x, i) => x * (f[i] - mean)) };
}

// Sums over samples of the errors of an estimate and of its gradient. With coefficients c_s and C = Σ c_s the gradient
// is Σ_s c_s e_s − C p, so a sample takes k operations instead of one for every outcome.
class Moments {
  constructor(p, { mean, gradient }) {
    this.p = p;
    this.mean = mean;
    this.gradient = gradient;
    this.pp = dot(p, p);
    this.pg = dot(p, this.gradient);
    this.gg = dot(this.gradient, this.gradient);
    this.mass = this.bias = this.square = this.total = this.gradientSquare = 0;
    this.scores = new Float64Array(p.length);
    this.c = new Float64Array(p.length);
  }

  // Add a sample of distinct outcomes with its probability, weights, costs and baselines: c_s = w_s (f_s − b_s).
  add(probability, outcomes, weight, cost, baseline) {
    let value = 0;
    for (let i = 0; i < outcomes.length; i++) {
      value += weight[i] * cost[i];
      this.c[i] = weight[i] * (cost[i] - (baseline ? baseline[i] : 0));
    }
    this.record(probability, outcomes, value, this.c);
  }

  // Add a sample of distinct outcomes with its probability, the estimate, and the coefficients of its gradient.
  record(probability, outcomes, value, c) {
    const away = value - this.mean;
    let total = 0;
    for (let i = 0; i < outcomes.length; i++) total += c[i];
    let square = total * total * this.pp + 2 * total * this.pg + this.gg;
    for (let i = 0; i < outcomes.length; i++) {
      const s = outcomes[i];
      square += c[i] * (c[i] - 2 * (this.p[s] * total + this.gradient[s]));
      this.scores[s] += probability * c[i];
    }
    this.mass += probability;
    this.bias += probability * away;
    this.square += probability * away * away;
    this.total += probability * total;
    this.gradientSquare += probability * square;
  }

  result() {
    const away = this.p.map((x, i) => this.scores[i] - x * this.total - this.mass * this.gradient[i]);
    const bias2 = dot(away, away), tiny = 1e-14 * (this.gg + this.mean * this.mean);
    const clean = (x) => (x < tiny ? 0 : x);
    return {
      bias: this.bias,
      variance: clean(this.square - this.bias * this.bias),
      gradientBias: Math.sqrt(bias2),
      gradientVariance: clean(this.gradientSquare - bias2),
    };
  }
}

const baselines = (baselineWeights, cost) => baselineWeights && baselineWeights.map((row) => dot(row, cost));
const normalised = (x) => { const total = sum(x); return x.map((y) => y / total); };

// Rules that depend on the set only, as functions (sizes, rest, set) -> {weight, baselineWeights}.
const OF_THE_SET = {
  unordered_set: (sizes, rest, set) => ({ weight: set.first, baselineWeights: set.baselineWeights }),
  unordered_set_no_baseline: (sizes, rest, set) => ({ weight: set.first, baselineWeights: null }),
  risk: (sizes) => ({ weight: normalised(sizes), baselineWeights: sizes.map(() => normalised(sizes)) }),
};

// The importance weights p / q, where q is the probability of an arrival before the time t of the threshold.
function importance(sizes, rest, t) {
  return { weight: sizes.map((x) => (rest > 0 ? x / -Math.expm1(-x * t) : x)) };
}

// Quadrature nodes for the time t = e^x of the threshold, and the joint probabilities of each node and the set.
function thresholds(sizes, rest) {
  if (!(rest > 0)) return [[Infinity, 1]];
  const step = 0.3, nodes = [];
  for (let x = Math.log(60 / rest); x > -36; x -= step) {
    const t = Math.exp(x);
    const density = sizes.reduce((a, s) => a * -Math.expm1(-s * t), rest * Math.exp(-rest * t));
    nodes.push([t, step * t * density]);
  }
  return nodes;
}

// The exact moments of every rule, as a generator: a page runs some steps of it at a time and stays responsive.
function* momentsInSteps(p, f, k) {
  const n = p.length, names = [...Object.keys(OF_THE_SET), "sum_and_sample", "raj",
    "importance_weighted", "normalized_importance_weighted"];
  const moments = Object.fromEntries(names.map((name) => [name, new Moments(p, meanTarget(p, f))]));
  const orders = permutations(k);
  for (const chosen of combinations(n, k)) {
    addSet(moments, p, f, chosen, orders);
    yield;
  }
  const results = Object.fromEntries(names.map((name) => [name, moments[name].result()]));
  if (k < n) diverge(results.importance_weighted, k);
  return { ...results, ...independent(p, f, k), ...deterministic(p, f, k), ...strata(p, f, k) };
}

function exactMoments(p, f, k) {
  const steps = momentsInSteps(p, f, k);
  for (;;) {
    const { value, done } = steps.next();
    if (done) return value;
  }
}

function addSet(moments, p, f, chosen, orders) {
  const sizes = chosen.map((i) => p[i]), cost = chosen.map((i) => f[i]);
  const rest = chosen.length === p.length ? 0 : sum(p.filter((_, i) => !chosen.includes(i)));
  const set = unorderedSet(sizes, rest);
  for (const [name, rule] of Object.entries(OF_THE_SET)) {
    const { weight, baselineWeights } = rule(sizes, rest, set);
    moments[name].add(set.probability, chosen, weight, cost, baselines(baselineWeights, cost));
  }
  sizes.forEach((own, s) => {
    const weight = sizes.map((x, i) => (i === s ? rest + own : x));
    moments.sum_and_sample.add(set.last[s], chosen, weight, cost, null);
  });
  for (const order of orders) {
    const { weight, probability } = raj(order.map((i) => sizes[i]), rest);
    moments.raj.add(probability, order.map((i) => chosen[i]), weight, order.map((i) => cost[i]), null);
  }
  addThresholds(moments, chosen, sizes, rest, cost, set.probability);
}

// Adds plain and normalised importance weights at every threshold. Their baselines follow from Σ w and Σ w f.
function addThresholds(moments, chosen, sizes, rest, cost, ofTheSet) {
  const k = sizes.length, scaled = new Float64Array(k), plain = new Float64Array(k), other = new Float64Array(k);
  for (const [t, probability] of thresholds(sizes, rest)) {
    const { weight } = importance(sizes, rest, t);
    const total = sum(weight), mean = dot(weight, cost);
    for (let s = 0; s < k; s++) {
      const own = sizes[s] - weight[s];
      scaled[s] = weight[s] / total;
      plain[s] = k > 1 ? mean + own * cost[s] : 0;
      other[s] = k > 1 ? plain[s] / (total + own) : 0;
    }
    const chance = rest > 0 ? probability : ofTheSet;
    moments.importance_weighted.add(chance, chosen, weight, cost, plain);
    moments.normalized_importance_weighted.add(chance, chosen, scaled, cost, other);
  }
}

// The mean of the sum-and-sample estimates of all prefixes, for probabilities in the order of the sample.
function raj(sizes, rest) {
  const k = sizes.length;
  let mass = rest + sum(sizes), probability = 1;
  const weight = sizes.map((x, j) => {
    probability *= x / mass;
    const w = ((k - 1 - j) * x + mass) / k;
    mass -= x;
    return w;
  });
  return { weight, probability };
}

// Weights grow like 1 / t, so their variance is infinite if the density of t vanishes too slowly at 0.
function diverge(result, k) {
  if (k === 1) result.variance = Infinity;
  if (k <= 3) result.gradientVariance = Infinity;
}

// Independent samples, in closed form. With the mean of the other samples as a baseline this is a U-statistic.
function independent(p, f, k) {
  const mean = dot(p, f), square = dot(p, p);
  const spread = dot(p, f.map((x) => (x - mean) ** 2));
  const norms = p.map((x) => 1 - 2 * x + square);  // |e_i − p|²
  const g = p.map((x, i) => x * (f[i] - mean)), g2 = dot(g, g);
  const plain = dot(p, f.map((x, i) => norms[i] * x * x)) - g2;
  const centred = dot(p, f.map((x, i) => norms[i] * (x - mean) ** 2)) - g2;
  const pairs = (dot(p, norms) * spread + g2) / (k * (k - 1));
  const exact = { bias: 0, gradientBias: 0 };
  return {
    single_sample: { ...exact, variance: spread, gradientVariance: plain },
    reinforce_no_baseline: { ...exact, variance: spread / k, gradientVariance: plain / k },
    rloo: {
      ...exact, variance: spread / k, gradientVariance: k > 1 ? centred / k + pairs : plain,
    },
  };
}

// The k − 1 likeliest outcomes are summed, and one of the others is sampled.
function deterministic(p, f, k) {
  const order = p.map((_, i) => i).sort((a, b) => p[b] - p[a] || a - b);
  const top = order.slice(0, k - 1), others = order.slice(k - 1), rest = sum(others.map((i) => p[i]));
  const moments = new Moments(p, meanTarget(p, f));
  for (const i of others) {
    const outcomes = [...top, i];
    moments.add(p[i] / rest, outcomes, [...top.map((j) => p[j]), rest], outcomes.map((j) => f[j]), null);
  }
  return { deterministic_sum_and_sample: moments.result() };
}

// One sample from each of k strata of equal probability: at an independent place in each (stratified), or at the same
// place in all of them (systematic).
function strata(p, f, k) {
  const ends = p.map((_, i) => k * sum(p.slice(0, i + 1)));
  ends[p.length - 1] = k;
  const at = (u) => ends.findIndex((end) => u < end);
  const cuts = [...new Set([0, 1, ...ends.map((e) => e - Math.floor(e))])].sort((a, b) => a - b);
  const systematic = new Moments(p, meanTarget(p, f));
  for (let i = 1; i < cuts.length; i++) {
    if (cuts[i] - cuts[i - 1] < 1e-15) continue;
    const middle = (cuts[i] + cuts[i - 1]) / 2;
    const counts = new Map();
    for (let j = 0; j < k; j++) counts.set(at(j + middle), (counts.get(at(j + middle)) || 0) + 1 / k);
    const outcomes = [...counts.keys()];
    systematic.add(cuts[i] - cuts[i - 1], outcomes, [...counts.values()], outcomes.map((o) => f[o]), null);
  }
  const result = { bias: 0, gradientBias: 0, variance: 0, gradientVariance: 0 };
  for (let j = 0; j < k; j++) {
    const chance = ends.map((end, i) => Math.max(0, Math.min(end, j + 1) - Math.max(i ? ends[i - 1] : 0, j)));
    const mean = dot(chance, f), second = dot(chance, f.map((x) => x * x));
    const gradient = p.map((x, i) => chance[i] * f[i] - x * mean);
    const square = dot(p, p);
    const norm = dot(chance, f.map((x, i) => x * x * (1 - 2 * p[i] + square)));
    result.variance += (second - mean * mean) / (k * k);
    result.gradientVariance += (norm - dot(gradient, gradient)) / (k * k);
  }
  return { stratified: result, systematic: systematic.result() };
}

// The number of operations of the exact sums: each set has its orders and about 150 thresholds.
function work(n, k) {
  let sets = 1, orders = 1;
  for (let i = 0; i < k; i++) { sets = sets * (n - i) / (i + 1); orders *= i + 1; }
  return sets * (orders + 150) * k;
}

globalThis.maths = {
  exactMoments, momentsInSteps, unorderedSet, importance, raj, work, sum, dot, subsets, combinations, Moments,
};
