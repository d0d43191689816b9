// Charts that do not follow the choice of level and test: drawn once.
const SMALL = 220;

// A number with so many digits, as short as it can be (Python's :.3g).
function compact(value, digits = 6) {
  const power = value === 0 ? 0 : Number(value.toExponential(digits - 1).split("e")[1]);
  if (power >= -4 && power < digits) return String(Number(value.toPrecision(digits)));
  const [front, tail] = value.toExponential(digits - 1).split("e");
  return `${Number(front)}e${tail.replace(/^([+-])(\d)$/, "$10$2")}`;
}

const axis = (low, high, start, stop) => (value) => start + ((value - low) / (high - low)) * (stop - start);
const range = (count) => Array.from({ length: Math.max(count, 0) }, (_, k) => k);
const label = (x, y, text, anchor = "middle", more = {}) => make("text", { x, y, "text-anchor": anchor, ...more }, text);

function drawCharts(charts) {
  const draw = { lines: drawLines, bars: drawBars, normal: drawNormal, uniform: drawUniform, curve: drawCurve,
    followed: drawFollowed, sides: drawSides };
  for (const svg of document.querySelectorAll("svg[data-chart]")) {
    const chart = charts[svg.dataset.chart];
    svg.setAttribute("viewBox", chart.kind === "lines" ? "0 0 440 250" : `0 0 ${SMALL} ${SMALL}`);
    svg.setAttribute("font-size", 12);
    svg.append(...draw[chart.kind](chart));
  }
}

// Lines over training on a log axis, with a legend.
function drawLines({ lines, x: xLabel, y: yLabel }) {
  const [left, right, top, bottom] = [58, 420, 34, 208];
  const widen = (values, margin) => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return high - low < 1e-9 ? [low - margin, high + margin] : [low, high];
  };
  const xs = lines.flatMap((line) => line.x);
  const logs = lines.flatMap((line) => line.y.map(Math.log10));
  const [x, y] = [axis(...widen(xs, 0.5), left, right), axis(...widen(logs, 0.1), bottom, top)];
  const marks = [];
  for (const value of logTicks(...widen(logs, 0.1))) {
    const at = y(Math.log10(value));
    marks.push(make("line", { class: "grid", x1: left, y1: at, x2: right, y2: at }),
      label(left - 7, at + 4, compact(value, 4), "end"));
  }
  for (const value of wholeTicks(Math.min(...xs), Math.max(...xs))) {
    marks.push(make("line", { class: "grid", x1: x(value), y1: bottom, x2: x(value), y2: bottom + 5 }),
      label(x(value), bottom + 18, compact(value)));
  }
  marks.push(label((left + right) / 2, 244, xLabel), label(4, 16, yLabel, "start"));
  const step = lines.length <= 2 ? 116 : 98;
  lines.forEach((line, k) => {
    const spots = line.x.map((value, i) => [x(value), y(Math.log10(line.y[i]))]);
    marks.push(spots.length === 1
      ? make("circle", { class: line.style, cx: spots[0][0], cy: spots[0][1], r: 4 })
      : make("polyline", { class: `line ${line.style}`, points: joined(spots) }));
    const from = right + step * (k - lines.length);
    marks.push(make("line", { class: `line ${line.style}`, x1: from, y1: 12, x2: from + 26, y2: 12 }),
      label(from + 31, 16, line.label, "start"));
  });
  return marks;
}

const joined = (points) => points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");

// Two to seven round values between 10^low and 10^high.
function logTicks(low, high) {
  const [first, last] = [Math.ceil(low - 1e-9), Math.floor(high + 1e-9)];
  if (last - first >= 2) {
    const stride = Math.ceil((last - first) / 5);
    return range(Math.floor((last - first) / stride) + 1).map((k) => 10 ** (first + k * stride));
  }
  for (const digits of [[1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9]]) {
    const ticks = range(Math.ceil(high) - Math.floor(low) + 2)
      .flatMap((k) => digits.map((digit) => digit * 10 ** (Math.floor(low) - 1 + k)))
      .filter((value) => low - 1e-9 <= Math.log10(value) && Math.log10(value) <= high + 1e-9);
    if (ticks.length >= 2 && ticks.length <= 7) return ticks;
  }
  return [10 ** low, 10 ** ((low + high) / 2), 10 ** high];
}

// At most six whole numbers at a round distance.
function wholeTicks(low, high) {
  const steps = range(36).map((k) => [1, 2, 5][k % 3] * 10 ** Math.floor(k / 3));
  const step = steps.find((size) => (high - low) / size <= 5);
  const first = Math.ceil(low / step);
  return range(Math.floor(high / step) - first + 1).map((k) => step * (first + k));
}

const frame = () => make("path", { class: "grid", fill: "none", d: `M30,8 V${SMALL - 30} H${SMALL - 8}` });

// Histogram over 0…1.
function drawBars({ counts }) {
  const [inner, most] = [SMALL - 38, Math.max(...counts, 1)];
  const width = inner / counts.length;
  const bars = counts.map((count, k) => make("rect", {
    class: "bar", x: 30.5 + k * width, y: 8 + inner * (1 - count / most), width: width - 1, height: (inner * count) / most,
  }));
  const foot = SMALL - 6;
  return [...bars, frame(), label(30, foot, "0"), label(SMALL - 8, foot, "1"), label(30 + inner / 2, foot, "p"),
    label(26, 16, String(most), "end")];
}

// Quantiles against the standard normal's; the line is a perfect fit.
function drawNormal({ points }) {
  const limit = 1.05 * Math.max(...points.flat().map(Math.abs));
  const [x, y] = [axis(-limit, limit, 30, SMALL - 8), axis(-limit, limit, SMALL - 30, 8)];
  const dots = points.map(([normal, value]) => make("circle", { class: "dot", cx: x(normal), cy: y(value), r: 2.2 }));
  return [frame(), make("line", { class: "fit", x1: x(-limit), y1: y(-limit), x2: x(limit), y2: y(limit) }), ...dots,
    label(SMALL / 2 + 11, SMALL - 6, "normal"), label(26, 16, limit.toFixed(1), "end")];
}

// A curve with its band: an effect over its cause, or after it.
function drawCurve({ rows, x: xLabel = "cause", y: yLabel = "effect" }) {
  const limit = 1.05 * Math.max(...rows.flatMap(([, , low, high]) => [Math.abs(low), Math.abs(high)]), 1e-9);
  const [from, to] = [rows[0][0], rows[rows.length - 1][0]];
  const [x, y] = [axis(from, to, 40, SMALL - 8), axis(-limit, limit, SMALL - 30, 8)];
  const edge = [...rows.map(([at, , low]) => [x(at), y(low)]), ...rows.map(([at, , , high]) => [x(at), y(high)]).reverse()];
  const small = { "font-size": 10 };
  return [
    make("line", { class: "grid", x1: 40, y1: y(0), x2: SMALL - 8, y2: y(0) }),
    make("line", { class: "grid", x1: x(0), y1: 8, x2: x(0), y2: SMALL - 30 }),
    make("polygon", { class: "band", points: joined(edge) }),
    make("polyline", { class: "fit", fill: "none", points: joined(rows.map(([at, value]) => [x(at), y(value)])) }),
    ...[...new Set([from, 0, to])].map((value) => label(x(value), SMALL - 16, compact(value), value === to ? "end" : "middle", small)),
    label(36, 16, compact(limit, 2), "end", small), label(36, y(0) + 4, "0", "end", small),
    label(36, SMALL - 30, compact(-limit, 2), "end", small),
    label((40 + SMALL) / 2, SMALL - 4, xLabel, "middle", { "font-size": 11 }),
    label(10, 96, yLabel, "middle", { "font-size": 11, transform: "rotate(-90 10 96)" }),
  ];
}

// Cause and effect over time, the effect dashed.
function drawSides({ rows, step, x: xLabel }) {
  const limit = 1.05 * Math.max(...rows.flat().map(Math.abs), 1e-9);
  const [x, y] = [axis(0, rows.length - 1, 40, SMALL - 8), axis(-limit, limit, SMALL - 30, 22)];
  const small = { "font-size": 10 };
  const line = (side, style) => make("polyline", { class: `line ${style}`, points: joined(rows.map((row, k) => [x(k), y(row[side])])) });
  const key = (from, style, text) => [make("line", { class: `line ${style}`, x1: from, y1: 10, x2: from + 20, y2: 10 }),
    label(from + 24, 14, text, "start", small)];
  return [
    make("line", { class: "grid", x1: 40, y1: y(0), x2: SMALL - 8, y2: y(0) }),
    line(1, "effect"), line(0, "cause"), ...key(44, "cause", "cause"), ...key(116, "effect", "effect"),
    label(36, 26, compact(limit, 2), "end", small), label(36, y(0) + 4, "0", "end", small),
    label(36, SMALL - 30, compact(-limit, 2), "end", small), label(40, SMALL - 16, "0", "middle", small),
    label(SMALL - 8, SMALL - 16, compact((rows.length - 1) * step, 3), "end", small),
    label((40 + SMALL) / 2, SMALL - 4, xLabel, "middle", small),
  ];
}

// An edge's strength in the stretches of the record with its band; a stretch may have no numbers.
function drawFollowed({ rows, ends, highest }) {
  const [left, right, top, bottom] = [40, SMALL - 8, 8, SMALL - 30];
  const step = (right - left) / rows.length;
  const [x, y] = [(k) => left + step * (k + 0.5), axis(0, highest || 1, bottom, top)];
  const runs = [[]];
  rows.forEach((row, k) => (row[0] === null ? runs.push([]) : runs[runs.length - 1].push([k, ...row])));
  const known = runs.filter((run) => run.length);
  const banded = known.map((run) => run.filter(([, , low]) => low !== null)).filter((run) => run.length);
  const small = { "font-size": 10 };
  return [
    make("path", { class: "grid", fill: "none", d: `M${left},${top} V${bottom} H${right}` }),
    ...banded.flatMap((run) => [
      make("polygon", { class: "band", points: joined([
        ...run.map(([k, , low]) => [x(k), y(low)]), ...run.map(([k, , , high]) => [x(k), y(high)]).reverse()]) }),
      ...run.map(([k, , low, high]) => make("line", { class: "reach", x1: x(k), y1: y(low), x2: x(k), y2: y(high) })),
    ]),
    ...known.map((run) => make("polyline", { class: "fit", fill: "none", points: joined(run.map(([k, value]) => [x(k), y(value)])) })),
    ...known.flat().map(([k, value, , , isEdge]) => make("circle", { class: isEdge ? "dot" : "hollow", cx: x(k), cy: y(value), r: 3.2 })),
    label(left, SMALL - 14, ends[0], "start", small), label(right, SMALL - 14, ends[1], "end", small),
    label(left - 4, top + 8, compact(highest, 2), "end", small), label(left - 4, bottom, "0", "end", small),
    label(10, 96, "strength", "middle", { "font-size": 11, transform: "rotate(-90 10 96)" }),
  ];
}

// Observed p-values against uniform ones with their band, small ones up and to the right.
function drawUniform({ rows }) {
  const [left, right, top, bottom] = [54, SMALL - 8, 8, SMALL - 34];
  const decade = (value) => -Math.log10(Math.max(value, 1e-300));
  const decades = (column) => Math.min(Math.max(1, Math.ceil(decade(Math.min(...rows.map((row) => row[column]))))), 5);
  const [across, up] = [decades(0), decades(1)];
  const place = (level, p) => [
    axis(0, 1, left, right)(Math.min(decade(level) / across, 1)), axis(0, 1, bottom, top)(Math.min(decade(p) / up, 1))];
  const edge = [...rows.map(([u, , low]) => place(u, low)), ...rows.map(([u, , , high]) => place(u, high)).reverse()];
  const dots = rows.map(([u, p]) => place(u, p)).map(([cx, cy]) => make("circle", { class: "dot", cx, cy, r: 2.4 }));
  const end = 10 ** -Math.min(across, up);
  const [[x1, y1], [x2, y2]] = [place(1, 1), place(end, end)];
  const small = { "font-size": 10 };
  const ticks = [
    ...range(across + 1).map((k) => [place(10 ** -k, 1)[0], k])
      .map(([x, k]) => label(x, bottom + 14, compact(10 ** -k), x > SMALL - 30 ? "end" : "middle", small)),
    ...range(up + 1).map((k) => label(left - 4, place(1, 10 ** -k)[1] + 4, compact(10 ** -k), "end", small)),
  ];
  return [
    make("path", { class: "grid", fill: "none", d: `M${left},${top} V${bottom} H${right}` }),
    make("polygon", { class: "band", points: joined(edge) }),
    make("line", { class: "fit", x1, y1, x2, y2 }), ...dots, ...ticks,
    label((left + SMALL) / 2, SMALL - 4, "p if uniform", "middle", { "font-size": 11 }),
    label(12, 96, "p on copies", "middle", { "font-size": 11, transform: "rotate(-90 12 96)" }),
  ];
}
