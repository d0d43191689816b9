// Which pairs are edges: the same arithmetic, in the same order, as fedgranger.inference.
const ADJUST = {
  none: (sorted) => sorted.slice(),
  holm: (sorted) => {
    let worst = 0;
    return sorted.map((p, k) => (worst = Math.max(worst, Math.min(1, p * (sorted.length - k)))));
  },
  bh: (sorted) => stepUp(sorted, 1),
  by: (sorted) => {
    let harmonic = 0;
    for (let k = 1; k <= sorted.length; k++) harmonic += 1 / k;
    return stepUp(sorted, harmonic);
  },
};

function stepUp(sorted, factor) {
  const n = sorted.length;
  const out = new Array(n);
  let least = Infinity;
  for (let k = n - 1; k >= 0; k--) {
    least = Math.min(least, sorted[k] / ((k + 1) / n / factor));
    out[k] = Math.min(1, least);
  }
  return out;
}

// A test that could not be made counts as made (p = 1); a pair left out by `couplings` does not.
function adjusted(p, counted, correction) {
  const places = p.map((_, i) => i).filter((i) => counted[i]);
  places.sort((a, b) => (p[a] ?? 1) - (p[b] ?? 1));
  const q = ADJUST[correction](places.map((i) => p[i] ?? 1));
  const out = new Array(p.length).fill(null);
  places.forEach((i, k) => { if (p[i] !== null) out[i] = q[k]; });
  return out;
}

// The counts in words, as fedgranger.inference.answer.counts_text.
function countsText(found, tested, possible) {
  if (!tested) return "nothing was tested";
  const text = `${found} of ${tested} tested pairs ${found === 1 ? "is an edge" : "are edges"}`;
  const rest = possible - tested;
  return rest ? `${text}, ${rest} of ${possible} pairs ${rest === 1 ? "was" : "were"} not tested` : text;
}

// Why a pair has no p-value; empty where it has one.
function whyUntested(test, i) {
  if (test.p && test.p[i] !== null) return "";
  const reason = test.untested ? test.untested[i] : null;
  return reason ? `not tested: ${reason}` : "not tested";
}

// What the page shows for a choice of test, correction and level.
function decide(data, choice) {
  const test = data.tests.find((one) => one.id === choice.test);
  const order = data.cause.map((_, i) => i);
  order.sort((a, b) => (test.strength[b] ?? -1) - (test.strength[a] ?? -1));
  if (!test.p) { // a ranking, or nothing: no pair is an edge
    return { test, order, q: null, isEdge: data.cause.map(() => false), count: 0, tested: 0 };
  }
  const q = adjusted(test.p, data.counted, choice.correction);
  const isEdge = q.map((value) => value !== null && value <= choice.alpha);
  const first = order.filter((i) => isEdge[i]);
  const rest = order.filter((i) => !isEdge[i]);
  const tested = q.filter((value) => value !== null).length;
  return { test, order: [...first, ...rest], q, isEdge, count: first.length, tested };
}
