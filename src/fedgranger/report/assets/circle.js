// Clients on a circle, names around it, curves inside. The centre is (0, 0), y points down.
const LINE_HEIGHT = 1.2;
const NAME_GAP = 6;

const polar = (radius, angle) => [radius * Math.cos(angle), radius * Math.sin(angle)];

function towards([x, y], [goalX, goalY], distance) {
  const share = distance / Math.max(Math.hypot(goalX - x, goalY - y), 1e-9);
  return [x + share * (goalX - x), y + share * (goalY - y)];
}

// Widths of texts in the page's font, a little generous.
function ruler(size) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
  return (text) => 1.04 * pen.measureText(text).width;
}

// A name beside its client, in one line or two.
function uprightName(lines, angle, reach, size, measure) {
  const width = Math.max(...lines.map((line) => measure(line.trim())));
  const height = lines.length * size * LINE_HEIGHT;
  const [x, y] = polar(reach, angle);
  const cosine = Math.cos(angle);
  const anchor = cosine > 0.2 ? "start" : cosine < -0.2 ? "end" : "middle";
  const left = x - { start: 0, middle: width / 2, end: width }[anchor];
  const top = y + ((Math.sin(angle) - 1) * height) / 2;
  return { lines, anchor, x, y: top + 0.9 * size, turn: 0, box: [left, top, left + width, top + height] };
}

// A name that points outwards, in one line, readable from left to right.
function radialName(lines, angle, reach, size, measure) {
  const name = lines.join("");
  const half = (size * LINE_HEIGHT) / 2;
  const at = (along, across) => [
    along * Math.cos(angle) - across * Math.sin(angle), along * Math.sin(angle) + across * Math.cos(angle)];
  const end = reach + measure(name);
  const isLeft = Math.cos(angle) < -1e-9;
  const [x, y] = at(reach, 0.34 * size * (isLeft ? -1 : 1)); // the baseline lies below the ray
  const box = bounds([at(reach, -half), at(reach, half), at(end, -half), at(end, half)], 0);
  return { lines: [name], anchor: isLeft ? "end" : "start", x, y, turn: (angle * 180) / Math.PI + (isLeft ? 180 : 0), box };
}

function bounds(points, margin) {
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  return [Math.min(...xs) - margin, Math.min(...ys) - margin, Math.max(...xs) + margin, Math.max(...ys) + margin];
}

function collide(names) {
  const touch = (a, b) => a[0] < b[2] + 2 && b[0] < a[2] + 2 && a[1] < b[3] + 2 && b[1] < a[3] + 2;
  return names.some((one, k) => names.slice(0, k).some((other) => touch(one.box, other.box)));
}

// Clockwise, the first at the top (two: left and right); names turn when they would touch.
function placeClients(labels) {
  const count = labels.length;
  const size = count <= 32 ? 13 : 11;
  const node = count <= 12 ? 6 : count <= 32 ? 5 : 4;
  const measure = ruler(size);
  let radius = Math.max(90 + 32 * Math.log2(Math.max(count, 2) / 2), (count * size * LINE_HEIGHT) / (2 * Math.PI));
  const angles = labels.map((_, k) => (count === 2 ? -Math.PI : -Math.PI / 2) + (2 * Math.PI * k) / count);
  const placed = (name, rim) => labels.map((lines, k) => name(lines, angles[k], rim + node + NAME_GAP, size, measure));
  let names = placed(uprightName, radius);
  if (collide(names)) {
    names = placed(uprightName, 1.25 * radius);
    if (collide(names)) names = placed(radialName, radius);
    else radius *= 1.25;
  }
  const positions = angles.map((angle) => polar(radius, angle));
  const corners = names.flatMap(({ box }) => [box.slice(0, 2), box.slice(2)]);
  const [rimLeft, rimTop, rimRight, rimBottom] = bounds(positions, node + 6);
  const view = bounds([[rimLeft, rimTop], [rimRight, rimBottom], ...corners], 8);
  return { radius, node, size, positions, names, view, widest: count <= 12 ? 4.5 : count <= 32 ? 3.5 : 2.5 };
}

// An edge bends to the right of its direction, so that a pair's two edges part. The bend towards
// the rim is limited, or the curve would meet the clients between its ends; the opposite edge then
// bends further inwards. With many clients short edges are pulled towards the centre.
function curveBetween({ radius, node, positions }, cause, effect) {
  const [p, q] = [positions[cause], positions[effect]];
  const count = positions.length;
  const length = Math.hypot(q[0] - p[0], q[1] - p[1]);
  const normal = [-(q[1] - p[1]) / length, (q[0] - p[0]) / length];
  const middle = [(p[0] + q[0]) / 2, (p[1] + q[1]) / 2];
  const isAdjacent = [1, count - 1].includes((cause - effect + count) % count);
  const depth = Math.hypot(...middle) / radius;
  const apart = Math.max(0.16 * length, 10);
  const clearance = isAdjacent ? -4 : node + 5;
  const pull = count > 8 ? 0.15 * depth * length : 0;
  const outward = Math.min(apart / 2, (1 - depth) * radius - clearance) - pull;
  const bend = normal[0] * middle[0] + normal[1] * middle[1] > 0 ? outward : apart - outward;
  const control = [middle[0] + 2 * bend * normal[0], middle[1] + 2 * bend * normal[1]];
  return { start: towards(p, control, node + 2), control, tip: towards(q, control, node + 2), length };
}

// Fill the picture with the clients; returns their layout for the edges.
function drawClients(svg, labels, names) {
  const layout = placeClients(labels);
  const [left, top, right, bottom] = layout.view;
  const width = right - left;
  const marks = names.map((name, k) => {
    const { lines, anchor, x, y, turn } = layout.names[k];
    const rows = lines.map((line, row) => make("tspan", { x, y: y + row * LINE_HEIGHT * layout.size }, line.trim()));
    return make("g", { class: "fg-client" },
      make("title", {}, name),
      make("circle", { cx: layout.positions[k][0], cy: layout.positions[k][1], r: layout.node }),
      make("text", { "text-anchor": anchor, transform: turn ? `rotate(${turn} ${x} ${y})` : null }, ...rows));
  });
  svg.setAttribute("viewBox", [left, top, width, bottom - top].map((x) => x.toFixed(2)).join(" "));
  svg.setAttribute("font-size", layout.size);
  svg.style.minWidth = `${(0.55 * width).toFixed(0)}px`; // smaller nobody can read it: it scrolls
  svg.style.maxWidth = `${(1.35 * width).toFixed(0)}px`;
  svg.replaceChildren(make("title"), make("desc"), make("g", { class: "fg-edges" }), make("g", { class: "fg-clients" }, ...marks));
  return layout;
}
