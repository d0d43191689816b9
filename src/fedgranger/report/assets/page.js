// Controls of the page: level, correction, test and theme; everything else follows.
(() => {
  // a link into a fold opens it, and paper has no folds
  const unfold = () => {
    const target = location.hash && byId(decodeURIComponent(location.hash.slice(1)));
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    if (target) target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("#author, details.how")].filter((fold) => !fold.open);
    for (const fold of opened) fold.open = true;
  });
  addEventListener("afterprint", () => { for (const fold of opened) fold.open = false; });
  const data = JSON.parse(byId("run-data").textContent);
  drawCharts(data.charts);
  const graph = document.querySelector("#graph .fg-graph");
  if (!graph) return;
  const layout = drawClients(graph, data.lines, data.clients);
  if (!data.cause.length) return; // a client alone: nothing to choose
  const own = { alpha: data.alpha, correction: data.correction, test: data.tests[0].id };
  const choice = { ...own };
  let shown = null;

  const names = (i) => `${data.clients[data.cause[i]]} → ${data.clients[data.effect[i]]}`;
  const facts = (i) => {
    const { test, q, isEdge } = shown;
    const out = [["strength", number(test.strength[i])]];
    if (test.low) out.push([`${Math.round(100 * data.confidence)} % interval`, interval(test.low[i], test.high[i])]);
    if (test.p) out.push(["p", probability(test.p[i])], ["q", probability(q[i])]);
    out.push(["edge", whyUntested(test, i) || (isEdge[i] ? "yes" : "no")]);
    return out;
  };
  const describe = (i) => `${names(i)}: ${facts(i).map(([term, value]) => `${term} ${value}`).join(", ")}`;

  function render() {
    shown = decide(data, choice);
    drawGraph(data, layout, shown, describe);
    drawMatrix(data, shown, describe);
    drawForest(data, shown, describe);
    fillTable(data, shown);
    const isOwn = ["alpha", "correction", "test"].every((key) => choice[key] === own[key]);
    byId("count").textContent = shown.test.id === "fedgc"
      ? "a ranking, not tested"
      : countsText(shown.count, shown.tested, data.cause.length);
    byId("drawn").textContent = data.drawn[shown.test.p ? "test" : shown.test.id];
    const question = byId("chosen-question");
    question.textContent = isOwn ? "" : shown.test.question ?? "";
    question.hidden = question.textContent === "";
    document.querySelectorAll(".legend").forEach((legend) => { legend.hidden = !shown.test.p; });
    byId("own").textContent = isOwn ? "as decided by the run" : "what if: not the run's own decision";
    byId("reset").disabled = isOwn;
    for (const id of ["alpha", "correction"]) byId(id).disabled = !shown.test.p;
    document.documentElement.dataset.count = shown.count;
    showDetail(null);
  }

  function readAlpha() {
    const value = Number(byId("alpha").value);
    const isValid = Number.isFinite(value) && value > 0 && value < 1;
    byId("alpha").setAttribute("aria-invalid", String(!isValid));
    if (isValid && byId("alpha").value !== "") { choice.alpha = value; render(); }
  }

  // The tip follows the pointer or the focus; a click keeps the pair's details below the graph.
  const tip = byId("tip");
  function showTip(i, x, y) {
    tip.replaceChildren(make("strong", {}, names(i)),
      ...facts(i).map(([term, value]) => make("span", {}, `${term} ${value}`)));
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - box.width - 8))}px`;
    tip.style.top = `${y + 16 + box.height > innerHeight ? Math.max(4, y - box.height - 10) : y + 16}px`;
  }
  const pairOf = (event) => event.target.closest?.("[data-pair]");
  document.addEventListener("mousemove", (event) => {
    const mark = pairOf(event);
    if (mark && !mark.closest("table")) showTip(Number(mark.dataset.pair), event.clientX, event.clientY);
    else tip.hidden = true;
  });
  document.addEventListener("focusin", (event) => {
    const mark = pairOf(event);
    tip.hidden = true;
    if (!mark) return;
    const box = mark.getBoundingClientRect();
    showTip(Number(mark.dataset.pair), box.left + box.width / 2, box.top + box.height / 2);
  });
  document.addEventListener("click", (event) => {
    const mark = pairOf(event);
    if (mark) showDetail(Number(mark.dataset.pair));
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { tip.hidden = true; showDetail(null); }
    const mark = pairOf(event);
    if (mark && event.key === "Enter") showDetail(Number(mark.dataset.pair));
  });

  function showDetail(i) {
    const panel = byId("detail");
    panel.hidden = i === null;
    if (i === null) return;
    const rows = [];
    const entries = data.entries;
    if (entries && shown.test.hasEntries) {
      for (let k = entries.start[i]; k < entries.start[i + 1]; k++) {
        rows.push(make("tr", {},
          make("td", {}, `${data.clients[data.effect[i]]} ${entries.row[k] + 1}`),
          make("td", {}, `${data.clients[data.cause[i]]} ${entries.col[k] + 1}`),
          make("td", { class: "num" }, number(entries.estimate[k])),
          make("td", { class: "num" }, interval(entries.low[k], entries.high[k])),
          make("td", { class: "num" }, probability(entries.p[k]))));
      }
    }
    const close = make("button", { type: "button" }, "close");
    close.addEventListener("click", () => showDetail(null));
    const head = ["state of the effect", "state of the cause", "estimate", "interval", "p"];
    const course = document.querySelector(`#courses [data-course="${i}"]`);
    panel.replaceChildren(
      make("p", {}, make("strong", {}, names(i)), ` ${facts(i).map(([term, value]) => `${term} ${value}`).join(", ")} `, close),
      ...(rows.length ? [make("div", { class: "scroll" }, make("table", {},
        make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))),
        make("tbody", {}, ...rows)))] : []),
    );
    if (course) panel.children[0].after(course.cloneNode(true));
  }

  for (const test of data.tests) byId("test").append(make("option", { value: test.id }, test.label));
  byId("controls").hidden = false;
  const show = () => {
    for (const key of ["alpha", "correction", "test"]) byId(key).value = choice[key];
  };
  byId("alpha").addEventListener("input", readAlpha);
  for (const key of ["correction", "test"]) {
    byId(key).addEventListener("change", () => { choice[key] = byId(key).value; render(); });
  }
  byId("reset").addEventListener("click", () => { Object.assign(choice, own); show(); render(); });
  byId("theme").addEventListener("click", () => {
    const root = document.documentElement;
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    byId("theme").setAttribute("aria-pressed", String(root.dataset.theme === "dark"));
  });
  byId("theme").setAttribute("aria-pressed", String(document.documentElement.dataset.theme === "dark"));
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  show();
  render();
  followClients(graph);
  document.documentElement.dataset.ready = "true";
})();
