// Matrix of all pairs: rows are effects, columns are causes.
const WITH_NUMBERS = 8;

// As many digits as a cell holds; pointing at it shows all.
function brief(value) {
  return value > 0 && value < 1e-3 ? "<0.001" : value >= 1e4 ? value.toExponential(0) : number(value);
}

function drawMatrix(data, shown, describe) {
  const stage = byId("matrix-stage");
  if (!stage) return;
  const M = data.clients.length;
  const { test, isEdge, q } = shown;
  const withNumbers = M <= WITH_NUMBERS;
  const cell = withNumbers ? 84 : M <= 24 ? 26 : 12;
  const height = withNumbers ? 46 : cell;
  const font = withNumbers ? 12 : M <= 24 ? 11 : 9;
  const longest = Math.max(...data.labels.map((name) => name.length));
  const side = Math.min(180, 0.62 * font * longest + 12);
  const top = withNumbers ? 24 : side;
  const strongest = Math.max(...test.strength.map((s) => s ?? 0), 0) || 1;
  const width = side + M * cell + (withNumbers ? 4 : 0.5 * side);
  const tall = top + M * height + 4;
  const label = "Matrix of influences; rows are effects, columns are causes";
  const svg = make("svg", {
    class: "fg-matrix", viewBox: `0 0 ${width} ${tall}`, role: "img", "aria-label": label,
    "font-size": font, style: `min-width:${Math.min(width, 0.8 * width)}px;max-width:${width}px`,
  });
  data.labels.forEach((name, k) => {
    const x = side + (k + 0.5) * cell;
    const turned = withNumbers ? {} : { transform: `rotate(-60 ${x} ${top - 5})`, "text-anchor": "start" };
    const short = withNumbers && name.length > 12 ? `${name.slice(0, 11)}…` : name;
    svg.append(
      make("text", { x, y: top - 7, "text-anchor": "middle", ...turned }, short),
      make("text", { x: side - 6, y: top + (k + 0.5) * height + 0.35 * font, "text-anchor": "end" }, name),
    );
  });
  data.cause.forEach((cause, i) => {
    const x = side + cause * cell;
    const y = top + data.effect[i] * height;
    const share = Math.sqrt((test.strength[i] ?? 0) / strongest);
    const box = make(
      "g",
      { class: `fg-cell ${isEdge[i] ? `is-edge ${grade(q && q[i])}` : ""}`, "data-pair": i },
      make("rect", { class: "fg-fill", x: x + 0.5, y: y + 0.5, width: cell - 1, height: height - 1,
        "fill-opacity": (isEdge[i] ? 0.12 + 0.5 * share : 0.04 + 0.12 * share).toFixed(3) }),
    );
    if (isEdge[i]) {
      box.append(make("rect", { class: "fg-frame", x: x + 1.5, y: y + 1.5, width: cell - 3, height: height - 3 }));
    }
    if (withNumbers) {
      const centre = x + cell / 2;
      box.append(make("text", { class: "fg-value", x: centre, y: y + 20, "text-anchor": "middle" },
        test.strength[i] === null ? "" : number(test.strength[i])));
      if (test.low && test.low[i] !== null) {
        box.append(make("text", { class: "fg-range", x: centre, y: y + 35, "text-anchor": "middle", "font-size": 9.5 },
          `${brief(test.low[i])} to ${brief(test.high[i])}`));
      }
    }
    if (test.id !== "fedgc" && whyUntested(test, i)) { // a ranking has no tests to be without
      const [cx, cy, r] = [x + cell / 2, y + height / 2, Math.min(6, 0.3 * cell)];
      const low = withNumbers ? 9 : 0;
      box.append(make("path", { class: "fg-cross",
        d: `M${cx - r},${cy + low - r} l${2 * r},${2 * r} m0,${-2 * r} l${-2 * r},${2 * r}` }));
    }
    box.append(make("title", {}, describe(i)));
    svg.append(box);
  });
  stage.replaceChildren(svg);
}
