"""What the page's script draws: right places, right sizes, nothing outside, nothing on top."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedgranger.report.html import write_report
from fedgranger.text import shorten, wrap
from tests.fake_runs import full_manifest, made_report, table_of

EDGES = """return [...document.querySelectorAll('#graph .fg-edge')].map(edge => ({
  cause: +edge.dataset.cause, effect: +edge.dataset.effect,
  line: edge.querySelector('.fg-line').getAttribute('d'),
  width: +edge.querySelector('.fg-line').getAttribute('stroke-width'),
  head: edge.querySelector('.fg-head').getAttribute('points')}))"""
CENTRES = """return [...document.querySelectorAll('#graph circle')]
  .map(c => [+c.getAttribute('cx'), +c.getAttribute('cy')])"""
# Names that leave the picture or come closer to a client than its rim.
MISPLACED = """
const [names, lines] = arguments;
const svg = document.querySelector('#graph .fg-graph');
drawClients(svg, lines, names);
const frame = svg.getBoundingClientRect();
const circles = [...svg.querySelectorAll('circle')];
const wrong = [];
for (const text of svg.querySelectorAll('text')) {
  const box = text.getBoundingClientRect();
  if (box.left < frame.left - 0.5 || box.right > frame.right + 0.5
      || box.top < frame.top - 0.5 || box.bottom > frame.bottom + 0.5) wrong.push(text.textContent);
  const own = text.getBBox();
  const back = text.getCTM().inverse();
  for (const circle of circles) {
    const spot = svg.createSVGPoint();
    [spot.x, spot.y] = [circle.cx.baseVal.value, circle.cy.baseVal.value];
    const at = spot.matrixTransform(circle.getCTM()).matrixTransform(back);
    const dx = Math.max(own.x - at.x, 0, at.x - own.x - own.width);
    const dy = Math.max(own.y - at.y, 0, at.y - own.y - own.height);
    if (Math.hypot(dx, dy) <= circle.r.baseVal.value) wrong.push(text.textContent);
  }
}
return [wrong, [...svg.querySelectorAll('tspan')].map(line => line.textContent.length)];
"""


def plants(count):
    return [f"plant_{index:02d}" for index in range(count)]


def points(text):
    return [tuple(map(float, point.split(","))) for point in text.split()]


def curve_of(line):
    """Start, control and end of a path."""
    start, rest = line[1:].split(" Q")
    return points(start + " " + rest)


def bezier(curve, share):
    weights = (1 - share) ** 2, 2 * share * (1 - share), share**2
    return tuple(sum(w * p[k] for w, p in zip(weights, curve, strict=True)) for k in (0, 1))


def complete(names, strengths=None):
    """Every pair is an edge."""
    by_effect = table_of(
        names,
        strength=0.5 if strengths is None else strengths,
        p_value=1e-9,
        q_value=1e-9,
        is_edge=True,
    )
    return by_effect.rename(columns={"cause": "effect", "effect": "cause"})  # the first name first


@pytest.fixture
def open_graph(tmp_path, open_page):
    def opened(edges, manifest=None):
        write_report(tmp_path / "r.html", edges, manifest or {}, pd.DataFrame())
        return open_page(tmp_path / "r.html")

    return opened


@pytest.fixture(scope="module")
def full_report(tmp_path_factory):
    names = ["boiler", "compressor", "cooling", "reactor", "separator", "turbine"]
    return made_report(tmp_path_factory.mktemp("pictures"), names)[0]


@pytest.mark.parametrize("count", [2, 3, 7, 20, 64])
def test_arrow_points_at_effect(open_graph, count):
    page = open_graph(complete(plants(count)))
    edges, centres = page.script(EDGES), page.script(CENTRES)
    assert len(edges) == count * (count - 1)
    for edge in edges:
        cause, effect = centres[edge["cause"]], centres[edge["effect"]]
        start, _, end = curve_of(edge["line"])
        tip, *base = points(edge["head"])
        assert math.dist(start, cause) < math.dist(start, effect)
        assert math.dist(end, effect) < math.dist(end, cause)
        assert math.dist(tip, effect) < min(math.dist(corner, effect) for corner in base)


@pytest.mark.parametrize("count", [2, 3, 6, 20, 64])
def test_opposite_edges_lie_apart_and_clear_of_other_clients(open_graph, count):
    page = open_graph(complete(plants(count)))
    centres = page.script(CENTRES)
    radius = page.script("return document.querySelector('#graph circle').r.baseVal.value")
    curves = {
        (edge["cause"], edge["effect"]): curve_of(edge["line"]) for edge in page.script(EDGES)
    }
    for other in range(1, count):
        there, back = curves[0, other], curves[other, 0]
        assert math.dist(bezier(there, 0.5), bezier(back, 0.5)) > 4
        for share in np.linspace(0, 1, 41):
            spot = bezier(there, share)
            for third in set(range(count)) - {0, other}:
                assert math.dist(spot, centres[third]) > radius


def test_width_is_proportional_to_strength_and_the_strongest_lies_on_top(open_graph):
    page = open_graph(complete(["a", "b"], [0.8, 0.4]))
    weak, strong = page.script(EDGES)
    assert (strong["cause"], strong["effect"]) == (0, 1)
    assert strong["width"] / weak["width"] == pytest.approx(2)


@pytest.mark.parametrize("count", [1, 2, 3, 6, 12, 20, 64])
def test_names_inside_the_picture_and_off_the_clients(full_report, open_page, count):
    page = open_page(full_report)
    for letter in "iW界":
        for length in (1, 12, 30, 80):
            names = [f"{index:02d}" + letter * length for index in range(count)]
            lines = [wrap(shorten(name, 30)) for name in names]
            wrong, lengths = page.script(MISPLACED, names, lines)
            assert wrong == [], (letter, length)
            assert max(lengths) <= 30


def test_long_name_is_cut_in_the_label_and_whole_in_the_title(open_graph):
    name = "north_wing_pump_house_pressure_sensor_07"
    page = open_graph(complete([name, "b"]))
    client = "return document.querySelector('.fg-client')"
    assert page.script(f"{client}.querySelector('text').textContent") == (
        "north_wing_pump_hou…_sensor_07"
    )
    assert page.script(f"{client}.querySelector('title').textContent") == name


def test_graph_is_named_in_words_and_follows_the_choice(full_report, open_page):
    page = open_page(full_report)
    label = "return document.querySelector('.fg-graph').ariaLabel"
    words = "return document.querySelector('.fg-graph desc').textContent"
    for alpha in (0.9, 1e-12):
        page.choose(alpha=alpha, correction="none")
        count = len(page.drawn())
        assert page.script(label) == f"Causal graph of 6 clients: {count} edges"
        said = page.script(words)
        assert said.count("→") == min(count, 12)
        assert f"and {count - 12} weaker." in said if count > 12 else "weaker" not in said
    assert said == "No edges are drawn."
    page.choose(test="fedgc")
    assert page.script(label).endswith("0 edges (nothing was tested)")


def test_clients_without_edges_are_drawn(open_graph):
    for names in (["a"], ["a", "b"]):
        page = open_graph(complete(["a", "b"]).iloc[:0], full_manifest(names))
        assert page.script("return document.querySelectorAll('.fg-client').length") == len(names)
        assert page.drawn() == set()
        assert page.messages() == []


def test_every_chart_is_drawn_and_told_in_words(full_report, open_page):
    page = open_page(full_report)
    page.script("document.querySelectorAll('details').forEach(d => d.open = true)")
    charts = page.script(
        """return [...document.querySelectorAll('svg[data-chart]')].map(svg => [svg.dataset.chart,
        svg.getBBox().width, svg.querySelector('desc').textContent,
        svg.querySelectorAll('.line, .bar, .dot, .hollow').length])"""
    )
    keys = [key for key, *_ in charts]
    assert len(keys) == len(set(keys)) == 1 + 4 + 2 + 1 + 6 + 24
    for key, width, words, marks in charts:
        assert width > 100, key
        assert words, key
        assert marks >= 4, key


def test_losses_lie_on_a_log_axis(full_report, open_page):
    page = open_page(full_report)
    lines = [
        {"label": "local loss", "style": "local", "x": [0, 1, 2], "y": [100, 10, 1]},
        {"label": "server loss", "style": "server", "x": [1, 2], "y": [1, 10]},
    ]
    chart = {"lines": lines, "x": "pass", "y": "mean loss (log scale)"}
    drawn, words = page.script(
        """const marks = drawLines(arguments[0]);
        const all = (tag) => marks.filter(mark => mark.tagName === tag);
        return [all("polyline").map(line => line.getAttribute("points")),
                all("text").map(text => text.textContent)]""",
        chart,
    )
    local, server = map(points, drawn)
    heights = [y for _, y in local]
    assert heights[1] - heights[0] == pytest.approx(heights[2] - heights[1], abs=0.2)
    assert heights == sorted(heights)
    assert [y for _, y in server] == [heights[2], heights[1]]
    assert [x for x, _ in server] == [x for x, _ in local][1:]
    assert {"pass", "local loss", "server loss", "1", "10", "100", chart["y"]} <= set(words)


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0], [3.1, 3.2], [1e-9, 1e9], [0.999, 1.002]])
def test_ticks_are_few_and_inside(full_report, open_page, values):
    line = {"label": "a", "style": "local", "x": list(range(len(values))), "y": values}
    grid = open_page(full_report).script(
        """return drawLines({lines: [arguments[0]], x: "pass", y: ""})
        .filter(mark => mark.getAttribute("class") === "grid")
        .map(mark => [+mark.getAttribute("y1"), +mark.getAttribute("y2")])""",
        line,
    )
    level = [y1 for y1, y2 in grid if y1 == y2]
    assert 2 <= len(level) <= 7
    assert all(0 <= y <= 250 for ends in grid for y in ends)
    assert 1 <= len(grid) - len(level) <= 6


def test_a_perfect_fit_lies_on_its_line(full_report, open_page):
    page = open_page(full_report)
    normal = stats.norm.ppf((np.arange(41) + 0.5) / 41).tolist()
    uniform = [0.001, 0.01, 0.1, 0.5]
    for call, data, count in (
        ("drawNormal", {"points": [[x, x] for x in normal]}, 41),
        ("drawUniform", {"rows": [[u, u, u, u] for u in uniform]}, 4),
    ):
        (x0, y0, x1, y1), dots = page.script(
            f"""const marks = {call}(arguments[0]);
            const read = (mark, keys) => keys.map(key => +mark.getAttribute(key));
            const fit = marks.find(mark => mark.getAttribute("class") === "fit");
            return [read(fit, ["x1", "y1", "x2", "y2"]),
              marks.filter(m => m.tagName === "circle").map(m => read(m, ["cx", "cy"]))]""",
            data,
        )
        assert len(dots) == count
        for x, y in dots:
            assert y == pytest.approx(y0 + (y1 - y0) * (x - x0) / (x1 - x0), abs=1e-6)
            if call == "drawNormal":  # both axes have one scale
                assert x - 30 == pytest.approx(190 - y)


def test_bars_are_as_high_as_their_counts(full_report, open_page):
    counts = [2, 0, 0, 0, 0, 1, 0, 0, 0, 1]
    heights = open_page(full_report).script(
        """return drawBars({counts: arguments[0]}).filter(mark => mark.tagName === "rect")
        .map(mark => +mark.getAttribute("height"))""",
        counts,
    )
    assert heights == pytest.approx([count * heights[0] / 2 for count in counts])
    assert heights[0] > 100


FOLLOWED = """const svg = document.querySelector('#over-time svg[data-chart="followed-0"]');
const read = (mark, keys) => keys.map(key => +mark.getAttribute(key));
return {
  dots: [...svg.querySelectorAll("circle")]
    .map(c => [c.getAttribute("class"), ...read(c, ["cx", "cy"])]),
  reach: [...svg.querySelectorAll(".reach")].map(l => read(l, ["x1", "y1", "y2"])),
  lines: [...svg.querySelectorAll("polyline")].map(l => l.getAttribute("points").split(" ").length),
  bands: svg.querySelectorAll(".band").length,
  title: svg.querySelector("title").textContent,
  words: [...svg.querySelectorAll("text")].map(t => t.textContent)}"""


def test_an_edge_over_time_is_drawn_stretch_by_stretch(full_report, open_page):
    page = open_page(full_report)
    found = page.script(FOLLOWED)
    assert found["title"] == "boiler → compressor"  # the most certain first
    assert [dot[0] for dot in found["dots"]] == ["hollow"] * 2 + ["dot"] * 3
    assert found["lines"] == [1, 4]  # the second of six stretches has no numbers
    assert found["bands"] == 2
    assert "2026-03-01" in found["words"]
    zero, top, highest = 190, 8, 0.75  # all pictures have the scale of the highest band
    places = {0: 0.1, 1: 0.1, 2: 0.53, 3: 0.54, 4: 0.55}
    for k, strength in places.items():
        _, x, y = found["dots"][k]
        height = (zero - y) / (zero - top) * highest
        assert height == pytest.approx(strength, abs=1e-3)
        at, low, high = found["reach"][k]
        assert at == x
        assert (low - high) / (zero - top) * highest == pytest.approx(
            0.3 if k < 2 else 0.4, abs=1e-3
        )
    xs = [dot[1] for dot in found["dots"]]
    assert np.diff(xs).tolist() == pytest.approx([2 * (xs[2] - xs[1]), *[xs[2] - xs[1]] * 3])
    assert page.script("return document.querySelectorAll('#over-time svg').length") == 24
    rows = page.script(
        "return [...document.querySelector('#over-time tbody').rows].map(r => r.innerText)"
    )
    assert len(rows) == 30
    assert ".?.###" in rows[0]
    assert "2026-03-31T00:00:00 to 2026-04-29T23:00:00" in rows[0]
    assert page.messages() == []


def test_without_scripts_tables_stand_in_for_the_pictures(full_report, open_page, picture_folder):
    from selenium.webdriver.common.by import By

    driver = open_page(full_report).driver
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page = open_page(full_report)
        page.driver.find_element(By.CSS_SELECTOR, "nav")
        page.picture(picture_folder, "report-6-no-script")
        found = page.script(
            """const shown = (query) => [...document.querySelectorAll(query)]
              .filter(part => part.getClientRects().length);
            return [shown("svg").length, shown("#controls").length,
              shown("noscript table").map(table => table.rows.length),
              shown("#pairs tbody tr").length, shown("section").length]"""
        )
        pictures, controls, tables, pairs, sections = found
        assert (pictures, controls) == (0, 0)
        # edges over time, audit, clients, training, checks
        assert tables == [*[7] * 24, 5, *[10] * 11, 11, 11]
        assert pairs == 30
        assert sections > 10
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
