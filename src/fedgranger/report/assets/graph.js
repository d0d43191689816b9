// The causal graph: only the edges that the current choice supports are in the page.
const MOST_SAID = 12;

function arrow({ start, control, tip, length }, width) {
  const head = Math.min(6 + 1.5 * width, 0.2 * length);
  const half = Math.max(0.42 * head, 0.9 * width);
  const base = towards(tip, control, head);
  const [ux, uy] = [(base[0] - tip[0]) / head, (base[1] - tip[1]) / head];
  const at = ([x, y]) => `${x.toFixed(2)},${y.toFixed(2)}`;
  const corners = [tip, [base[0] - half * uy, base[1] + half * ux], [base[0] + half * uy, base[1] - half * ux]];
  return { line: `M${at(start)} Q${at(control)} ${at(base)}`, head: corners.map(at).join(" ") };
}

function drawGraph(data, layout, shown, describe) {
  const stage = document.querySelector("#graph .fg-edges");
  const { test, isEdge, order, q } = shown;
  const strongest = Math.max(...test.strength.map((s) => s ?? 0), 0);
  const drawn = order.filter((i) => isEdge[i]);
  const marks = drawn.map((i) => {
    const width = Math.max(0.8, layout.widest * (strongest > 0 ? test.strength[i] / strongest : 0));
    const { line, head } = arrow(curveBetween(layout, data.cause[i], data.effect[i]), width);
    return make(
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
  });
  stage.replaceChildren(...marks.reverse()); // the strongest lie on top
  sayGraph(stage.ownerSVGElement, data, shown, drawn);
}

// The picture in words: its name, and its strongest edges.
function sayGraph(svg, data, { test }, drawn) {
  const count = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;
  const name = `Causal graph of ${count(data.clients.length, "client")}: ${count(drawn.length, "edge")}`;
  const title = test.p ? name : `${name} (nothing was tested)`;
  const edge = (i) => `${data.clients[data.cause[i]]} → ${data.clients[data.effect[i]]}: strength ${number(test.strength[i])}`;
  const more = drawn.length - MOST_SAID;
  const words = [...drawn.slice(0, MOST_SAID).map(edge), ...(more > 0 ? [`and ${more} weaker`] : [])].join("; ");
  svg.setAttribute("aria-label", title);
  svg.querySelector("title").textContent = title;
  svg.querySelector("desc").textContent = `${words || "No edges are drawn"}.`;
}

// Point at a client: its own edges stay, the others fade.
function followClients(graph) {
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
