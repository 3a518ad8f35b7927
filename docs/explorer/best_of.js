"use strict";

// The lowest cost of m independent draws: exact moments of its estimates from k samples, distinct or independent. Names
// are those of the library's functions.

const SAMPLES_PER_STEP = 16;

// Z(U, n): the probability that n independent draws have exactly the support U, for every subset U of the sample.
function supports(sizes, n) {
  const all = 1 << sizes.length;
  let z = new Float64Array(all);
  z[0] = 1;
  for (; n > 0; n--) {
    const next = new Float64Array(all);
    for (let a = 1; a < all; a++) {
      for (let i = 0; i < sizes.length; i++) if (a & (1 << i)) next[a] += sizes[i] * (z[a] + z[a ^ (1 << i)]);
    }
    z = next;
  }
  return z;
}

// The lowest cost of every subset; 0 of none.
function lowest(cost) {
  const best = new Float64Array(1 << cost.length);
  for (let a = 1; a < best.length; a++) {
    const low = a & -a, own = cost[31 - Math.clz32(low)];
    best[a] = a === low ? own : Math.min(own, best[a ^ low]);
  }
  return best;
}

// From a set of distinct outcomes: the value and the coefficients c of its gradient Σ c ∇ log p. The baseline is the best
// of m other draws, or of m − 1 if k = m.
function bestOfDistinct(sizes, rest, cost, m) {
  const k = sizes.length, all = (1 << k) - 1, { h } = maths.subsets(sizes, rest);
  const fewer = supports(sizes, m - 1), full = supports(sizes, m), other = k > m ? full : fewer, best = lowest(cost);
  const share = best.map((_, a) => sizes.reduce((x, p, i) => (a & (1 << i) ? x / p : x), h[all ^ a] / h[all]));
  let value = 0;
  const c = new Float64Array(k);
  for (let a = 0; a <= all; a++) {
    value += full[a] * share[a] * best[a];
    for (let s = 0; s < k; s++) {
      const joined = a | (1 << s);
      c[s] += m * sizes[s] * share[joined] * (fewer[a] * best[joined] - other[a] * best[a]);
    }
  }
  return { value, c };
}

const binomial = (n, r) => {
  let x = r < 0 || r > n ? 0 : 1;
  for (let i = 0; i < r && x; i++) x = x * (n - i) / (i + 1);
  return x;
};

// From independent draws with the best one last: the same, by means over all choices of m draws, with and without each.
function bestOfIndependent(cost, m) {
  const k = cost.length, apart = k > m ? m : m - 1;
  const total = (weight) => maths.sum(cost.map((f, j) => f * weight(j)));
  const c = cost.map((_, i) => {
    const including = total((j) => (j > i ? binomial(j - 1, m - 2) : j === i ? binomial(i, m - 1) : 0));
    const excluding = total((j) => (j === i ? 0 : binomial(j < i ? j : j - 1, apart - 1)));
    return m / k * (including / binomial(k - 1, m - 1) - excluding / binomial(k - 1, apart));
  });
  return { value: total((j) => binomial(j, m - 1) / binomial(k, m)), c };
}

// E[min(x, the lowest of n draws)] for a cost x.
function expectedLowest(p, f, n, x) {
  let left = 1, total = 0;
  for (const y of [...new Set(f)].filter((y) => y < x).sort((a, b) => a - b)) {
    const after = maths.sum(p.filter((_, i) => f[i] > y)) ** n;
    total += y * (left - after);
    left = after;
  }
  return total + left * x;
}

function bestOfTarget(p, f, m) {
  const mean = expectedLowest(p, f, m, Math.max(...f));
  return { mean, gradient: p.map((x, i) => m * x * (expectedLowest(p, f, m - 1, f[i]) - mean)) };
}

// A generator, as maths.momentsInSteps is.
function* bestOfInSteps(p, f, k, m) {
  const target = bestOfTarget(p, f, m), n = p.length;
  const distinct = new maths.Moments(p, target), independent = new maths.Moments(p, target);
  let samples = 0;
  for (const chosen of maths.combinations(n, k)) {
    const sizes = chosen.map((i) => p[i]);
    const rest = k === n ? 0 : maths.sum(p.filter((_, i) => !chosen.includes(i)));
    const { value, c } = bestOfDistinct(sizes, rest, chosen.map((i) => f[i]), m);
    distinct.record(maths.unorderedSet(sizes, rest).probability, chosen, value, c);
    if (++samples % SAMPLES_PER_STEP === 0) yield;
  }
  const order = p.map((_, i) => i).sort((a, b) => f[b] - f[a]);
  yield* (function* extend(from, drawn, probability) {
    if (drawn.length === k) {
      addDraws(independent, f, drawn, probability, m);
      if (++samples % SAMPLES_PER_STEP === 0) yield;
      return;
    }
    for (let i = from; i < n; i++) {
      const times = drawn.filter((s) => s === order[i]).length + 1;
      yield* extend(i, [...drawn, order[i]], probability * p[order[i]] * (drawn.length + 1) / times);
    }
  })(0, [], 1);
  return { value: target.mean, best_of: distinct.result(), best_of_independent: independent.result() };
}

function bestOfMoments(p, f, k, m) {
  const steps = bestOfInSteps(p, f, k, m);
  for (;;) {
    const { value, done } = steps.next();
    if (done) return value;
  }
}

function addDraws(moments, f, drawn, probability, m) {
  const { value, c } = bestOfIndependent(drawn.map((i) => f[i]), m);
  const together = new Map();
  drawn.forEach((s, i) => together.set(s, (together.get(s) || 0) + c[i]));
  moments.record(probability, [...together.keys()], value, [...together.values()]);
}

Object.assign(globalThis.maths, { bestOfMoments, bestOfInSteps });
