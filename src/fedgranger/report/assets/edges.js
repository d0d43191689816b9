// Forest plot and table of pairs: edges first, then by strength.
const MOST_ROWS = 40;

function drawForest(data, shown, describe) {
  const stage = byId("forest-stage");
  if (!stage) return;
  const { test, order, isEdge, q } = shown;
  const rows = order.slice(0, MOST_ROWS);
  const ends = rows.map((i) => (test.high ? test.high[i] ?? test.strength[i] : test.strength[i]) ?? 0);
  const limit = niceLimit(Math.max(...ends, 0)) || 1;
  const at = (value) => `${(100 * Math.min(Math.max(value, 0), limit)) / limit}%`;
  const list = rows.map((i) => {
    const line = make("span", { class: "forest-line", "aria-hidden": "true" });
    if (test.low && test.low[i] !== null) {
      const range = make("span", { class: "forest-range" });
      range.style.left = at(test.low[i]);
      range.style.right = `calc(100% - ${at(test.high[i])})`;
      line.append(range);
    }
    if (test.strength[i] !== null) {
      const dot = make("span", { class: "forest-dot" });
      dot.style.left = at(test.strength[i]);
      line.append(dot);
    }
    const strength = test.strength[i] === null ? "" : `${number(test.strength[i])}, `;
    const range = test.low && test.low[i] !== null ? ` (${interval(test.low[i], test.high[i])})` : "";
    const words = q && q[i] !== null
      ? `${number(test.strength[i])}${range}, q ${probability(q[i])}`
      : `${strength}not tested`;
    return make(
      "li",
      { class: `forest-row ${isEdge[i] ? `is-edge ${grade(q && q[i])}` : ""}`, "data-pair": i, tabindex: "0", "aria-label": describe(i) },
      make("span", { class: "forest-name" }, `${data.clients[data.cause[i]]} → ${data.clients[data.effect[i]]}`),
      line,
      make("span", { class: "forest-numbers" }, words),
    );
  });
  const axis = make("li", { class: "forest-row forest-axis", "aria-hidden": "true" },
    make("span", { class: "forest-name" }), make("span", { class: "forest-line" }), make("span", { class: "forest-numbers" }));
  for (let k = 0; k <= 4; k++) {
    const tick = make("span", { class: "forest-tick" }, String(Number(((limit * k) / 4).toPrecision(3))));
    tick.style.left = `${25 * k}%`;
    axis.children[1].append(tick);
  }
  stage.replaceChildren(...list, axis);
  const more = data.cause.length - rows.length;
  byId("forest-more").textContent = more > 0 ? `${more} weaker pairs are left out here; edges.csv has all.` : "";
}

function niceLimit(value) {
  if (!(value > 0)) return 0;
  const unit = 10 ** Math.floor(Math.log10(value));
  return [1, 1.2, 1.6, 2, 2.4, 3.2, 4, 5, 6, 8, 10].map((k) => k * unit).find((end) => end >= value);
}

function fillTable(data, shown) {
  const body = document.querySelector("#pairs tbody");
  if (!body) return;
  const { test, order, isEdge, q } = shown;
  const cells = (i) => [
    data.clients[data.cause[i]], data.clients[data.effect[i]], number(test.strength[i]),
    test.low ? interval(test.low[i], test.high[i]) : "–",
    test.statistic ? number(test.statistic[i]) : "–", test.df ? String(test.df[i] ?? "–") : "–",
    test.p ? probability(test.p[i]) : "–", q ? probability(q[i]) : "–",
    whyUntested(test, i) || (isEdge[i] ? "yes" : "no"),
  ];
  const rows = order.slice(0, data.mostRows).map((i) => {
    const row = make("tr", { "data-pair": i, class: isEdge[i] ? "is-edge" : null });
    cells(i).forEach((text, k) => row.append(make("td", { class: k > 1 && k < 8 ? "num" : null }, text)));
    return row;
  });
  body.replaceChildren(...rows);
}
