// The causal graph: only the edges that the current choice supports are in the page.
function arrow(geometry, width) {
  const [sx, sy, cx, cy, tx, ty, length] = geometry;
  const reach = Math.hypot(cx - tx, cy - ty) || 1;
  const head = Math.min(6 + 1.5 * width, 0.2 * length);
  const half = Math.max(0.42 * head, 0.9 * width);
  const ux = (cx - tx) / reach;
  const uy = (cy - ty) / reach;
  const bx = tx + head * ux;
  const by = ty + head * uy;
  const at = (x, y) => `${x.toFixed(2)},${y.toFixed(2)}`;
  return {
    line: `M${at(sx, sy)} Q${at(cx, cy)} ${at(bx, by)}`,
    head: `${at(tx, ty)} ${at(bx - half * uy, by + half * ux)} ${at(bx + half * uy, by - half * ux)}`,
  };
}

function drawGraph(data, shown, describe) {
  const stage = document.querySelector("#graph .fg-edges");
  if (!stage) return;
  const { test, isEdge, order, q } = shown;
  const strongest = Math.max(...test.strength.map((s) => s ?? 0), 0);
  const marks = [];
  for (const i of order) {
    if (!isEdge[i]) continue;
    const share = strongest > 0 ? test.strength[i] / strongest : 0;
    const width = Math.max(0.8, data.maxWidth * share);
    const { line, head } = arrow(data.geometry[i], width);
    const edge = make(
      "g",
      {
        class: `fg-edge ${grade(q && q[i])}`, tabindex: "0", role: "img",
        "data-pair": i, "data-cause": data.cause[i], "data-effect": data.effect[i],
        "aria-label": describe(i),
      },
      make("path", { class: "fg-reach", d: line }),
      make("path", { class: "fg-line", d: line, "stroke-width": width.toFixed(2) }),
      make("polygon", { class: "fg-head", points: head }),
    );
    marks.push(edge);
  }
  stage.replaceChildren(...marks.reverse()); // the strongest lie on top
}

// Point at a client: its own edges stay, the others fade.
function followClients() {
  const graph = document.querySelector("#graph .fg-graph");
  if (!graph) return;
  const follow = (client) => {
    for (const edge of graph.querySelectorAll(".fg-edge")) {
      const touches = client === null || edge.dataset.cause === client || edge.dataset.effect === client;
      edge.classList.toggle("fg-faded", !touches);
    }
  };
  graph.querySelectorAll(".fg-client").forEach((node, index) => {
    node.setAttribute("tabindex", "0");
    node.setAttribute("role", "link");
    for (const event of ["mouseenter", "focus"]) node.addEventListener(event, () => follow(String(index)));
    for (const event of ["mouseleave", "blur"]) node.addEventListener(event, () => follow(null));
    const open = () => {
      const page = byId(`client-${index}`);
      if (!page) return;
      page.open = true;
      page.scrollIntoView({ block: "start" });
      page.querySelector("summary").focus({ preventScroll: true });
    };
    node.addEventListener("click", open);
    node.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
  });
}
