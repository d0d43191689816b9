// Numbers and names as the tables of the page print them (fedgranger.text).
function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-3 && size < 1e5) return value.toFixed(3);
  return value.toExponential(2).replace(/e([+-])(\d)$/, (_, sign, digit) => `e${sign}0${digit}`);
}

function probability(value) {
  if (value === null || value === undefined) return "–";
  return value < 1e-99 ? "<1e-99" : number(value);
}

function interval(low, high) {
  return low === null || high === null || low === undefined ? "–" : `${number(low)} to ${number(high)}`;
}

const SVG_TAGS = ["svg", "g", "path", "polygon", "polyline", "rect", "circle", "line", "text", "tspan", "title", "desc"];

function make(tag, attributes = {}, ...children) {
  const node = SVG_TAGS.includes(tag)
    ? document.createElementNS(document.querySelector("svg").namespaceURI, tag)
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const byId = (id) => document.getElementById(id);

// Three grades of confidence, told apart by colour and by dash.
function grade(q) {
  if (q === null || q === undefined) return "grade-none";
  return q <= 0.001 ? "grade-high" : q <= 0.01 ? "grade-mid" : "grade-low";
}
